// SPDX-License-Identifier: Apache-2.0
// Distances, padding, resampling and pixels.
#pragma once

#include "torch/nn/functional/base.h"

namespace torch::nn::functional {

// ---- others
using CosineSimilarityFuncOptions = CosineSimilarityOptions;
using PairwiseDistanceFuncOptions = PairwiseDistanceOptions;
using PixelShuffleFuncOptions = PixelShuffleOptions;
using PixelUnshuffleFuncOptions = PixelUnshuffleOptions;
using FoldFuncOptions = FoldOptions;
using UnfoldFuncOptions = UnfoldOptions;
inline Tensor cosine_similarity(const Tensor& a, const Tensor& b, const CosineSimilarityFuncOptions& o = {}) {
  return hs::cosine_similarity(a.h(), b.h(), o.dim(), o.eps());
}
inline Tensor pairwise_distance(const Tensor& a, const Tensor& b, const PairwiseDistanceFuncOptions& o = {}) {
  return hs::pairwise_distance(a.h(), b.h(), o.p(), o.eps(), o.keepdim());
}
inline Tensor pdist(const Tensor& x, double p = 2) { return hs::pdist(x.h(), p); }
inline Tensor pixel_shuffle(const Tensor& x, const PixelShuffleFuncOptions& o) {
  return hs::pixel_shuffle(x.h(), o.upscale_factor());
}
inline Tensor pixel_unshuffle(const Tensor& x, const PixelUnshuffleFuncOptions& o) {
  return hs::pixel_unshuffle(x.h(), o.downscale_factor());
}
inline Tensor fold(const Tensor& x, const FoldFuncOptions& o) {
  TORCH_CHECK(x.dim() == 2 || x.dim() == 3, "Input Error: Only unbatched (2D) or batched (3D) input Tensors are supported (got ",
              x.dim(), "D)");
  return hs::fold(x.h(), o.output_size().d(), o.kernel_size().d(),
                  {.dilation = o.dilation().d(), .padding = o.padding().d(), .stride = o.stride().d()});
}
inline Tensor unfold(const Tensor& x, const UnfoldFuncOptions& o) {
  TORCH_CHECK(x.dim() == 4, "Input Error: Only 4D input Tensors are supported (got ", x.dim(), "D)");
  return hs::unfold(x.h(), o.kernel_size().d(),
                    {.dilation = o.dilation().d(), .padding = o.padding().d(), .stride = o.stride().d()});
}
struct PadFuncOptions {
  using mode_t = std::variant<enumtype::kConstant, enumtype::kReflect, enumtype::kReplicate, enumtype::kCircular>;
  PadFuncOptions(std::vector<int64_t> p) : pad_(std::move(p)) {}
  TORCH_ARG(std::vector<int64_t>, pad);
  HS_TORCH_ARG(mode_t, mode, kConstant);
  HS_TORCH_ARG(double, value, 0);
};
inline Tensor pad(const Tensor& x, const PadFuncOptions& o) {
  const char* modes[] = {"constant", "reflect", "replicate", "circular"};
  return hs::pad(x.h(), detail::D(o.pad()), modes[o.mode().index()], o.value());
}
struct InterpolateFuncOptions {
  using mode_t = std::variant<enumtype::kNearest, enumtype::kLinear, enumtype::kBilinear, enumtype::kBicubic, enumtype::kTrilinear,
                              enumtype::kArea, enumtype::kNearestExact>;
  HS_TORCH_ARG(std::optional<std::vector<int64_t>>, size, std::nullopt);
  HS_TORCH_ARG(std::optional<std::vector<double>>, scale_factor, std::nullopt);
  HS_TORCH_ARG(mode_t, mode, kNearest);
  HS_TORCH_ARG(std::optional<bool>, align_corners, std::nullopt);
  HS_TORCH_ARG(std::optional<bool>, recompute_scale_factor, std::nullopt);
  HS_TORCH_ARG(bool, antialias, false);
};
inline Tensor interpolate(const Tensor& x, const InterpolateFuncOptions& o = {}) {
  const char* modes[] = {"nearest", "linear", "bilinear", "bicubic", "trilinear", "area", "nearest-exact"};
  hs::InterpolateOptions i;
  if (o.size()) i.size = detail::D(*o.size());
  if (o.scale_factor()) i.scale_factor = *o.scale_factor();
  i.mode = modes[o.mode().index()];
  i.align_corners = o.align_corners();
  i.recompute_scale_factor = o.recompute_scale_factor().value_or(false);
  i.antialias = o.antialias();
  return hs::interpolate(x.h(), i);
}
struct GridSampleFuncOptions {
  using mode_t = std::variant<enumtype::kBilinear, enumtype::kNearest, enumtype::kBicubic>;
  using padding_mode_t = std::variant<enumtype::kZeros, enumtype::kBorder, enumtype::kReflection>;
  HS_TORCH_ARG(mode_t, mode, kBilinear);
  HS_TORCH_ARG(padding_mode_t, padding_mode, kZeros);
  HS_TORCH_ARG(std::optional<bool>, align_corners, std::nullopt);
};
inline Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleFuncOptions& o = {}) {
  return hs::grid_sample(x.h(), grid.h(),
                         {.mode = hs::SampleMode(o.mode().index()),
                          .padding = hs::SamplePadding(o.padding_mode().index()),
                          .align_corners = o.align_corners().value_or(false)});
}
inline Tensor affine_grid(const Tensor& theta, const IntArrayRef& size, bool align_corners = false) {
  TORCH_CHECK(theta.is_floating_point(), "Expected theta to have floating point type, but got ", theta.dtype());
  const int64_t rows = int64_t(size.size()) - 2;
  TORCH_CHECK(rows == 2 || rows == 3,
              "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got size ", size);
  TORCH_CHECK(theta.dim() == 3 && theta.size(-2) == rows && theta.size(-1) == rows + 1, "Expected a batch of ", rows,
              "D affine matrices of shape Nx", rows, "x", rows + 1, " for size ", size, ". Got ", theta.sizes(), ".");
  for (int64_t extent : size) TORCH_CHECK(extent > 0, "Expected non-zero, positive output size. Got ", size);
  return hs::affine_grid(theta.h(), detail::D(size), align_corners);
}

}  // namespace torch::nn::functional
