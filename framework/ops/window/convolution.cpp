// SPDX-License-Identifier: Apache-2.0
// Three ops that are each other's derivatives, because a convolution is linear in its input and in its weight. With output channel
// o, input channel c of o's group, output position p, tap k, and s, d the stride and the dilation, in each spatial dimension:
//
//   convolution      y[n, o, p] = bias[o] + sum over c, k of weight[o, c, k] x[n, c, p s - padding + k d]
//   its transpose    dx[n, c, i] = sum over o and p, k with p s - padding + k d = i of weight[o, c, k] g[n, o, p]
//   weight gradient  dweight[o, c, k] = sum over n, p of g[n, o, p] x[n, c, p s - padding + k d]
//
// A bias's gradient is the sum of g over all dimensions but the channels.
#include "framework/ops/window/convolution.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "framework/autograd/grad_mode.h"
#include "framework/ops/core/call.h"
#include "framework/ops/core/promotion.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/elementwise/formulas.h"
#include "framework/ops/linalg/products.h"
#include "framework/ops/ops.h"
#include "framework/ops/window/folded_conv.h"
#include "framework/ops/window/laid_weights.h"
#include "framework/ops/window/windows.h"

namespace halfstep {
namespace {

// One convolution x [N, C, in...], weight [O, C / groups, window.size...] -> y [N, O, out...].
struct ConvAttr {
  Window window;
  int64_t groups = 1;
  Spatial in{1, 1, 1}, out{1, 1, 1};
  bool relu = false;            // for conv1d, 2d and 3d
  LaidWeights* laid = nullptr;  // only in InferenceMode, where no graph keeps this
};

Attributes describe_convolution(const ConvAttr& attr) {
  Attributes out = describe(attr.window);
  out.emplace_back("groups", attr.groups);
  out.emplace_back("relu", attr.relu);
  out.push_back(describe("in", attr.in, attr.window.dims));
  out.push_back(describe("out", attr.out, attr.window.dims));
  return out;
}

// Runs a kernel into a new tensor. Kernels write the operands' dtype or f32; anything else is one more conversion.
template <class F>
Tensor written(const Shape& shape, const Tensor& like, DType wanted, MemoryFormat format, const F& kernel) {
  const DType kernel_dtype = wanted == like.dtype() || (wanted == DType::f32 && is_half(like.dtype())) ? wanted : like.dtype();
  const Tensor out = Tensor::empty(shape, {.dtype = kernel_dtype, .device = like.device(), .format = format});
  kernel(backend_for(like.device()), out.view());
  return kernel_dtype == wanted ? out : out.to(wanted);
}
// Returns one format for all tensors of a call: channels_last if one of the operands is, as in PyTorch.
MemoryFormat format_of(const Tensor& a, const Tensor& b) {
  return a.format() == MemoryFormat::channels_last ? a.format() : b.format();
}

// Computes the convolution in `dtype`.
Tensor run_forward(const ConvAttr& attr, const Tensor& given_x, const Tensor& given_weight, const Tensor& given_bias, DType dtype) {
  const MemoryFormat format = format_of(given_x, given_weight);
  const Tensor x = given_x.to(format), weight = given_weight.to(format), bias = dense(given_bias);
  return written(with_spatial(x.size(0), weight.size(0), attr.out, attr.window.dims), x, dtype, format,
                 [&](Backend& backend, const TensorView& out) {
                   const ConvArgs args{x.view(), weight.view(), view_of(bias), attr.window, attr.groups, attr.relu, out};
                   const Tensor laid = attr.laid ? attr.laid->find_or_lay(given_weight, args) : Tensor();
                   if (laid.defined()) return backend.conv_laid(args, laid.view());
                   backend.conv(args.x, args.weight, args.bias, attr.window, attr.groups, attr.relu, out);
                 });
}
// Computes the transpose, which is the input's gradient without a bias.
Tensor run_transpose(const ConvAttr& attr, const Tensor& given_grad, const Tensor& given_weight, const Tensor& given_bias,
                     DType dtype) {
  const MemoryFormat format = format_of(given_grad, given_weight);
  const Tensor grad = given_grad.to(format), weight = given_weight.to(format), bias = dense(given_bias);
  return written(with_spatial(grad.size(0), weight.size(1) * attr.groups, attr.in, attr.window.dims), grad, dtype, format,
                 [&](Backend& backend, const TensorView& out) {
                   backend.conv_backward_data(grad.view(), weight.view(), view_of(bias), attr.window, attr.groups, out);
                 });
}
// Computes the weight's gradient, and with it the bias's if wanted.
Tensor run_weight(const ConvAttr& attr, const Tensor& given_x, const Tensor& given_grad, DType dtype, Tensor* bias = nullptr,
                  DType bias_dtype = DType::f32) {
  const MemoryFormat format = format_of(given_x, given_grad);
  const Tensor x = given_x.to(format), grad = given_grad.to(format);
  return written(with_spatial(grad.size(1), x.size(1) / attr.groups, attr.window.size, attr.window.dims), x, dtype, format,
                 [&](Backend& backend, const TensorView& out) {
                   const auto with_bias = [&](const TensorView& bias_out) {
                     backend.conv_backward_weight(x.view(), grad.view(), attr.window, attr.groups, out, bias_out);
                   };
                   if (!bias) return with_bias({});
                   *bias = written({grad.size(1)}, grad, bias_dtype, MemoryFormat::contiguous,
                                   [&](Backend&, const TensorView& v) { with_bias(v); });
                 });
}

// Returns the bias's gradient: the sum over all dimensions but the channels.
Tensor channel_sum(const Tensor& g, DType dtype) {
  Dims rest{0};
  for (int d = 2; d < g.dim(); ++d) rest.push_back(d);
  if (grad_enabled()) return sum(g, rest);
  Shape kept = Dims::filled(g.dim(), 1);
  kept[1] = g.size(1);
  const Tensor sums = Tensor::empty(kept, {.dtype = dtype, .device = g.device()});
  backend_for(g.device()).reduce(Reduce::sum, ordered(g, g.format()), ordered(sums, g.format()));
  return sums.alias({g.size(1)}, {1});
}

struct ConvOp {
  using Attr = ConvAttr;
  enum Saved : size_t { kX, kWeight, kOutput };  // kOutput: only with ReLU
  static constexpr OpInfo kInfo[3] = {
      {.name = "conv1d",
       .policy = CastPolicy::low,
       .doc = "sum over channels and taps of weight x[position stride - padding + tap dilation], + bias; optionally ReLU of it in "
              "the same pass"},
      {.name = "conv2d", .policy = CastPolicy::low, .doc = "as conv1d, over two dimensions"},
      {.name = "conv3d", .policy = CastPolicy::low, .doc = "as conv1d, over three dimensions"}};
  static const OpInfo& info_of(const Attr& attr) { return kInfo[attr.window.dims - 1]; }

