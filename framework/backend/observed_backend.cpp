// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/observed_backend.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "framework/backend/accesses.h"
#include "framework/backend/dnn.h"
#include "framework/backend/observe.h"
#include "framework/backend/recurrent_library.h"
#include "framework/math/update_rules.h"

namespace halfstep {
namespace {

std::string_view kind_of(Unary op) {
  constexpr std::string_view names[] = {
#define HS_UNARY(name) #name,
#include "generated/elementwise_names.def"
  };
  return names[size_t(op)];
}
std::string_view kind_of(Binary op) {
  constexpr std::string_view names[] = {
#define HS_BINARY(name) #name,
#include "generated/elementwise_names.def"
  };
  return names[size_t(op)];
}
std::string_view kind_of(Pointwise op) {
  constexpr std::string_view names[] = {
#define HS_POINTWISE(name) #name,
#include "generated/pointwise_names.def"
  };
  return names[size_t(op)];
}
std::string_view kind_of(Reduce op) {
  constexpr std::string_view names[] = {"sum", "mean", "prod", "max", "min", "any", "all", "sum_abs", "sum_squares"};
  return names[size_t(op)];
}
// Returns "" for arguments that name no op.
template <class T>
std::string_view kind_of(const T&) {
  return {};
}

// Returns "div_backward" for "binary_backward" of div.
std::string reported_name(std::string_view kernel, std::string_view kind) {
  if (kind.empty()) return std::string(kernel);
  return std::string(kind) + (kernel.ends_with("_backward") ? "_backward" : "");
}

// Passes each call on to the device's backend, and reports it. It lays out no weights, runs run_side_by_side()'s tasks one after
// another and records no work, as Backend does by default, so that the thread sees each kernel.
class ObservedBackend : public Backend {
 public:
  ObservedBackend(Device device, Backend& real) : device_(device), real_(real) {}

#define HS_UNPACK(...) __VA_ARGS__
#define HS_KERNEL(name, parameters, arguments)                      \
  void name parameters override {                                   \
    report(                                                         \
        #name, [&] { real_.name arguments; }, HS_UNPACK arguments); \
  }
#include "framework/backend/kernels.def"
#undef HS_UNPACK

  Device::Type device_type() const override { return real_.device_type(); }
  std::string describe() const override { return real_.describe(); }
  void synchronize() override { real_.synchronize(); }
  void copy_from_host(const void* src, void* dst, size_t bytes) override {
    real_.copy_from_host(src, dst, bytes);
    const TensorView written{dst, DType::u8, {int64_t(bytes)}, {1}};
    report_after({.name = "copy_from_host", .device = device_, .writes = {&written, 1}, .from_host = true});
  }
  void copy_to_host(const void* src, void* dst, size_t bytes) override { real_.copy_to_host(src, dst, bytes); }
  std::unique_ptr<UploadLane> open_upload_lane() override { return real_.open_upload_lane(); }
  std::unique_ptr<Stopwatch> open_stopwatch() override { return real_.open_stopwatch(); }
  uint64_t host_reads() const override { return real_.host_reads(); }
  AuxLayout activation_aux(Activation activation, int64_t rows, int64_t columns, DType dtype) const override {
    return real_.activation_aux(activation, rows, columns, dtype);
  }
  int64_t product_row(int64_t m, int64_t n, int64_t k, DType dtype) const override { return real_.product_row(m, n, k, dtype); }
  bool adds_up_columns(DType dtype) const override { return real_.adds_up_columns(dtype); }
  AuxLayout packed_layout(int64_t k, int64_t n, DType dtype) const override { return real_.packed_layout(k, n, dtype); }
  void pack(InView b, OutView packed) override { real_.pack(b, packed); }
  bool gains_by_packing(int64_t rows, int64_t k, int64_t n, DType dtype) const override {
    return real_.gains_by_packing(rows, k, n, dtype);
  }
  // Returns the device's own number of chunks, which determines the bits of the result.
  int64_t parallel_chunks(int64_t rows, int64_t multiplications, DType dtype) const override {
    return real_.parallel_chunks(rows, multiplications, dtype);
  }
  int64_t check_targets(const TensorView& target, int64_t classes, int64_t ignore_index) override {
    return real_.check_targets(target, classes, ignore_index);
  }
  int64_t check_indices(const TensorView& index, int64_t size) override { return real_.check_indices(index, size); }

 protected:
  using Views = std::vector<TensorView>;

  // Reports a call of a library, which may decline; returns whether it ran.
  template <class Call>
  bool report_library(const char* name, Views reads, Views writes, const Call& call) {
    for (Views* views : {&reads, &writes}) std::erase_if(*views, [](const TensorView& v) { return !v; });
    const ObservedKernel kernel{.name = name, .device = device_, .reads = reads, .writes = writes, .by_library = true};
    report_before(kernel);
    const bool done = call();
    if (done) report_after(kernel);
    return done;
  }

 private:
  static void report_before(const ObservedKernel& kernel) {
    Observing::report([&](OpObserver& o) { o.before_kernel(kernel); });
  }
  static void report_after(const ObservedKernel& kernel) {
    Observing::report([&](OpObserver& o) { o.kernel(kernel); });
  }

  template <class Call, class... Arguments>
  void report(std::string_view kernel, const Call& call, const Arguments&... arguments) {
    std::string_view kind;
    (
        [&] {
          if (const std::string_view found = kind_of(arguments); !found.empty()) kind = found;
        }(),
        ...);
    Views reads, writes;
    (collect(arguments, reads, writes), ...);
    if (const BatchNormArgs* norm = find_argument<BatchNormArgs>(arguments...); norm && norm->training && kernel == "batch_norm")
      std::erase_if(reads,
                    [&](const TensorView& r) {  // the running statistics: they are updated, but the output does not depend on them
                      return std::any_of(writes.begin(), writes.end(), [&](const TensorView& o) { return o.data == r.data; });
                    });
    const std::string name = reported_name(kernel, kind);
    const ObservedKernel observed{.name = name, .device = device_, .reads = reads, .writes = writes};
    report_before(observed);
    call();
    report_after(observed);
  }
  // Reports an update as one kernel for each parameter.
  template <class Call>
  void report(std::string_view, const Call& call, const std::span<const ParamUpdate>& params, const UpdateRule& rule,
              const StepControl&) {
    const std::string_view name = rule.visit([](const auto& r) -> std::string_view { return r.kName; });
    std::vector<Views> reads(params.size()), writes(params.size());
    std::vector<ObservedKernel> kernels;
    for (size_t i = 0; i < params.size(); ++i) {
      collect(params[i], reads[i], writes[i]);
      kernels.push_back({.name = name, .device = device_, .reads = reads[i], .writes = writes[i]});
    }
    for (const ObservedKernel& k : kernels) report_before(k);
    call();
    for (const ObservedKernel& k : kernels) report_after(k);
  }

  template <class T>
  static void collect(const T& argument, Views& reads, Views& writes) {
    each_access(argument, [&](const TensorView& v, Access access) {
      if (!v) return;
      if (access != Access::write) reads.push_back(v);
      if (access != Access::read) writes.push_back(v);
    });
  }
  template <class Wanted, class... T>
  static const Wanted* find_argument(const T&... arguments) {
    const Wanted* found = nullptr;
    (
        [&] {
          if constexpr (std::is_same_v<T, Wanted>) found = &arguments;
        }(),
        ...);
    return found;
  }

  Device device_;
  Backend& real_;
};

// Reports as one kernel each call that a device's library computes as a whole.
class ObservedLibraries final : public ObservedBackend, public AttentionLibrary, public RecurrentLibrary {
 public:
  ObservedLibraries(Device device, Backend& real, AttentionLibrary& attention, RecurrentLibrary& recurrent)
      : ObservedBackend(device, real), attention_(attention), recurrent_(recurrent) {}

