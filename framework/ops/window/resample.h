// SPDX-License-Identifier: Apache-2.0
// Interpolation: resizing the spatial dimensions of [N, C, in...]. Names, defaults and errors' conditions are PyTorch's, as are the
// positions: output o reads at (o + 0.5) in / out - 0.5, with align_corners at o (in - 1) / (out - 1); `nearest` at
// floor(o in / out).
//
//   y = interpolate(x, {.scale_factor = 2, .mode = "bilinear"});
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "framework/base/options.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

// One number for all spatial dimensions, or one each.
struct ScaleFactors : std::vector<double> {
  ScaleFactors() = default;
  template <class T>
  requires std::is_arithmetic_v<T> ScaleFactors(T all) : std::vector<double>{double(all)} {}
  ScaleFactors(std::initializer_list<double> each) : std::vector<double>(each) {}
  ScaleFactors(const std::vector<double>& each) : std::vector<double>(each) {}
};

template <>
struct OptionMember<ScaleFactors> : OptionMember<std::vector<double>> {
  static constexpr int kCount = 3, kFewest = 1;
};
template <>
struct OptionMember<Dims> {
  static constexpr OptionKind kKind = OptionKind::sizes;
  static OptionValue get(const Dims& member) { return member.size() == 1 ? Sizes(member[0]) : Sizes(member); }
  static bool put(Dims& member, const OptionValue& value);
};

// Takes exactly one of size and scale_factor; one entry for all spatial dimensions, or one each.
struct InterpolateOptions {
  Dims size{};
  ScaleFactors scale_factor{};               // sizes become floor(in * scale_factor)
  std::string mode = "nearest";
  std::optional<bool> align_corners = {};    // linear to trilinear, bicubic: the corner elements keep their positions
  bool recompute_scale_factor = false;       // computes positions from the sizes, not from scale_factor
  bool antialias = false;                    // bilinear, bicubic: when shrinking, uses a filter as wide as the step
  static const OptionList<InterpolateOptions>& list();
};
// Resizes x. area: adaptive_avg_pool; nearest-exact: the element at floor((o + 0.5) in / out); bicubic with antialias: a = -0.5.
// The others are the functions below. (autocast: f32)
Tensor interpolate(const Tensor& x, const InterpolateOptions& options);

// The size of an upsample_...: sizes, or scale factors with empty sizes; with both, the factors determine the positions.
struct UpsampleSize {
  Dims output_size{};
  ScaleFactors scale_factors{};
};
Tensor upsample_nearest1d(const Tensor& x, const UpsampleSize& size);
Tensor upsample_nearest2d(const Tensor& x, const UpsampleSize& size);
Tensor upsample_nearest3d(const Tensor& x, const UpsampleSize& size);
Tensor upsample_linear1d(const Tensor& x, const UpsampleSize& size, bool align_corners = false);
Tensor upsample_bilinear2d(const Tensor& x, const UpsampleSize& size, bool align_corners = false);
Tensor upsample_trilinear3d(const Tensor& x, const UpsampleSize& size, bool align_corners = false);
Tensor upsample_bicubic2d(const Tensor& x, const UpsampleSize& size, bool align_corners = false);  // a = -0.75

}  // namespace halfstep
