// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/meta.h"

#include <functional>
#include <initializer_list>
#include <variant>

#include "framework/backend/cpu/kernels.h"
#include "framework/backend/ledger.h"
#include "framework/backend/workspace.h"
#include "framework/base/check.h"
#include "framework/math/more_rules.h"

namespace halfstep {
namespace {

using Views = std::initializer_list<std::reference_wrapper<const TensorView>>;

// Counts stored elements: those of a repeated dimension count once, a C++ number not at all.
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

void count(std::string_view kernel, Views reads, Views writes) {
  if (Ledger::is_open()) Ledger::kernel(kernel, bytes(reads), bytes(writes));
}
void count(std::string_view kernel, double reads, double writes) { Ledger::kernel(kernel, reads, writes); }

bool plans_for_cpu() { return planned_device() == Device::Type::cpu; }

// A convolution as products: for each output a sum over the taps of its group's channels.
void count_conv(std::string_view kernel, const TensorView& weight, const TensorView& x, const TensorView& out, int64_t groups,
                Views reads, Views writes) {
  count(kernel, reads, writes);
  const int64_t filters = weight.shape[0], all = out.numel();
  if (filters == 0 || all == 0) return;
  Ledger::product({x.dtype, groups, all / out.shape[1], filters / groups, weight.numel() / filters});
}

class MetaBackend final : public Backend {
 public:
  Device::Type device_type() const override { return Device::Type::meta; }
  std::string describe() const override { return "shapes and dtypes only, no values"; }
  void synchronize() override {}
  void copy_to_host(const void*, void*, size_t bytes) override {
    check<MetaError>(bytes == 0, "meta", "a tensor on the device meta has no values to read",
                     Help{"only shapes, dtypes and sizes are known there: run this on the cpu or a GPU"});
  }
  uint64_t host_reads() const override { return 0; }

  void copy(const TensorView& src, const TensorView& dst) override { count("copy", {src}, {dst}); }
  void fill(const TensorView& dst, double) override { count("fill", {}, {dst}); }
  void arange(const TensorView& dst, double, double) override { count("arange", {}, {dst}); }
  void copy_from_host(const void*, void*, size_t) override {}
  void unary(Unary, const TensorView& x, const TensorView& out) override { count("unary", {x}, {out}); }
  void unary_backward(Unary, const TensorView& grad, const TensorView& saved, const TensorView& out) override {
    count("unary_backward", {grad, saved}, {out});
  }
  void binary(Binary, const TensorView& a, const TensorView& b, const TensorView& out) override { count("binary", {a, b}, {out}); }
  void binary_backward(Binary, int, const TensorView& grad, const TensorView& a, const TensorView& b,
                       const TensorView& out) override {
    count("binary_backward", {grad, a, b}, {out});
  }
  void test(Test, const TensorView& a, const TensorView& b, const TensorView& out) override { count("test", {a, b}, {out}); }
  void where(const TensorView& cond, const TensorView& a, const TensorView& b, const TensorView& out) override {
    count("where", {cond, a, b}, {out});
  }
  void pointwise(Pointwise, std::span<const TensorView> in, double, double, const TensorView& out) override {
    count("pointwise", bytes(in), bytes(out));
  }
  void pointwise_backward(Pointwise, int, const TensorView& grad, std::span<const TensorView> in, double, double,
                          const TensorView& out) override {
    count("pointwise_backward", bytes(grad) + bytes(in), bytes(out));
  }

  void gemm(const GemmArgs& g) override {
    const TensorView none;
    const bool read_aux = g.derivative;
    count("gemm", {g.a, g.b, g.bias, read_aux ? g.aux : none, g.accumulate ? g.c : none},
          {g.c, read_aux ? none : g.aux, g.column_sum, g.a_row_sum});
    const int last = g.c.shape.size() - 1;
    Ledger::product({g.a.dtype, last == 2 ? g.c.shape[0] : 1, g.c.shape[last - 1], g.c.shape[last], g.a.shape[last]});
    if (!plans_for_cpu()) return;
    const WorkspacePlan plan;
    cpu::gemm(g);
  }

  AuxLayout packed_layout(int64_t k, int64_t n, DType dtype) const override {
    return plans_for_cpu() ? cpu::packed_layout(k, n, dtype) : AuxLayout{};
  }
  int64_t sides(int64_t rows, int64_t multiplications) const override {
    return plans_for_cpu() ? cpu::sides(rows, multiplications) : 1;
  }