  bool attention(const AttentionArgs& args, Generator::State state, const TensorView& out, const TensorView& stats,
                 bool differentiable) override {
    return report_library("attention", {args.q, args.k, args.v}, {out, stats},
                          [&] { return attention_.attention(args, state, out, stats, differentiable); });
  }
  bool attention_backward(const AttentionArgs& args, Generator::State state, const AttentionGradients& gradients) override {
    return report_library("attention_backward", {args.q, args.k, args.v, gradients.out, gradients.stats, gradients.grad},
                          {gradients.dq, gradients.dk, gradients.dv},
                          [&] { return attention_.attention_backward(args, state, gradients); });
  }
  std::optional<RecurrentSpaces> recurrent_spaces(const RecurrentArgs& args) override { return recurrent_.recurrent_spaces(args); }
  bool recurrent(const RecurrentArgs& args, const RecurrentTensors& tensors) override {
    return report_library("recurrent", {tensors.x, tensors.weights, tensors.h, tensors.c},
                          {tensors.y, tensors.h_out, tensors.c_out}, [&] { return recurrent_.recurrent(args, tensors); });
  }
  bool recurrent_backward(const RecurrentArgs& args, const RecurrentTensors& tensors, const RecurrentGradients& grads) override {
    return report_library(
        "recurrent_backward", {tensors.x, tensors.weights, tensors.h, tensors.c, tensors.y, grads.y, grads.h, grads.c},
        {grads.dx, grads.dh, grads.dc, grads.dweights}, [&] { return recurrent_.recurrent_backward(args, tensors, grads); });
  }
  uint64_t recurrent_calls() const override { return recurrent_.recurrent_calls(); }

 private:
  AttentionLibrary& attention_;
  RecurrentLibrary& recurrent_;
};

}  // namespace

std::unique_ptr<Backend> observed_backend(Device device, bool libraries) {
  Backend& real = unobserved_backend(device);
  auto* const attention = dynamic_cast<AttentionLibrary*>(&real);
  auto* const recurrent = dynamic_cast<RecurrentLibrary*>(&real);
  if (libraries && attention && recurrent) return std::make_unique<ObservedLibraries>(device, real, *attention, *recurrent);
  return std::make_unique<ObservedBackend>(device, real);
}

}  // namespace halfstep
