// SPDX-License-Identifier: Apache-2.0
// Copies windows to columns and back: linear maps that are each other's transposes, and so each other's derivatives.
#include <nlohmann/json.hpp>

#include "framework/ops/core/call.h"
#include "framework/ops/window/convolution.h"
#include "framework/ops/window/windows.h"

namespace halfstep {
namespace {

struct WindowAttr {
  Window window;
  Spatial pixels{1, 1, 1}, positions{1, 1, 1};
};

Attributes describe_window(const WindowAttr& attr) {
  Attributes out = describe(attr.window);
  out.push_back(describe("pixels", attr.pixels, attr.window.dims));
  out.push_back(describe("positions", attr.positions, attr.window.dims));
  return out;
}

int64_t area(const Spatial& s) { return s[0] * s[1] * s[2]; }

struct UnfoldOp {
  using Attr = WindowAttr;
  static constexpr OpInfo info{
      .name = "unfold", .policy = CastPolicy::keep, .doc = "the elements of a window over [H, W] at each position, as columns"};
  static Attributes describe(const Attr& attr) { return describe_window(attr); }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    const Tensor x = in[0].contiguous();
    const Shape shape{x.size(0), x.size(1) * area(attr.window.size), area(attr.positions)};
    const Tensor out = Tensor::empty(shape, {.dtype = x.dtype(), .device = x.device()});
    backend_for(x.device()).unfold(x.view(), attr.window, attr.positions, out.view());
    return out;
  }
  static Tensors backward(const BackwardContext&, const Attr& attr, const Tensors& grads);
};

struct FoldOp {
  using Attr = WindowAttr;
  static constexpr OpInfo info{.name = "fold",
                               .policy = CastPolicy::keep,
                               .doc = "the transpose of unfold: columns back to [H, W], summed where windows overlap"};
  static Attributes describe(const Attr& attr) { return describe_window(attr); }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    const Tensor x = in[0].contiguous();
    const Shape shape = with_spatial(x.size(0), x.size(1) / area(attr.window.size), attr.pixels, attr.window.dims);
    const Tensor out = Tensor::empty(shape, {.dtype = x.dtype(), .device = x.device()});
    backend_for(x.device()).fold(x.view(), attr.window, attr.positions, out.view());
    return out;
  }
  static Tensors backward(const BackwardContext&, const Attr& attr, const Tensors& grads) {
    return {call<UnfoldOp>({grads[0]}, attr)};
  }
};

Tensors UnfoldOp::backward(const BackwardContext&, const Attr& attr, const Tensors& grads) {
  return {call<FoldOp>({grads[0]}, attr)};
}

WindowAttr attr_of(std::string_view op, const Spatial& pixels, const Dims& kernel_size, const WindowOptions& options) {
  WindowAttr attr{.window = window_of(op, 2, per_dimension(op, "kernel_size", kernel_size, 2, 1), options.stride, options.padding,
                                      options.dilation),
                  .pixels = pixels};
  for (size_t d = 0; d < 2; ++d) {
    attr.positions[d] = window_positions(attr.window, d, pixels[d], attr.window.padding[d]);
    check<ShapeError>(attr.positions[d] >= 1, op, "the window must fit: its taps span ",
                      attr.window.dilation[d] * (attr.window.size[d] - 1) + 1, " in spatial dimension ", d, ", where there are ",
                      pixels[d] + 2 * attr.window.padding[d], " with the padding");
  }
  return attr;
}

WindowOptions options_of(Args& a) {
  return {.dilation = a.ints("dilation", Dims{1}), .padding = a.ints("padding", Dims{0}), .stride = a.ints("stride", Dims{1})};
}

}  // namespace

Tensor unfold(const Tensor& input, const Dims& kernel_size, const WindowOptions& options) {
  check<ShapeError>(input.dim() == 3 || input.dim() == 4, "unfold", "input must be [N, C, H, W] or [C, H, W], got ", input.shape());
  check<DTypeError>(input.is_floating_point(), "unfold", "input must be floating, got ", input.dtype());
  return batched(input, 4, [&](const Tensor& x) {
    check<ShapeError>(x.size(1) >= 1 && x.size(2) >= 1 && x.size(3) >= 1, "unfold", "only the batch may be empty, got ",
                      input.shape());
    const WindowAttr attr = attr_of("unfold", spatial_of(x.shape(), 2), kernel_size, options);
    check_size("unfold", {x.size(0), x.size(1), attr.window.size[0], attr.window.size[1], attr.positions[0], attr.positions[1]});
    return call<UnfoldOp>({x}, attr);
  });
}

Tensor fold(const Tensor& input, const Dims& output_size, const Dims& kernel_size, const WindowOptions& options) {
  check<ShapeError>(input.dim() == 2 || input.dim() == 3, "fold", "input must be [N, C * taps, L] or [C * taps, L], got ",
                    input.shape());
  check<DTypeError>(input.is_floating_point(), "fold", "input must be floating, got ", input.dtype());
  const WindowAttr attr = attr_of("fold", per_dimension("fold", "output_size", output_size, 2, 1), kernel_size, options);
  return batched(input, 3, [&](const Tensor& x) {
    const int64_t taps = area(attr.window.size);
    check<ShapeError>(x.size(1) >= 1 && x.size(1) % taps == 0, "fold", "input must be [N, C * ", taps, ", L] for a window of ",
                      attr.window.size[0], " x ", attr.window.size[1], ", got ", input.shape());
    check<ShapeError>(x.size(2) == area(attr.positions), "fold", "input must have ", attr.positions[0], " x ", attr.positions[1],
                      " = ", area(attr.positions), " columns for output_size ", output_size, ", got ", input.shape());
    check_size("fold", with_spatial(x.size(0), x.size(1), attr.pixels, 2));
    return call<FoldOp>({x}, attr);
  });
}

void add_unfold(OpList& list) {
  list.add(UnfoldOp::info, [](Args& a) { return unfold(a.tensor(0), a.ints("kernel_size"), options_of(a)); });
  list.add(FoldOp::info, [](Args& a) { return fold(a.tensor(0), a.ints("output_size"), a.ints("kernel_size"), options_of(a)); });
}

}  // namespace halfstep
