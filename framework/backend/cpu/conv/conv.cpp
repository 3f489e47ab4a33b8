// SPDX-License-Identifier: Apache-2.0
// Convolutions by oneDNN where it has code, in float32 or native bfloat16; otherwise by products of unfolded columns
// (unfold_conv.h). x [N, C, in...], weight [O, C / groups, K taps], out [N, O, out...]; i(o, k) = o stride - padding + k dilation:
//   forward   out[n, f, o] = relu?(bias[f] + sum over k and c in the group of f of weight[f, c, k] x[n, c, i(o, k)])
//   backward  dx[n, c, i(o, k)] += weight[f, c, k] g[n, f, o];  dweight[f, c, k] = sum over n, o of g[n, f, o] x[n, c, i(o, k)];
//             dbias[f] = sum over n, o of g[n, f, o]
#include "framework/backend/cpu/conv/onednn.h"
#include "framework/backend/cpu/gemm/gemm.h"
#include "framework/backend/cpu/kernels.h"
#include "framework/backend/unfold_conv.h"
#include "framework/backend/workspace.h"
#include "framework/base/check.h"
#include "framework/base/process_end.h"

namespace halfstep::cpu {
namespace {

class CpuConvKernels final : public ConvKernels {
 public:
  Device device() const override { return Device::cpu; }
  int64_t workspace_bytes() const override { return int64_t(4) << 20; }  // fits into caches
  void gemm(const GemmArgs& args) const override { cpu::gemm(args); }
  void unfold(const TensorView& x, const Window& window, const Spatial& positions, const TensorView& columns) const override {
    cpu::unfold(x, window, positions, columns);
  }
  void fold(const TensorView& columns, const Window& window, const Spatial& positions, const TensorView& out) const override {
    cpu::fold(columns, window, positions, out);
  }
  void sum(const TensorView& x, const TensorView& out) const override { cpu::reduce(Reduce::sum, x, out); }
  void add(const TensorView& a, const TensorView& b, const TensorView& out) const override { cpu::binary(Binary::add, a, b, out); }
  void relu(const TensorView& x) const override { cpu::unary(Unary::relu, x, x); }
  void copy(const TensorView& src, const TensorView& dst) const override { cpu::copy(src, dst); }
  void fill(const TensorView& dst, double value) const override { cpu::fill(dst, value); }
};
// Returns the kernels that compute. They are never destroyed: threads may still compute when the process ends.
const CpuConvKernels& computing_kernels() {
  static const auto& own = *new CpuConvKernels;
  return own;
}

// The kernels of a plan, where only products need memory.
class PlannedKernels final : public ConvKernels {
 public:
  Device device() const override { return computing_kernels().device(); }
  int64_t workspace_bytes() const override { return computing_kernels().workspace_bytes(); }
  void gemm(const GemmArgs& args) const override { computing_kernels().gemm(args); }
  void unfold(const TensorView&, const Window&, const Spatial&, const TensorView&) const override {}
  void fold(const TensorView&, const Window&, const Spatial&, const TensorView&) const override {}
  void sum(const TensorView&, const TensorView&) const override {}
  void add(const TensorView&, const TensorView&, const TensorView&) const override {}
  void relu(const TensorView&) const override {}
  void copy(const TensorView&, const TensorView&) const override {}
  void fill(const TensorView&, double) const override {}
};

const ConvKernels& kernels() {
  static const auto& planned = *new PlannedKernels;
  if (WorkspacePlan::open()) return planned;
  return computing_kernels();
}

bool any_is_empty(const TensorView& x, const TensorView& weight, const TensorView& y) {
  return x.numel() == 0 || weight.numel() == 0 || y.numel() == 0;
}
// Returns the dtype in which oneDNN computes on operands in `from`. With one channel per group there are no pairs to multiply:
// oneDNN's bf16 code then widens in registers, and is the faster one wherever it exists.
DType onednn_dtype(DType from, int64_t channels, int64_t groups) {
  const bool takes_bf16 = is_native(DType::bf16) || (groups == channels && groups > 1 && has_bf16_code());
  return from == DType::bf16 && takes_bf16 ? DType::bf16 : DType::f32;
}

ConvProblem problem_of(ConvPass pass, const TensorView& x, const TensorView& weight, const TensorView& y, const Window& window,
                       int64_t groups, DType from, DType to, bool with_bias, bool laid) {
  const DType x_dtype = pass == ConvPass::data ? to : from, y_dtype = pass == ConvPass::forward ? to : from;
  return {.pass = pass,
          .images = x.shape[0],
          .channels = x.shape[1],
          .filters = y.shape[1],
          .groups = groups,
          .window = window,
          .in = spatial_sizes(x, window.dims),
          .out = spatial_sizes(y, window.dims),
          .from = from,
          .to = to,
          .format = conv_format({x, weight, y}),
          .with_bias = with_bias,
          .laid = laid,
          .converts = x.dtype != x_dtype || y.dtype != y_dtype};
}

// Runs one pass; x, weight, y are those of ConvProblem. Returns false and does nothing if oneDNN has no code. `laid`: the weight of
// a forward as lay_weight() has made it.
bool run_with_onednn(ConvPass pass, const TensorView& x, const TensorView& weight, const TensorView& y, const TensorView& bias,
                     const Window& window, int64_t groups, bool relu = false, const TensorView& laid = {}) {
  if (x.dtype == DType::f64 || any_is_empty(x, weight, y)) return false;
  const BeforeEnd library;
  if (!library.allowed()) return false;
  const bool is_data_pass = pass == ConvPass::data, is_weight_pass = pass == ConvPass::weight;
  const TensorView& result = is_data_pass ? x : is_weight_pass ? weight : y;
  const DType operand_dtype = onednn_dtype((is_data_pass ? y : x).dtype, x.shape[1], groups);
  // The library adds no bias to gradients, so the bias of a transposed convolution is added afterwards, before rounding.
  const bool adds_bias_afterwards = is_data_pass && bias;
  const DType result_dtype = result.dtype == DType::f32 || adds_bias_afterwards ? DType::f32 : operand_dtype;
  TensorView x_side = x;
  if (adds_bias_afterwards) x_side.dtype = result_dtype;

  const ConvProblem problem =
      problem_of(pass, x_side, weight, y, window, groups, operand_dtype, result_dtype, bias && !adds_bias_afterwards, bool(laid));
  const MemoryFormat format = problem.format;
  const std::optional<ConvPlan> plan = conv_plan(problem);
  if (!plan) return false;

  // Copies in the dtype of the computation, where they differ: of the bias, the weight, and a result to which a bias is added.
  const bool bias_differs = bias && !adds_bias_afterwards && (bias.dtype != DType::f32 || bias.strides[0] != 1);
  TensorView own_weight = weight;
  own_weight.dtype = is_weight_pass ? result_dtype : operand_dtype;
  const bool weight_differs = own_weight.dtype != weight.dtype, sum_differs = adds_bias_afterwards && x.dtype != result_dtype;
  const auto round_up_to_16 = [](int64_t n) { return (n + 15) / 16 * 16; };
  const int64_t channels = bias ? bias.shape[0] : 0, biases = bias_differs ? round_up_to_16(channels) : 0,
                weights = weight_differs ? round_up_to_16(weight.numel()) : 0, sums = sum_differs ? round_up_to_16(x.numel()) : 0;
  const Workspace work(Device::cpu, size_t(biases + weights + sums) * sizeof(float));
  float* const memory = reinterpret_cast<float*>(work.data());
  const TensorView own_bias{memory, DType::f32, {channels}, {1}};
  if (weight_differs) own_weight.data = memory + biases;
  if (sum_differs) x_side.data = memory + biases + weights;
  if (weight_differs && !is_weight_pass) kernels().copy(in_memory_order(weight, format), in_memory_order(own_weight, format));
  if (bias_differs && pass == ConvPass::forward) kernels().copy(bias, own_bias);
  const void* const bias_data = !bias || adds_bias_afterwards ? nullptr : bias_differs ? own_bias.data : bias.data;
  run(*plan, {x_side.data, x_side.dtype}, laid ? laid.data : own_weight.data, {y.data, y.dtype},
      static_cast<const float*>(bias_data));
  if (relu) kernels().relu(in_memory_order(y, format));  // oneDNN's own ReLU turns NaN into 0
  if (bias_differs && is_weight_pass) kernels().copy(own_bias, bias);
  if (adds_bias_afterwards) add_channel_bias(kernels(), x_side, bias, x);
  if (weight_differs && is_weight_pass) kernels().copy(in_memory_order(own_weight, format), in_memory_order(weight, format));
  return true;
}

}  // namespace

void conv(const TensorView& x, const TensorView& weight, const TensorView& bias, const Window& window, int64_t groups, bool relu,
          const TensorView& out) {
  if (run_with_onednn(ConvPass::forward, x, weight, out, bias, window, groups, relu)) return;
  if (weight.dtype == x.dtype) return unfold_conv(kernels(), x, weight, bias, window, groups, relu, out);
  // A weight of float32 beside a 16-bit x: computes in float32, so that only the result is rounded.
  const int64_t x_count = x.numel(), out_count = out.numel();
  const Workspace wide(Device::cpu, size_t(x_count + out_count) * sizeof(float));
  float* const memory = reinterpret_cast<float*>(wide.data());
  TensorView wide_x = x, wide_out = out;
  wide_x.dtype = wide_out.dtype = DType::f32;
  wide_x.data = memory;
  wide_out.data = memory + x_count;
  const MemoryFormat format = conv_format({x, weight, out});
  kernels().copy(in_memory_order(x, format), in_memory_order(wide_x, format));
  unfold_conv(kernels(), wide_x, weight, bias, window, groups, relu, wide_out);
  kernels().copy(in_memory_order(wide_out, format), in_memory_order(out, format));
}

namespace {

std::optional<ConvPlan> laid_plan(const ConvArgs& a) {
  if (any_is_empty(a.x, a.weight, a.out)) return {};
  const DType dtype = a.x.dtype, code = onednn_dtype(dtype, a.x.shape[1], a.groups);
  if (dtype != code || a.weight.dtype != code || a.out.dtype != code) return {};
  return laid_plan(problem_of(ConvPass::forward, a.x, a.weight, a.out, a.window, a.groups, code, code, bool(a.bias), true));
}

}  // namespace

ConvWeightLayout laid_weight_layout(const ConvArgs& args) {
  const BeforeEnd library;
  if (!library.allowed()) return {};
  const auto plan = laid_plan(args);
  return plan ? laid_weight_layout(*plan) : ConvWeightLayout{};
}

void lay_weight(const ConvArgs& args, const TensorView& weight, const TensorView& laid) {
  const BeforeEnd library;
  if (!library.allowed()) return;  // conv_laid() will not read it then
  lay_weight(laid_plan(args).value(), weight.data, laid.data);
}

void conv_laid(const ConvArgs& a, const TensorView& laid) {
  const bool done = run_with_onednn(ConvPass::forward, a.x, a.weight, a.out, a.bias, a.window, a.groups, a.relu, laid);
  check<Error>(done || process_ends(), "conv", "no code for a weight that was laid out");
  if (!done) conv(a.x, a.weight, a.bias, a.window, a.groups, a.relu, a.out);
}

void conv_backward_data(const TensorView& grad, const TensorView& weight, const TensorView& bias, const Window& window,
                        int64_t groups, const TensorView& out) {
  if (!run_with_onednn(ConvPass::data, out, weight, grad, bias, window, groups))
    unfold_conv_backward_data(kernels(), grad, weight, bias, window, groups, out);
}

void conv_backward_weight(const TensorView& x, const TensorView& grad, const Window& window, int64_t groups, const TensorView& out,
                          const TensorView& bias_out) {
  if (!run_with_onednn(ConvPass::weight, x, out, grad, bias_out, window, groups))
    unfold_conv_backward_weight(kernels(), x, grad, window, groups, out, bias_out);
}

}  // namespace halfstep::cpu