  static Attributes describe(const Attr& attr) { return describe_convolution(attr); }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensor y = run_forward(attr, in[0], in[1], in[2], in[0].dtype());
    save_factors(ctx, in[0], in[1]);
    if (attr.relu) ctx.save_output(y);
    return y;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads);
};

// Computes the gradient of ConvOp's input, and adds a bias; inputs: grad [N, O, out...], weight, bias [C]. Its own gradient with
// respect to grad is a convolution.
struct ConvTransposeOp {
  using Attr = ConvAttr;
  enum Saved : size_t { kGrad, kWeight };
  static constexpr OpInfo kInfo[3] = {
      {.name = "conv_transpose1d", .policy = CastPolicy::low, .doc = "the transpose of conv1d, its input's gradient; + bias"},
      {.name = "conv_transpose2d", .policy = CastPolicy::low, .doc = "the transpose of conv2d, its input's gradient; + bias"},
      {.name = "conv_transpose3d", .policy = CastPolicy::low, .doc = "the transpose of conv3d, its input's gradient; + bias"}};
  static const OpInfo& info_of(const Attr& attr) { return kInfo[attr.window.dims - 1]; }

  static Attributes describe(const Attr& attr) { return describe_convolution(attr); }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    save_factors(ctx, in[0], in[1]);
    return run_transpose(attr, in[0], in[1], in[2], in[0].dtype());
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads);
};