  void reduce(Reduce, const TensorView& x, const TensorView& out) override { count("reduce", {x}, {out}); }
  void arg_reduce(bool, const TensorView& x, int, const TensorView& values, const TensorView& indices) override {
    count("arg_reduce", {x}, {values, indices});
  }
  void variance(const TensorView& x, double, const TensorView& mean, const TensorView& var) override {
    count("variance", {x}, {mean, var});
  }
  void scan(Scan, const TensorView& x, int, bool, const TensorView& out) override { count("scan", {x}, {out}); }
  void sort(const TensorView& x, int, bool, int64_t, const TensorView& values, const TensorView& indices) override {
    count("sort", {x}, {values, indices});
  }
  void softmax(const TensorView& x, const TensorView& out, int, bool) override { count("softmax", {x}, {out}); }
  void softmax_backward(const TensorView& grad, const TensorView& y, const TensorView& out, int, bool) override {
    count("softmax_backward", {grad, y}, {out});
  }
  void cross_entropy(const CrossEntropyArgs& args, const TensorView& loss, const TensorView& lse,
                     const TensorView& total) override {
    count("cross_entropy", {args.logits, args.target, args.weight}, {loss, lse, total});
  }
  void cross_entropy_backward(const CrossEntropyArgs& args, const TensorView& grad, const TensorView& lse, const TensorView& total,
                              const TensorView& out) override {
    count("cross_entropy_backward", {args.logits, args.target, args.weight, grad, lse, total}, {out});
  }
  int64_t check_targets(const TensorView& target, int64_t, int64_t) override {
    count("check_targets", {target}, {});
    return -1;
  }
  void mse(const TensorView& a, const TensorView& b, Reduction, const TensorView& loss, const MseGradient& gradient) override {
    count("mse", {a, b, gradient.grad}, {loss, gradient.out});
  }
  void mse_backward(const TensorView& a, const TensorView& b, const TensorView& grad, Reduction, double,
                    const TensorView& out) override {
    count("mse_backward", {a, b, grad}, {out});
  }
  int64_t check_indices(const TensorView& index, int64_t) override {
    count("check_indices", {index}, {});
    return -1;
  }
  // Of a table that is read or written by index, only the elements that are read or written.
  void gather(const TensorView&, int, const TensorView& index, const TensorView& out) override {
    count("gather", {index, out}, {out});
  }
  void scatter_add(const TensorView&, int, const TensorView& index, const TensorView& src) override {
    count("scatter_add", {index, src, src}, {src});
  }
  void scatter(const TensorView&, int, const TensorView& index, const TensorView& src) override {
    count("scatter", {index, src}, {src});
  }
  void index_select(const TensorView&, int, const TensorView& index, const TensorView& out) override {
    count("index_select", {index, out}, {out});
  }
  void index_add(const TensorView&, int, const TensorView& index, const TensorView& src) override {
    count("index_add", {index, src, src}, {src});
  }
  void index_copy(const TensorView&, int, const TensorView& index, const TensorView& src) override {
    count("index_copy", {index, src}, {src});
  }

