// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/meta.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "framework/backend/accesses.h"
#include "framework/backend/cpu/kernels.h"
#include "framework/backend/dnn.h"
#include "framework/backend/observe.h"
#include "framework/backend/product_rows.h"
#include "framework/backend/workspace.h"
#include "framework/base/check.h"
#include "framework/math/update_rules.h"

namespace halfstep {
namespace {

using Views = std::initializer_list<std::reference_wrapper<const TensorView>>;

// Counts the bytes of stored elements: repeated dimensions count once, a C++ number not at all.
double bytes(const TensorView& v) {
  if (!v || v.number) return 0;
  double n = double(size_of(v.dtype));
  for (int d = 0; d < v.shape.size(); ++d) n *= v.strides[d] == 0 && v.shape[d] > 0 ? 1 : double(v.shape[d]);
  return n;
}
double bytes(Views views) {
  double sum = 0;
  for (const TensorView& v : views) sum += bytes(v);
  return sum;
}
double bytes(std::span<const TensorView> views) {
  double sum = 0;
  for (const TensorView& v : views) sum += bytes(v);
  return sum;
}

void report(std::string_view kernel, double bytes_read, double bytes_written, const std::optional<MatrixProduct>& product = {}) {
  const ObservedKernel observed{.name = kernel,
                                .device = Device::meta,
                                .bytes_read = bytes_read,
                                .bytes_written = bytes_written,
                                .product = product};
  Observing::report([&](OpObserver& o) { o.kernel(observed); });
}

void count(std::string_view kernel, Views reads, Views writes, const std::optional<MatrixProduct>& product = {}) {
  if (Observing::any()) report(kernel, bytes(reads), bytes(writes), product);
}

// Counts reads and writes by the rows of kernels.def.
class CountingBackend : public Backend {
 public:
#define HS_UNPACK(...) __VA_ARGS__
#define HS_KERNEL(name, parameters, arguments) \
  void name parameters override { count_arguments(#name, HS_UNPACK arguments); }
#include "framework/backend/kernels.def"
#undef HS_UNPACK

 protected:
  template <class... Arguments>
  static void count_arguments(std::string_view kernel, const Arguments&... arguments) {
    count_arguments(std::nullopt, kernel, arguments...);
  }
  template <class... Arguments>
  static void count_arguments(const std::optional<MatrixProduct>& product, std::string_view kernel,
                              const Arguments&... arguments) {
    if (!Observing::any()) return;
    double read = 0, written = 0;
    const auto add = [&](const TensorView& v, Access access) {
      if (access != Access::write) read += bytes(v);
      if (access != Access::read) written += bytes(v);
    };
    (each_access(arguments, add), ...);
    report(kernel, read, written, product);
  }
};

bool plans_for_cpu() { return planned_device() == Device::Type::cpu; }

// Counts a convolution as products: for each output, a sum over the taps of its group's channels.
void count_conv(std::string_view kernel, const TensorView& weight, const TensorView& x, const TensorView& out, int64_t groups,
                Views reads, Views writes) {
  const int64_t filters = weight.shape[0], outputs = out.numel();
  std::optional<MatrixProduct> product;
  if (filters > 0 && outputs > 0)
    product = {x.dtype, false, groups, outputs / out.shape[1], filters / groups, weight.numel() / filters};
  count(kernel, reads, writes, product);
}

// Products of queries and keys in one call: q k^T and p v; the backward recomputes the first and has four gradients.
constexpr int64_t kAttentionProducts = 2, kAttentionBackwardProducts = 5;

// Counts `times` products of queries and keys that stay in one kernel. With a causal mask a row has half of the keys on average.
MatrixProduct attention_product(const AttentionArgs& a, int64_t times) {
  const int64_t rows = a.q.shape[2], keys = a.k.shape[2], square = std::min(rows, keys);
  const int64_t pairs = a.causal ? square * (square + 1) / 2 + (rows - square) * keys : rows * keys;
  return {.dtype = a.q.dtype,
          .fused = true,
          .batch = times * a.q.shape[0] * a.q.shape[1],
          .m = rows,
          .n = (pairs + rows - 1) / rows,
          .k = a.q.shape[3]};
}

// A plan for a GPU has the attention of cuDNN, with the workspace that it needs there.
class MetaBackend final : public CountingBackend, public AttentionLibrary {
 public:
  Device::Type device_type() const override { return Device::Type::meta; }
  std::string describe() const override { return "shapes and dtypes only, no values"; }
  void synchronize() override {}
  void copy_to_host(const void*, void*, size_t bytes) override {
    check<MetaError>(bytes == 0, "meta", "a tensor on the device meta has no values to read",
                     Help{"only shapes, dtypes and sizes are known there: run this on the cpu or a GPU"});
  }
  void copy_from_host(const void*, void*, size_t) override {}
  uint64_t host_reads() const override { return 0; }

  void gemm(const GemmArgs& g) override {
    const int last = g.c.shape.size() - 1;
    const MatrixProduct product{.dtype = g.a.dtype,
                                .batch = last == 2 ? g.c.shape[0] : 1,
                                .m = g.c.shape[last - 1],
                                .n = g.c.shape[last],
                                .k = g.a.shape[last]};
    count_arguments(product, "gemm", g);
    if (!plans_for_cpu()) return;
    const WorkspacePlan plan;
    cpu::gemm(g);
  }

  int64_t product_row(int64_t m, int64_t n, int64_t k, DType dtype) const override {
    return planned_device() == Device::Type::cuda ? aligned_product_row(m, n, k, dtype) : n;
  }
  AuxLayout packed_layout(int64_t k, int64_t n, DType dtype) const override {
    return plans_for_cpu() ? cpu::packed_layout(k, n, dtype) : AuxLayout{};
  }
  bool gains_by_packing(int64_t rows, int64_t k, int64_t n, DType dtype) const override {
    return plans_for_cpu() && cpu::gains_by_packing(rows, k, n, dtype);
  }
  int64_t parallel_chunks(int64_t rows, int64_t multiplications, DType dtype) const override {
    return plans_for_cpu() ? cpu::parallel_chunks(rows, multiplications, dtype) : 0;
  }

  int64_t check_targets(const TensorView& target, int64_t, int64_t) override {
    count("check_targets", {target}, {});
    return -1;
  }
  int64_t check_indices(const TensorView& index, int64_t) override {
    count("check_indices", {index}, {});
    return -1;
  }
  // Count only the elements of a table that an index reads or writes.
  void gather(InView, int, InView index, OutView out) override { count("gather", {index, out}, {out}); }
  void index_select(InView, int, InView index, OutView out) override { count("index_select", {index, out}, {out}); }
  void scatter_add(InOutView, int, InView index, InView src) override { count("scatter_add", {index, src, src}, {src}); }
  void index_add(InOutView, int, InView index, InView src) override { count("index_add", {index, src, src}, {src}); }
  void scatter(InOutView, int, InView index, InView src) override { count("scatter", {index, src}, {src}); }
  void index_copy(InOutView, int, InView index, InView src) override { count("index_copy", {index, src}, {src}); }

  void conv(InView x, InView weight, InView bias, const Window& window, int64_t groups, bool relu, OutView out) override {
    count_conv("conv", weight, x, out, groups, {x, weight, bias}, {out});
    if (!plans_for_cpu()) return;
    const WorkspacePlan plan;
    cpu::conv(x, weight, bias, window, groups, relu, out);
  }
  void conv_backward_data(InView grad, InView weight, InView bias, const Window& window, int64_t groups, OutView out) override {
    count_conv("conv_backward_data", weight, grad, grad, groups, {grad, weight, bias}, {out});
    if (!plans_for_cpu()) return;
    const WorkspacePlan plan;
    cpu::conv_backward_data(grad, weight, bias, window, groups, out);
  }
  void conv_backward_weight(InView x, InView grad, const Window& window, int64_t groups, OutView out, OutView bias_out) override {
    count_conv("conv_backward_weight", out, grad, grad, groups, {x, grad}, {out, bias_out});
    if (!plans_for_cpu()) return;
    const WorkspacePlan plan;
    cpu::conv_backward_weight(x, grad, window, groups, out, bias_out);
  }
  bool attention(const AttentionArgs& a, Generator::State, const TensorView& out, const TensorView& stats,
                 bool differentiable) override {
    if (!library_attends(a) || (a.dropout_p > 0 && differentiable && division_of(a).samples == 0)) return false;
    count("attention", {a.q, a.k, a.v}, {out, stats}, attention_product(a, kAttentionProducts));
    return true;
  }
  bool attention_backward(const AttentionArgs& a, Generator::State, const AttentionGradients& g) override {
    const AttentionDivision piece = library_attends(a) ? division_of(a) : AttentionDivision();
    if (piece.samples == 0) return false;
    const int64_t heads = piece.samples * piece.key_heads * (a.q.shape[1] / a.k.shape[1]),  // of queries, at once
        rows = heads * a.q.shape[2], element_bytes = int64_t(size_of(a.q.dtype));
    // Gradients that are converted to another dtype, and those of k and v for each head of q, which are summed for each key head.
    const int64_t converted = g.dq.dtype == a.q.dtype ? 0 : (a.q.numel() + 2 * a.k.numel()) * element_bytes,
                  unsummed = a.q.shape[1] == a.k.shape[1] ? 0 : 2 * heads * a.k.shape[2] * a.k.shape[3] * element_bytes;
    const Workspace scores(Device::meta, size_t(heads * attention_workspace(a.q.shape[2], a.k.shape[2]))),
        sums(Device::meta, size_t(rows) * sizeof(float)), written(Device::meta, size_t(converted + unsummed));
    count("attention_backward", {a.q, a.k, a.v, g.out, g.stats, g.grad}, {g.dq, g.dk, g.dv},
          attention_product(a, kAttentionBackwardProducts));
    return true;
  }
  void update(std::span<const ParamUpdate> params, const UpdateRule& rule, const StepControl& control) override {
    double reads = 0, writes = 0;
    for (const ParamUpdate& p : params) {
      const double state = bytes(p.param) + bytes(p.state);
      reads += state + bytes(p.grad);
      writes += state + bytes(p.shadow) + (control.grad_scale && control.write_back ? bytes(p.grad) : 0);
    }
    report(rule.visit([](const auto& r) { return r.kName; }), reads, writes);
  }

 private:
  static bool library_attends(const AttentionArgs& a) {
    const char* const setting = std::getenv("HALFSTEP_CUDA_DNN");
    if (planned_device() != Device::Type::cuda || (setting && setting == std::string_view("plain"))) return false;
    return is_for_library(a) && a.q.shape[2] > 1 && a.k.shape[2] > 1;  // cuDNN fails for one query or key (attention_soundness.cpp)
  }
  static AttentionDivision division_of(const AttentionArgs& a) {
    const auto sizes = [](const Shape& s) { return std::array<int64_t, 3>{s[0], s[1], s[2]}; };
    return attention_division(sizes(a.q.shape), sizes(a.k.shape), dnn_options().workspace);
  }
};

}  // namespace

std::unique_ptr<Backend> make_meta_backend() { return std::make_unique<MetaBackend>(); }

}  // namespace halfstep