// Computes the gradient of ConvOp's weight; inputs: x, grad.
struct ConvWeight {
  using Attr = ConvAttr;
  enum Saved : size_t { kX, kGrad };
  static constexpr OpInfo info{.name = "conv_backward_weight",
                               .policy = CastPolicy::keep,
                               .doc = "the gradient of a convolution's weight, from its input and its output's gradient"};

  static Attributes describe(const Attr& attr) { return describe_convolution(attr); }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    save_factors(ctx, in[0], in[1]);
    return run_weight(attr, in[0], in[1], in[0].dtype());
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor &dweight_grad = grads[0], x = ctx.saved(kX), g = ctx.saved(kGrad);
    const bool record = grad_enabled();
    Tensors result(2);
    if (ctx.needs(0))
      result[0] = record ? call<ConvTransposeOp>({g, dweight_grad, Tensor()}, attr)
                         : run_transpose(attr, g, dweight_grad, Tensor(), ctx.grad_dtype(0));
    if (ctx.needs(1))
      result[1] = record ? call<ConvOp>({x, dweight_grad, Tensor()}, attr)
                         : run_forward(attr, x, dweight_grad, Tensor(), ctx.grad_dtype(1));
    return result;
  }
};

Tensors ConvOp::backward(const BackwardContext& ctx, const Attr& with_relu, const Tensors& grads) {
  const Tensor g = with_relu.relu ? relu_gradient(grads[0], ctx.saved(kOutput)) : grads[0];
  const Tensor x = ctx.saved(kX), weight = ctx.saved(kWeight);
  Attr attr = with_relu;
  attr.relu = false;  // the gradients are linear
  Tensors result(3);
  if (grad_enabled()) {
    if (ctx.needs(0)) result[0] = call<ConvTransposeOp>({g, weight, Tensor()}, attr);
    if (ctx.needs(1)) result[1] = call<ConvWeight>({x, g}, attr);
  } else {
    if (ctx.needs(0)) result[0] = run_transpose(attr, g, weight, Tensor(), ctx.grad_dtype(0));
    if (ctx.needs(1)) result[1] = run_weight(attr, x, g, ctx.grad_dtype(1), ctx.needs(2) ? &result[2] : nullptr, ctx.grad_dtype(2));
  }
  if (ctx.needs(2) && !result[2].defined()) result[2] = channel_sum(g, ctx.grad_dtype(2));
  return result;
}

Tensors ConvTransposeOp::backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
  const Tensor &dx_grad = grads[0], g = ctx.saved(kGrad), weight = ctx.saved(kWeight);
  const bool record = grad_enabled();
  Tensors result(3);
  if (ctx.needs(0))
    result[0] =
        record ? call<ConvOp>({dx_grad, weight, Tensor()}, attr) : run_forward(attr, dx_grad, weight, Tensor(), ctx.grad_dtype(0));
  if (ctx.needs(1)) result[1] = record ? call<ConvWeight>({dx_grad, g}, attr) : run_weight(attr, dx_grad, g, ctx.grad_dtype(1));
  if (ctx.needs(2)) result[2] = channel_sum(dx_grad, ctx.grad_dtype(2));
  return result;
}

// ---- arguments

// Returns the window and all sizes of a convolution of an input [N, C, in...].
ConvAttr conv_attr(std::string_view op, const Shape& x, const Spatial& kernel, int dims, const ConvOptions& options) {
  const bool same = options.padding.name == "same";
  check<ValueError>(same || options.padding.name == "valid" || options.padding.name.empty(), op,
                    "padding must be sizes, \"same\" or \"valid\", got \"", options.padding.name, "\"");
  ConvAttr attr{.window = window_of(op, dims, kernel, options.stride, options.padding.sizes, options.dilation),
                .groups = options.groups};
  Window& window = attr.window;
  attr.in = spatial_of(x, dims);
  for (size_t d = 0; d < size_t(dims); ++d) {
    check<ShapeError>(attr.in[d] >= 1, op, "input must not be empty in its spatial dimensions, got ", x);
    int64_t after = window.padding[d];
    if (same) {
      check<ValueError>(window.stride[d] == 1, op, "padding \"same\" needs a stride of 1, got ", options.stride);
      const int64_t total = window.dilation[d] * (window.size[d] - 1);
      window.padding[d] = total / 2;
      after = total - total / 2;
    }
    attr.out[d] = window_positions(window, d, attr.in[d], after);
    check<ShapeError>(attr.out[d] >= 1, op, "the kernel must fit into the padded input: its taps span ",
                      window.dilation[d] * (window.size[d] - 1) + 1, " in spatial dimension ", d, ", where input ", x, " has ",
                      attr.in[d] + window.padding[d] + after, " with its padding");
  }
  return attr;
}

