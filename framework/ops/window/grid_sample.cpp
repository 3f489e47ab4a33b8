// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/window/grid_sample.h"

#include <array>
#include <nlohmann/json.hpp>

#include "framework/ops/core/composite.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/ops.h"
#include "framework/ops/window/windows.h"

namespace halfstep {
namespace {

// ---- in differentiable ops, for second derivatives: the formulas of framework/backend/grid_taps.h

// One element that is read along a dimension for each point, [N, points]: its index (i64) and weight; both are 0 outside.
struct Tap {
  Tensor index, weight;
};

// Moves positions outside the image into it, by reflection or to the border; with zeros leaves them.
Tensor padded(const SampleArgs& args, Tensor position, int64_t size) {
  if (args.padding == SamplePadding::zeros) return position;
  if (args.padding == SamplePadding::reflection) {
    const double low = args.align_corners ? 0 : -0.5, span = args.align_corners ? double(size - 1) : double(size);
    if (span == 0) return position * 0.0;
    const Tensor distance = abs(position - low), flips = floor(distance.detach() / span), extra = distance - flips * span;
    position = where(eq(fmod(flips, 2.0), 0.0), extra, span - extra) + low;
  }
  return clamp(position, 0.0, double(size - 1));
}

// Returns the element at integer positions, with weight 0 for those outside.
Tap tap_at(const Tensor& place, const Tensor& weight, int64_t size) {
  const Tensor integer_place = place.detach();
  const Tensor inside = logical_and(ge(integer_place, 0.0), le(integer_place, double(size - 1)));
  return {where(inside, integer_place, 0.0).to(DType::i64), where(inside, weight, 0.0)};
}

// Returns the elements that are read along a dimension of `size`, for coordinates g in [-1, 1].
std::vector<Tap> taps_along(const SampleArgs& args, const Tensor& g, int64_t size) {
  const Tensor at = args.align_corners ? (g + 1.0) / 2.0 * double(size - 1) : ((g + 1.0) * double(size) - 1.0) / 2.0;
  if (args.mode == SampleMode::bicubic) {
    constexpr double A = -0.75;  // parameter of cubic convolution
    const Tensor base = floor(at.detach()), part = at - base;
    std::vector<Tap> taps;
    for (int k = 0; k < 4; ++k) {
      const Tensor x = k < 2 ? part + double(1 - k) : double(k - 1) - part;
      const Tensor weight = k == 1 || k == 2 ? ((A + 2) * x - (A + 3)) * x * x + 1.0 : ((A * x - 5 * A) * x + 8 * A) * x - 4 * A;
      taps.push_back(tap_at(padded(args, base + double(k - 1), size), weight, size));
    }
    return taps;
  }
  const Tensor position = padded(args, at, size);
  if (args.mode == SampleMode::nearest) return {tap_at(round(position.detach()), ones_like(position), size)};
  const Tensor base = floor(position.detach()), part = position - base;
  return {tap_at(base, 1.0 - part, size), tap_at(base + 1.0, part, size)};
}

// Computes the op: the sum of weight x[index] over the products of the dimensions' elements.
Tensor sample_with_ops(const SampleArgs& args, const Tensor& given_x, const Tensor& given_grid) {
  const bool half = is_half(given_x.dtype());
  const Tensor x = half ? given_x.to(DType::f32) : given_x, grid = half ? given_grid.to(DType::f32) : given_grid;
  const int dims = x.dim() - 2;
  const int64_t n = x.size(0), c = x.size(1);
  Shape out{n, c};
  int64_t points = 1, plane = 1;
  for (int d = 0; d < dims; ++d) {
    out.push_back(grid.size(1 + d));
    points *= grid.size(1 + d);
    plane *= x.size(2 + d);
  }
  // Products of the taps of all dimensions, z first, so that an index grows by whole rows.
  std::vector<Tap> taps;
  for (int d = dims - 1; d >= 0; --d) {
    const int64_t size = x.size(-1 - d);
    const std::vector<Tap> along = taps_along(args, grid.select(-1, d).reshape({n, points}), size);
    std::vector<Tap> next;
    for (const Tap& t : along) {
      if (taps.empty()) next.push_back(t);
      for (const Tap& outer : taps) next.push_back({outer.index * size + t.index, outer.weight * t.weight});
    }
    taps = next;
  }
  const Tensor planes = x.reshape({n, c, plane});
  Tensor sum;
  for (const Tap& t : taps) {
    const Tensor term = gather(planes, 2, t.index.unsqueeze(1).expand({n, c, points})) * t.weight.unsqueeze(1);
    sum = sum.defined() ? sum + term : term;
  }
  if (args.mode != SampleMode::nearest) {  // adds NaN to points with a NaN, and to the gradients of their coordinates
    const Tensor bad = any(isnan(grid.detach()), {-1}, true);
    const Tensor factor = masked_fill(zeros(bad.shape(), {.dtype = grid.dtype(), .device = grid.device()}), bad, NAN);
    sum = sum + (where(bad, grid, 0.0) * factor).sum({-1}).reshape({n, 1, points});
  }
  sum = sum.reshape(out);
  return half ? sum.to(given_x.dtype()) : sum;
}

// ---- the op

Attributes describe_sampling(const SampleArgs& args) {
  constexpr const char* modes[] = {"bilinear", "nearest", "bicubic"};
  constexpr const char* paddings[] = {"zeros", "border", "reflection"};
  return {
      {"mode", modes[size_t(args.mode)]}, {"padding_mode", paddings[size_t(args.padding)]}, {"align_corners", args.align_corners}};
}

struct GridSample {
  using Attr = SampleArgs;
  static constexpr OpInfo info{.name = "grid_sample", .policy = CastPolicy::promote, .doc = "x at the points of a grid in [-1, 1]"};

