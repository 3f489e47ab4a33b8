// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/window/resample.h"

#include <array>
#include <cmath>
#include <span>
#include <string_view>

#include "framework/ops/core/registry.h"
#include "framework/ops/ops.h"
#include "framework/ops/window/pixel_shuffle.h"
#include "framework/ops/window/pooling.h"
#include "framework/ops/window/sparse_rows.h"
#include "framework/ops/window/windows.h"

namespace halfstep {
namespace {

// An op that interpolates `dims` dimensions by matrices of one kind.
struct Kernel {
  OpInfo info;
  RowKind rows;
  int dims;
};
#define HS_KERNEL(op, text, kind, dims) \
  { {.name = op, .policy = CastPolicy::f32, .doc = text}, RowKind::kind, dims }
constexpr std::array<Kernel, 12> kKernels{{
    HS_KERNEL("upsample_nearest1d", "the element at floor(o in / out)", nearest, 1),
    HS_KERNEL("upsample_nearest2d", "as upsample_nearest1d, over two dimensions", nearest, 2),
    HS_KERNEL("upsample_nearest3d", "as upsample_nearest1d, over three dimensions", nearest, 3),
    HS_KERNEL("_upsample_nearest_exact1d", "the element at floor((o + 0.5) in / out)", nearest_exact, 1),
    HS_KERNEL("_upsample_nearest_exact2d", "as _upsample_nearest_exact1d, over two dimensions", nearest_exact, 2),
    HS_KERNEL("_upsample_nearest_exact3d", "as _upsample_nearest_exact1d, over three dimensions", nearest_exact, 3),
    HS_KERNEL("upsample_linear1d", "between the two nearest elements", linear, 1),
    HS_KERNEL("upsample_bilinear2d", "between the 2x2 nearest elements", linear, 2),
    HS_KERNEL("upsample_trilinear3d", "between the 2x2x2 nearest elements", linear, 3),
    HS_KERNEL("upsample_bicubic2d", "cubic convolution (a = -0.75) of the 4x4 nearest elements", cubic, 2),
    HS_KERNEL("_upsample_bilinear2d_aa", "upsample_bilinear2d; when shrinking, with a filter as wide as the step", linear_antialias,
              2),
    HS_KERNEL("_upsample_bicubic2d_aa", "cubic convolution (a = -0.5); when shrinking, as wide as the step", cubic_antialias, 2),
}};
#undef HS_KERNEL

// Returns whether align_corners has a meaning for this kind.
constexpr bool aligns(RowKind kind) { return kind != RowKind::nearest && kind != RowKind::nearest_exact; }

// Returns the factor for each spatial dimension; 0 if there is none.
std::array<double, 3> factors_of(std::string_view op, const std::vector<double>& given, int dims) {
  std::array<double, 3> factors{};
  if (given.empty()) return factors;
  check<ShapeError>(given.size() == 1 || given.size() == size_t(dims), op, "scale factors must be one number or ", dims, ", got ",
                    given.size());
  for (size_t d = 0; d < size_t(dims); ++d) {
    factors[d] = given[given.size() == 1 ? 0 : d];
    check<ValueError>(factors[d] > 0 && std::isfinite(factors[d]), op, "scale factors must be positive, got ", factors[d]);
  }
  return factors;
}
// Returns floor(in * factor) for each spatial dimension.
Spatial scaled_sizes(std::string_view op, const Tensor& x, const std::array<double, 3>& factors, int dims) {
  Spatial sizes{1, 1, 1};
  for (int d = 0; d < dims; ++d) {
    const double size = std::floor(double(x.size(2 + d)) * factors[size_t(d)]);
    check<ValueError>(size >= 1 && size <= double(kMostWindow), op, "scale factor ", factors[size_t(d)], " makes ", size,
                      " elements of ", x.size(2 + d));
    sizes[size_t(d)] = int64_t(size);
  }
  return sizes;
}

// Throws ShapeError unless x is [N, C, in...] with `dims` spatial dimensions.
void check_resampled(std::string_view op, const Tensor& x, int dims) {
  bool fits = x.dim() == dims + 2;
  for (int d = 1; fits && d < x.dim(); ++d) fits = x.size(d) > 0;
  check<ShapeError>(fits, op, "input must be [N, C, in...] with ", dims, " spatial dimension", dims > 1 ? "s" : "",
                    " and no size of 0 but N's, got ", x.shape());
}

Tensor upsample(const Kernel& kernel, const Tensor& x, const UpsampleSize& size, bool align_corners) {
  const std::string_view op = kernel.info.name;
  check_resampled(op, x, kernel.dims);
  const auto factors = factors_of(op, size.scale_factors, kernel.dims);
  check<ValueError>(!size.output_size.empty() || !size.scale_factors.empty(), op, "needs output_size or scale_factors");
  const Spatial sizes = size.output_size.empty() ? scaled_sizes(op, x, factors, kernel.dims)
                                                 : per_dimension(op, "output_size", size.output_size, kernel.dims, 1);
  std::vector<DimRows> rows;
  for (int d = 0; d < kernel.dims; ++d) {
    rows.push_back({d + 2,
                    {.kind = kernel.rows,
                     .in = x.size(2 + d),
                     .out = sizes[size_t(d)],
                     .scale = factors[size_t(d)],
                     .align_corners = align_corners && aligns(kernel.rows),
                     .wide = x.dtype() == DType::f64}});
  }
  return apply_rows(kernel.info, x, rows);
}

constexpr OpInfo kInterpolateInfo{.name = "interpolate",
                                  .policy = CastPolicy::f32,
                                  .doc = "resizes the spatial dimensions; made of upsample_... and adaptive_avg_pool"};

Option<InterpolateOptions> mode_option() {
  return option("mode", &InterpolateOptions::mode, "how")
      .one_of({"nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear", "area"})
      .in_quotes();
}

// Returns the op for matrices of this kind; null if there is none.
const Kernel* kernel_for(RowKind rows, int dims) {
  for (const Kernel& kernel : kKernels)
    if (kernel.rows == rows && kernel.dims == dims) return &kernel;
  return nullptr;
}

Tensor upsample(RowKind rows, int dims, const Tensor& x, const UpsampleSize& size, bool align_corners) {
  return upsample(*kernel_for(rows, dims), x, size, align_corners);
}

// Returns the kernel for a mode on `dims` spatial dimensions; null for area. Throws for others.
const Kernel* kernel_for(const std::string& mode, int dims, bool antialias) {
  constexpr std::string_view op = "interpolate";
  if (mode == "area") return nullptr;
  if (mode == "nearest") return kernel_for(RowKind::nearest, dims);
  if (mode == "nearest-exact") return kernel_for(RowKind::nearest_exact, dims);
  const int wanted = mode == "linear" ? 1 : mode == "bilinear" || mode == "bicubic" ? 2 : mode == "trilinear" ? 3 : 0;
  check_option(op, mode_option(), mode);
  check<ShapeError>(wanted == dims, op, "mode ", mode, " needs ", wanted, " spatial dimension", wanted > 1 ? "s" : "",
                    ", the input has ", dims);
  if (mode == "bicubic") return kernel_for(antialias ? RowKind::cubic_antialias : RowKind::cubic, 2);
  return kernel_for(antialias ? RowKind::linear_antialias : RowKind::linear, dims);
}

// Reads the sizes or factors: "output_size", "scale_factors", or one number by name for each dimension, as PyTorch's older forms
// have.
UpsampleSize size_of_call(Args& a, int dims) {
  UpsampleSize size{.output_size = a.ints("output_size", Dims()),
                    .scale_factors = a.numbers("scale_factors", std::vector<double>())};
  if (dims == 1) {
    if (const auto factor = a.number_or_none("scales")) size.scale_factors = {*factor};
    return size;
  }
  std::vector<double> each;
  constexpr std::string_view kNames[] = {"scales_d", "scales_h", "scales_w"};
  for (std::string_view name : std::span(kNames).last(size_t(dims))) {
    if (const auto factor = a.number_or_none(name)) each.push_back(*factor);
  }
  check<ValueError>(each.empty() || each.size() == size_t(dims), a.op(), "scales must be given for all dimensions or none");
  if (!each.empty()) size.scale_factors = each;
  return size;
}

}  // namespace

bool OptionMember<Dims>::put(Dims& member, const OptionValue& value) {
  Sizes sizes;
  if (!OptionMember<Sizes>::put(sizes, value)) return false;
  member = sizes.values();
  return true;
}
HALFSTEP_OPTIONS(
    InterpolateOptions, option("size", &O::size, "of the output").at_least(1).if_changed(),
    option("scale_factor", &O::scale_factor, "factor of the input's size, instead of size").above(0).if_changed(), mode_option(),
    option("align_corners", &O::align_corners, "the corner elements keep their places; not for nearest").unseen(),
    option("recompute_scale_factor", &O::recompute_scale_factor, "positions from the sizes, not from scale_factor").unseen(),
    option("antialias", &O::antialias, "when shrinking, use all elements").unseen())

Tensor interpolate(const Tensor& x, const InterpolateOptions& options) {
  constexpr std::string_view op = "interpolate";
  const int dims = x.dim() - 2;
  check<ShapeError>(dims >= 1 && dims <= 3, op, "input must be [N, C, in...] with 1 to 3 spatial dimensions, got ", x.shape());
  check<DTypeError>(x.is_floating_point(), op, "input must be floating, got ", x.dtype());
  const Kernel* kernel = kernel_for(options.mode, dims, options.antialias);
  check<ValueError>(!options.align_corners || (kernel && aligns(kernel->rows)), op,
                    "align_corners is for linear, bilinear, bicubic and trilinear, not for ", options.mode);
  check<ValueError>(!options.antialias || options.mode == "bilinear" || options.mode == "bicubic", op,
                    "antialias is for bilinear and bicubic, not for ", options.mode);
  check<ValueError>(options.size.empty() != options.scale_factor.empty(), op, "needs either size or scale_factor");
  check<ValueError>(!options.recompute_scale_factor || options.size.empty(), op, "recompute_scale_factor needs scale_factor");
  check_resampled(op, x, dims);
  const auto factors = factors_of(op, options.scale_factor, dims);
  const Spatial sizes =
      options.size.empty() ? scaled_sizes(op, x, factors, dims) : per_dimension(op, "size", options.size, dims, 1);
  Dims output_size;
  for (int d = 0; d < dims; ++d) output_size.push_back(sizes[size_t(d)]);
  if (!kernel) {
    Tensors in{x};
    apply_policy(kInterpolateInfo, in);  // like the other modes
    const OutputSize out(output_size.begin(), output_size.end());
    return dims == 1   ? adaptive_avg_pool1d(in[0], out)
           : dims == 2 ? adaptive_avg_pool2d(in[0], out)
                       : adaptive_avg_pool3d(in[0], out);
  }
  return upsample(*kernel, x, {output_size, options.recompute_scale_factor ? ScaleFactors() : options.scale_factor},
                  options.align_corners.value_or(false));
}

Tensor upsample_nearest1d(const Tensor& x, const UpsampleSize& size) { return upsample(RowKind::nearest, 1, x, size, false); }
Tensor upsample_nearest2d(const Tensor& x, const UpsampleSize& size) { return upsample(RowKind::nearest, 2, x, size, false); }
Tensor upsample_nearest3d(const Tensor& x, const UpsampleSize& size) { return upsample(RowKind::nearest, 3, x, size, false); }
Tensor upsample_linear1d(const Tensor& x, const UpsampleSize& size, bool align_corners) {
  return upsample(RowKind::linear, 1, x, size, align_corners);
}
Tensor upsample_bilinear2d(const Tensor& x, const UpsampleSize& size, bool align_corners) {
  return upsample(RowKind::linear, 2, x, size, align_corners);
}
Tensor upsample_trilinear3d(const Tensor& x, const UpsampleSize& size, bool align_corners) {
  return upsample(RowKind::linear, 3, x, size, align_corners);
}
Tensor upsample_bicubic2d(const Tensor& x, const UpsampleSize& size, bool align_corners) {
  return upsample(RowKind::cubic, 2, x, size, align_corners);
}

void add_resample(OpList& list) {
  for (const Kernel& kernel : kKernels) {
    list.add(kernel.info, [&kernel](Args& a) {
      const Tensor x = a.tensor(0);
      const UpsampleSize size = size_of_call(a, kernel.dims);
      return upsample(kernel, x, size, aligns(kernel.rows) && a.flag("align_corners", false));
    });
  }
  list.add(kInterpolateInfo, [](Args& a) {
    const Tensor x = a.tensor(0);
    const std::optional<bool> align = a.has("align_corners") ? std::optional(a.flag("align_corners")) : std::nullopt;
    return interpolate(x, {.size = a.ints("size", Dims()),
                           .scale_factor = a.numbers("scale_factor", std::vector<double>()),
                           .mode = a.text("mode", "nearest"),
                           .align_corners = align,
                           .recompute_scale_factor = a.flag("recompute_scale_factor", false),
                           .antialias = a.flag("antialias", false)});
  });
}

}  // namespace halfstep