void check_inputs(std::string_view op, int dims, const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t groups) {
  check<ShapeError>(x.dim() == dims + 2 || x.dim() == dims + 1, op, "input must have ", dims + 2, " dimensions, or ", dims + 1,
                    " without a batch, got ", x.shape());
  check<ShapeError>(weight.dim() == dims + 2, op, "weight must have ", dims + 2, " dimensions, got ", weight.shape());
  for (const Tensor& t : {x, weight}) check<DTypeError>(t.is_floating_point(), op, "inputs must be floating, got ", t.dtype());
  check<DTypeError>(!bias.defined() || bias.is_floating_point(), op, "bias must be floating, got ",
                    bias.defined() ? bias.dtype() : DType::f32);
  check<ValueError>(groups >= 1, op, "groups must be at least 1, got ", groups);
  check<ShapeError>(weight.size(0) >= 1 && weight.size(0) % groups == 0, op,
                    "weight's first size must be a multiple of groups = ", groups, ", got ", weight.shape());
  for (const Tensor& t : {x, weight}) check_sizes(op, t.shape());
}
void check_bias(std::string_view op, const Tensor& bias, int64_t channels, const Tensor& weight) {
  check<ShapeError>(!bias.defined() || (bias.dim() == 1 && bias.size(0) == channels), op, "bias must be [", channels,
                    "] to match weight ", weight.shape(), ", got ", bias.defined() ? bias.shape() : Shape{});
}
void check_channels(std::string_view op, const Tensor& x, int dims, const Tensor& weight, int64_t channels, int64_t groups) {
  check<ShapeError>(x.size(-1 - dims) == channels, op, "input must have ", channels, " channels to match weight ", weight.shape(),
                    " with groups = ", groups, ", got ", x.shape());
}

// Casts the inputs for the region: an op called by another op must not cast again, and errors name the outer op. folded: casts x
// alone.
std::array<Tensor, 3> cast_inputs(std::string_view op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                                  bool folded = false) {
  check_same_device(op, {x, weight, bias});
  std::array<Tensor, 3> in{x, weight, bias};
  apply_policy({.name = op, .policy = ConvOp::kInfo[0].policy}, std::span(in).first(folded ? 1 : 3));
  const auto may_differ = [&](const Tensor& t) { return folded && t.defined() && t.dtype() == widened(in[0].dtype()); };
  check_same_dtype(op, {in[0], may_differ(weight) ? Tensor() : in[1], may_differ(bias) ? Tensor() : in[2]});
  return in;
}

Tensor run_conv(std::string_view op, int dims, const Tensor& input, const Tensor& weight, const Tensor& bias,
                const ConvOptions& options, bool relu, bool folded = false) {
  check_inputs(op, dims, input, weight, bias, options.groups);
  int64_t channels = 0;
  check<ShapeError>(!__builtin_mul_overflow(weight.size(1), options.groups, &channels), op, "groups = ", options.groups,
                    " is too large");
  check_channels(op, input, dims, weight, channels, options.groups);
  check_bias(op, bias, weight.size(0), weight);
  const auto in = cast_inputs(op, input, weight, bias, folded);
  const autocast::Off off;
  return batched(in[0], dims + 2, [&](const Tensor& x) {
    ConvAttr attr = conv_attr(op, x.shape(), spatial_of(weight.shape(), dims), dims, options);
    attr.relu = relu;
    attr.laid = inference_enabled() ? options.laid : nullptr;
    check_sizes(op, with_spatial(x.size(0), weight.size(0), attr.out, dims));
    return call<ConvOp>({x, in[1], in[2]}, attr);
  });
}