  enum Saved : size_t { kX, kGrid };
  static void check(const Attr&, const Tensors& in) { check_same_dtype("grid_sample", in); }
  static Attributes describe(const Attr& attr) { return describe_sampling(attr); }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensor x = in[0].contiguous(), grid = in[1].contiguous();
    Shape shape = grid.shape();
    shape.erase(shape.size() - 1);
    shape.insert(1, x.size(1));
    const Tensor out = Tensor::empty(shape, {.dtype = x.dtype(), .device = x.device()});
    backend_for(x.device()).grid_sample(attr, x.view(), grid.view(), out.view());
    ctx.save(in[0]);
    ctx.save(in[1]);
    return out;
  }
  // Returns no gradient for nearest, because the result does not change with the grid.
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor x = ctx.saved(kX).contiguous(), grid = ctx.saved(kGrid).contiguous(), g = grads[0].to(x.dtype()).contiguous();
    Tensors result(2);
    if (ctx.needs(0)) result[0] = Tensor::empty(x.shape(), {.dtype = ctx.grad_dtype(0), .device = x.device()});
    if (ctx.needs(1) && attr.mode != SampleMode::nearest)
      result[1] = Tensor::empty(grid.shape(), {.dtype = ctx.grad_dtype(1), .device = x.device()});
    const auto view = [](const Tensor& t) { return t.defined() ? t.view() : TensorView{}; };
    backend_for(x.device()).grid_sample_backward(attr, g.view(), x.view(), grid.view(), view(result[0]), view(result[1]));
    return result;
  }
  static Tensor composite(const Attr& attr, const Tensors& in) { return sample_with_ops(attr, in[0], in[1]); }
};

constexpr OpInfo kAffineInfo{.name = "affine_grid", .doc = "the grid whose point p is theta [p, 1]; made of products and sums"};

// Reads a name, or PyTorch's number for it.
int choice(Args& a, std::string_view name, std::string_view number, const std::array<std::string_view, 3>& names) {
  if (a.has(number)) {
    const int64_t i = a.integer(number);
    check<ValueError>(i >= 0 && i < 3, a.op(), "'", number, "' must be 0, 1 or 2, got ", i);
    return int(i);
  }
  const std::string text = a.text(name, std::string(names[0]));
  for (int i = 0; i < 3; ++i)
    if (text == names[size_t(i)]) return i;
  fail<ValueError>(a.op(), "'", name, "' must be ", names[0], ", ", names[1], " or ", names[2], ", got '", text, "'");
}

}  // namespace