  void conv(const TensorView& x, const TensorView& weight, const TensorView& bias, const Window& window, int64_t groups, bool relu,
            const TensorView& out) override {
    count_conv("conv", weight, x, out, groups, {x, weight, bias}, {out});
    if (!plans_for_cpu()) return;
    const WorkspacePlan plan;
    cpu::conv(x, weight, bias, window, groups, relu, out);
  }
  void conv_backward_data(const TensorView& grad, const TensorView& weight, const TensorView& bias, const Window& window,
                          int64_t groups, const TensorView& out) override {
    count_conv("conv_backward_data", weight, grad, grad, groups, {grad, weight, bias}, {out});
    if (!plans_for_cpu()) return;
    const WorkspacePlan plan;
    cpu::conv_backward_data(grad, weight, bias, window, groups, out);
  }
  void conv_backward_weight(const TensorView& x, const TensorView& grad, const Window& window, int64_t groups,
                            const TensorView& out, const TensorView& bias_out) override {
    count_conv("conv_backward_weight", out, grad, grad, groups, {x, grad}, {out, bias_out});
    if (!plans_for_cpu()) return;
    const WorkspacePlan plan;
    cpu::conv_backward_weight(x, grad, window, groups, out, bias_out);
  }
  void unfold(const TensorView& x, const Window&, const Spatial&, const TensorView& columns) override {
    count("unfold", {x}, {columns});
  }
  void fold(const TensorView& columns, const Window&, const Spatial&, const TensorView& out) override {
    count("fold", {columns}, {out});
  }
  void max_pool(const TensorView& x, const PoolArgs&, const TensorView& out, const TensorView& indices) override {
    count("max_pool", {x}, {out, indices});
  }
  void max_pool_backward(const TensorView& grad, const TensorView& indices, const PoolArgs&, const TensorView& out) override {
    count("max_pool_backward", {grad, indices}, {out});
  }
  void avg_pool(const TensorView& x, const PoolArgs&, const TensorView& out) override { count("avg_pool", {x}, {out}); }
  void avg_pool_backward(const TensorView& grad, const PoolArgs&, const TensorView& out) override {
    count("avg_pool_backward", {grad}, {out});
  }
  void normalize(const NormArgs&, const TensorView& x, const TensorView& weight, const TensorView& bias, const TensorView& out,
                 const TensorView& mean, const TensorView& rstd) override {
    count("normalize", {x, weight, bias}, {out, mean, rstd});
  }
  void normalize_backward(const NormArgs&, const TensorView& grad, const TensorView& x, const TensorView& weight,
                          const TensorView& mean, const TensorView& rstd, const TensorView& dx, const TensorView& dweight,
                          const TensorView& dbias) override {
    count("normalize_backward", {grad, x, weight, mean, rstd}, {dx, dweight, dbias});
  }
  void batch_norm(const BatchNormArgs&, const TensorView& x, const TensorView& weight, const TensorView& bias,
                  const TensorView& running_mean, const TensorView& running_var, const TensorView& out, const TensorView& mean,
                  const TensorView& rstd) override {
    count("batch_norm", {x, weight, bias, running_mean, running_var}, {out, mean, rstd});
  }
  void batch_norm_backward(const BatchNormArgs&, const TensorView& grad, const TensorView& x, const TensorView& weight,
                           const TensorView& mean, const TensorView& rstd, const TensorView& dx, const TensorView& dweight,
                           const TensorView& dbias) override {
    count("batch_norm_backward", {grad, x, weight, mean, rstd}, {dx, dweight, dbias});
  }
  void lstm_cell(const TensorView& x_gates, const TensorView& h_gates, const TensorView& c, const TensorView& h_out,
                 const TensorView& c_out, const TensorView& activated) override {
    count("lstm_cell", {x_gates, h_gates, c}, {h_out, c_out, activated});
  }
  void lstm_cell_backward(const TensorView& dh, const TensorView& dh_more, const TensorView& dc, const TensorView& activated,
                          const TensorView& c, const TensorView& c_out, const TensorView& dgates,
                          const TensorView& dc_in) override {
    count("lstm_cell_backward", {dh, dh_more, dc, activated, c, c_out}, {dgates, dc_in});
  }
  void gru_cell(const TensorView& x_gates, const TensorView& h_gates, const TensorView& h, const TensorView& h_out,
                const TensorView& activated) override {
    count("gru_cell", {x_gates, h_gates, h}, {h_out, activated});
  }
  void gru_cell_backward(const TensorView& dh, const TensorView& dh_more, const TensorView& activated, const TensorView& h,
                         const TensorView& dx_gates, const TensorView& dh_gates, const TensorView& dh_in) override {
    count("gru_cell_backward", {dh, dh_more, activated, h}, {dx_gates, dh_gates, dh_in});
  }
  void resample(const TensorView& x, int, const SparseRows&, const TensorView& out) override { count("resample", {x}, {out}); }
  void grid_sample(const SampleArgs&, const TensorView& x, const TensorView& grid, const TensorView& out) override {
    count("grid_sample", {x, grid}, {out});
  }
  void grid_sample_backward(const SampleArgs&, const TensorView& grad, const TensorView& x, const TensorView& grid,
                            const TensorView& dx, const TensorView& dgrid) override {
    count("grid_sample_backward", {grad, x, grid}, {dx, dgrid});
  }
  void random_uniform(const TensorView& dst, Generator::State, double, double) override { count("random_uniform", {}, {dst}); }
  void random_normal(const TensorView& dst, Generator::State, double, double) override { count("random_normal", {}, {dst}); }
  void random_integers(const TensorView& dst, Generator::State, int64_t, int64_t) override { count("random_integers", {}, {dst}); }
  void dropout(const TensorView& x, const TensorView& out, double, Generator::State) override { count("dropout", {x}, {out}); }
  void check_finite(std::span<const TensorView> grads, float*) override { count("check_finite", bytes(grads), 0); }
  void unscale(std::span<const TensorView> grads, const float*, float*) override { count("unscale", bytes(grads), bytes(grads)); }
  void end_step(const float*, const math::StepTail&) override { count("end_step", 0, 0); }
  void update(std::span<const ParamUpdate> params, const UpdateRule& rule, const StepControl& control) override {
    double reads = 0, writes = 0;
    for (const ParamUpdate& p : params) {
      const double state = bytes(p.param) + bytes(p.state);
      reads += state + bytes(p.grad);
      writes += state + bytes(p.shadow) + (control.grad_scale && control.write_back ? bytes(p.grad) : 0);
    }
    count(rule.visit([](const auto& r) { return r.kName; }), reads, writes);
  }
  void norm(std::span<const TensorView> tensors, double, float*) override { count("norm", bytes(tensors), 0); }
  void clip(std::span<const TensorView> tensors, const float*, double) override { count("clip", bytes(tensors), bytes(tensors)); }
};

}  // namespace

std::unique_ptr<Backend> make_meta_backend() { return std::make_unique<MetaBackend>(); }

}  // namespace halfstep