Tensor run_transposed(std::string_view op, int dims, const Tensor& input, const Tensor& weight, const Tensor& bias,
                      const ConvTransposeOptions& options) {
  check_inputs(op, dims, input, weight, bias, options.groups);
  check_channels(op, input, dims, weight, weight.size(0), options.groups);
  int64_t channels = 0;
  check<ShapeError>(weight.size(1) >= 1 && !__builtin_mul_overflow(weight.size(1), options.groups, &channels), op,
                    "weight's second size must be at least 1, got ", weight.shape());
  check_bias(op, bias, channels, weight);
  ConvAttr attr{.window = window_of(op, dims, spatial_of(weight.shape(), dims), options.stride, options.padding, options.dilation),
                .groups = options.groups};
  const Spatial extra = per_dimension(op, "output_padding", options.output_padding, dims, 0, 0);
  const auto in = cast_inputs(op, input, weight, bias);
  const autocast::Off off;
  return batched(in[0], dims + 2, [&](const Tensor& x) {
    const Window& window = attr.window;
    attr.out = spatial_of(x.shape(), dims);
    for (size_t d = 0; d < size_t(dims); ++d) {
      check<ShapeError>(attr.out[d] >= 1, op, "input must not be empty in its spatial dimensions, got ", x.shape());
      check<ValueError>(extra[d] < window.stride[d] || extra[d] < window.dilation[d], op,
                        "output_padding must be less than stride or dilation, got ", options.output_padding, " with stride ",
                        options.stride, " and dilation ", options.dilation);
      attr.in[d] =
          (attr.out[d] - 1) * window.stride[d] - 2 * window.padding[d] + window.dilation[d] * (window.size[d] - 1) + extra[d] + 1;
      check<ShapeError>(attr.in[d] >= 1, op, "the padding takes away all of the output: its size would be ", attr.in[d],
                        " in spatial dimension ", d, ", from input ", x.shape(), " and weight ", weight.shape());
    }
    check_sizes(op, with_spatial(x.size(0), channels, attr.in, dims));
    return call<ConvTransposeOp>({x, in[1], in[2]}, attr);
  });
}

ConvPadding padding_of(Args& args) {
  const nlohmann::json* const given = args.raw("padding");
  return given && given->is_string() ? ConvPadding(args.text("padding")) : ConvPadding(args.ints("padding", Dims{0}));
}
ConvOptions conv_options(Args& a) {
  return {.stride = a.ints("stride", Dims{1}),
          .padding = padding_of(a),
          .dilation = a.ints("dilation", Dims{1}),
          .groups = a.integer("groups", 1)};
}
ConvTransposeOptions transpose_options(Args& a) {
  return {.stride = a.ints("stride", Dims{1}),
          .padding = a.ints("padding", Dims{0}),
          .output_padding = a.ints("output_padding", Dims{0}),
          .groups = a.integer("groups", 1),
          .dilation = a.ints("dilation", Dims{1})};
}

constexpr OpInfo kTbcInfo{.name = "conv_tbc", .policy = CastPolicy::low, .doc = "conv1d of [time, batch, channels]"};
constexpr OpInfo kConvolutionInfo{
    .name = "convolution", .policy = CastPolicy::low, .doc = "conv1d, 2d or 3d, or their transpose, by the input's dimensions"};

}  // namespace

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options, bool relu) {
  return run_conv("conv1d", 1, x, weight, bias, options, relu);
}
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options, bool relu) {
  return run_conv("conv2d", 2, x, weight, bias, options, relu);
}
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options, bool relu) {
  return run_conv("conv3d", 3, x, weight, bias, options, relu);
}
Tensor folded_conv(int dims, const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options, bool relu) {
  return run_conv(ConvOp::kInfo[dims - 1].name, dims, x, weight, bias, options, relu, /*folded=*/true);
}
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvTransposeOptions& options) {
  return run_transposed("conv_transpose1d", 1, x, weight, bias, options);
}
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvTransposeOptions& options) {
  return run_transposed("conv_transpose2d", 2, x, weight, bias, options);
}
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvTransposeOptions& options) {
  return run_transposed("conv_transpose3d", 3, x, weight, bias, options);
}