Tensor grid_sample(const Tensor& x, const Tensor& grid, const SampleArgs& options) {
  constexpr std::string_view op = "grid_sample";
  check<DTypeError>(x.is_floating_point() && grid.is_floating_point(), op, "input and grid must be floating, got ", x.dtype(),
                    " and ", grid.dtype());
  const int dims = x.dim() - 2;
  bool fits = (dims == 2 || dims == 3) && grid.dim() == x.dim() && grid.size(-1) == dims && grid.size(0) == x.size(0);
  check<ShapeError>(fits, op,
                    "needs x [N, C, H, W] with grid [N, H', W', 2], or x [N, C, D, H, W] with grid [N, D', H', W', 3], got ",
                    x.shape(), " and ", grid.shape());
  int64_t plane = 1;
  for (int d = 2; d < x.dim(); ++d) {
    fits = fits && x.size(d) > 0;
    plane *= x.size(d);
  }
  check<ShapeError>(fits && plane < (int64_t(1) << 31), op, "planes of x must have 1 to 2^31 - 1 elements, got ", x.shape());
  if (options.mode == SampleMode::bicubic && dims == 3) {  // kernels support it for planes only
    return composite(GridSample::info, {x, grid}, [&](const Tensors& in) {
      check_same_dtype(op, in);
      return sample_with_ops(options, in[0], in[1]);
    });
  }
  return call<GridSample>({x, grid}, options);
}

Tensor affine_grid(const Tensor& theta, const Shape& size, bool align_corners) {
  constexpr std::string_view op = "affine_grid";
  check<DTypeError>(theta.is_floating_point(), op, "theta must be floating, got ", theta.dtype());
  const int dims = size.size() - 2;
  check<ShapeError>((dims == 2 || dims == 3) && theta.shape() == Shape({size[0], dims, dims + 1}), op,
                    "needs theta [N, 2, 3] with size [N, C, H, W], or theta [N, 3, 4] with size [N, C, D, H, W], got ",
                    theta.shape(), " and ", size);
  for (int64_t s : size) check<ValueError>(s > 0 && s <= kMostWindow, op, "sizes must be positive, got ", size);
  Shape out{size[0]};
  for (int d = 0; d < dims; ++d) out.push_back(size[2 + d]);
  out.push_back(dims);
  check_size(op, out);
  return composite(kAffineInfo, {theta}, [&](const Tensors& in) {
    const Tensor& t = in[0];
    // One broadcast term for each dimension, and the shift.
    Shape each = Dims::filled(out.size(), 1);
    each[0] = size[0];
    each[out.size() - 1] = dims;
    Tensor sum = t.select(2, dims).reshape(each);
    for (int d = 0; d < dims; ++d) {
      const int64_t n = size[size.size() - 1 - d];
      Tensor line = arange(0, double(n), 1, {.dtype = t.dtype(), .device = t.device()});
      if (n == 1)
        line = line * 0.0;
      else
        line = align_corners ? line * (2.0 / double(n - 1)) - 1.0 : (line * 2.0 + double(1 - n)) / double(n);
      Shape along = Dims::filled(out.size(), 1);
      along[out.size() - 2 - d] = n;
      sum = sum + t.select(2, d).reshape(each) * line.reshape(along);
    }
    return sum;
  });
}

void add_grid_sample(OpList& list) {
  list.add(GridSample::info, [](Args& a) {
    const Tensor x = a.tensor(0), grid = a.tensor(1);
    const bool align = a.has("align_corners") && a.flag("align_corners");
    const int mode = choice(a, "mode", "interpolation_mode", {"bilinear", "nearest", "bicubic"});
    const nlohmann::json* padding = a.raw("padding_mode");
    const std::string_view key = padding && padding->is_number() ? "padding_mode" : "";
    return grid_sample(x, grid,
                       {SampleMode(mode), SamplePadding(choice(a, "padding_mode", key, {"zeros", "border", "reflection"})), align});
  });
  for (const char* name : {"grid_sampler", "grid_sampler_2d", "grid_sampler_3d", "_grid_sampler_2d_cpu_fallback"})
    list.alias(name, "grid_sample");
  list.add(kAffineInfo, [](Args& a) {
    const Tensor theta = a.tensor(0);
    return affine_grid(theta, a.ints("size"), a.has("align_corners") && a.flag("align_corners"));
  });
}

}  // namespace halfstep