Tensor conv_backward_weight(const Tensor& x, const Tensor& grad, const Dims& kernel_size, const ConvOptions& options) {
  const std::string_view op = ConvWeight::info.name;
  const int dims = x.dim() - 2;
  check<ShapeError>(dims >= 1 && dims <= 3 && grad.dim() == x.dim() && grad.size(0) == x.size(0), op,
                    "input and grad must be batches of 3 to 5 dimensions, got ", x.shape(), " and ", grad.shape());
  for (const Tensor& t : {x, grad}) {
    check<DTypeError>(t.is_floating_point(), op, "inputs must be floating, got ", t.dtype());
    check_sizes(op, t.shape());
  }
  check<ValueError>(options.groups >= 1, op, "groups must be at least 1, got ", options.groups);
  check<ShapeError>(x.size(1) % options.groups == 0 && grad.size(1) % options.groups == 0, op,
                    "channels must be multiples of groups = ", options.groups, ", got ", x.shape(), " and ", grad.shape());
  const ConvAttr attr = conv_attr(op, x.shape(), per_dimension(op, "kernel_size", kernel_size, dims, 1), dims, options);
  check<ShapeError>(spatial_of(grad.shape(), dims) == attr.out, op, "grad must be ",
                    with_spatial(x.size(0), grad.size(1), attr.out, dims), " to match input ", x.shape(), ", got ", grad.shape());
  check_size(op, with_spatial(grad.size(1), x.size(1), attr.window.size, dims));
  check_same_dtype(op, {x, grad});
  return call<ConvWeight>({x, grad}, attr);
}

Tensor conv_tbc(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t pad) {
  check<ShapeError>(x.dim() == 3, "conv_tbc", "input must be [time, batch, channels], got ", x.shape());
  check<ShapeError>(weight.dim() == 3 && weight.size(1) == x.size(2), "conv_tbc", "weight must be [taps, ", x.size(2),
                    ", out] to match input ", x.shape(), ", got ", weight.shape());
  check_bias("conv_tbc", bias, weight.size(2), weight);
  check<DTypeError>(x.is_floating_point() && weight.is_floating_point(), "conv_tbc", "inputs must be floating, got ", x.dtype(),
                    " and ", weight.dtype());
  // Casts before permuting, because a parameter's 16-bit copy is found by the parameter itself.
  const auto in = cast_inputs("conv_tbc", x, weight, bias);
  const autocast::Off off;
  return run_conv("conv_tbc", 1, in[0].permute({1, 2, 0}), in[1].permute({2, 1, 0}), in[2], {.padding = pad}, false)
      .permute({2, 0, 1});
}

void add_convolution(OpList& list) {
  using Function = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const ConvOptions&, bool);
  using Transposed = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const ConvTransposeOptions&);
  constexpr Function functions[3] = {conv1d, conv2d, conv3d};
  constexpr Transposed transposed[3] = {conv_transpose1d, conv_transpose2d, conv_transpose3d};
  for (int d = 0; d < 3; ++d) {
    list.add(ConvOp::kInfo[d], [f = functions[d]](Args& a) {
      return f(a.tensor(0), a.tensor(1), a.tensor_or_none(2), conv_options(a), a.flag("relu", false));
    });
    list.add(ConvTransposeOp::kInfo[d],
             [f = transposed[d]](Args& a) { return f(a.tensor(0), a.tensor(1), a.tensor_or_none(2), transpose_options(a)); });
  }
  list.add(ConvWeight::info,
           [](Args& a) { return conv_backward_weight(a.tensor(0), a.tensor(1), a.ints("kernel_size"), conv_options(a)); });
  list.add(kTbcInfo, [](Args& a) { return conv_tbc(a.tensor(0), a.tensor(1), a.tensor(2), a.integer("pad", 0)); });
  list.add(kConvolutionInfo, [](Args& a) {
    const Tensor x = a.tensor(0), weight = a.tensor(1), bias = a.tensor_or_none(2);
    const int dims = x.dim() - 2;
    check<ShapeError>(dims >= 1 && dims <= 3, "convolution", "input must have 3 to 5 dimensions, got ", x.shape());
    a.raw("output_padding");  // accepted because it is in the signature; only the transpose uses it
    return a.flag("transposed") ? run_transposed("convolution", dims, x, weight, bias, transpose_options(a))
                                : run_conv("convolution", dims, x, weight, bias, conv_options(a), false);
  });
}

}  // namespace halfstep
