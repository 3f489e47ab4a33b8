// SPDX-License-Identifier: Apache-2.0
// Layers that move, repeat or pad elements.
#pragma once

#include <string>
#include <vector>

#include "layers/module/layer.h"

namespace halfstep {

inline Tensor itself(const Tensor& x) { return x; }
using Identity = PlainLayer<"Identity", itself>;

struct FlattenOptions {
  int64_t start_dim = 1, end_dim = -1;
  static const OptionList<FlattenOptions>& list();
  Tensor operator()(const Tensor& x) const { return flatten(x, start_dim, end_dim); }
};
using Flatten = OptionLayer<"Flatten", FlattenOptions>;

// Splits dimension dim into several, of which one may be -1.
class Unflatten : public FunctionLayer {
 public:
  static constexpr const char* kName = "Unflatten";
  static const Arguments<int64_t, std::vector<int64_t>>& arguments();
  Unflatten(Integer dim, const Dims& unflattened_size);
};

// Moves dimension dims[i] to dimension i; dims names all of them, the batch too. torchvision's Permute.
class Permute : public FunctionLayer {
 public:
  static constexpr const char* kName = "Permute";
  static const Arguments<std::vector<int64_t>>& arguments();
  explicit Permute(const Dims& dims);
};

// Rearranges [N, C r^2, H, W] to [N, C, H r, W r]; PixelUnshuffle inverts it.
class PixelShuffle : public FunctionLayer {
 public:
  static constexpr const char* kName = "PixelShuffle";
  static const Arguments<int64_t>& arguments();
  explicit PixelShuffle(Integer upscale_factor);
};
class PixelUnshuffle : public FunctionLayer {
 public:
  static constexpr const char* kName = "PixelUnshuffle";
  static const Arguments<int64_t>& arguments();
  explicit PixelUnshuffle(Integer downscale_factor);
};
// Interleaves the channels of the groups: the first of each group, then the second of each.
class ChannelShuffle : public FunctionLayer {
 public:
  static constexpr const char* kName = "ChannelShuffle";
  static const Arguments<int64_t>& arguments();
  explicit ChannelShuffle(Integer groups);
};

// Takes exactly one of size and scale_factor, one number for all spatial dimensions or one each (framework/ops/window/resample.h).
class Upsample : public FunctionLayer {
 public:
  using Options = InterpolateOptions;
  explicit Upsample(const InterpolateOptions& options) : Upsample("Upsample", options) {}

 protected:
  Upsample(const char* type, const InterpolateOptions& options);
};
// Takes [N, C, H, W]. The bilinear one has align_corners set.
class UpsamplingNearest2d : public Upsample {
 public:
  explicit UpsamplingNearest2d(InterpolateOptions options);
};
class UpsamplingBilinear2d : public Upsample {
 public:
  explicit UpsamplingBilinear2d(InterpolateOptions options);
};

struct FoldOptions {
  ByName by_name = ByName();
  Sizes dilation = 1;
  Sizes padding = 0;
  Sizes stride = 1;
  static const OptionList<FoldOptions>& list();
};
// Maps [N, C, H, W] to [N, C kh kw, L], the elements of the window at each of its L places. Fold maps them back, and adds where
// windows overlap.
class Unfold : public FunctionLayer {
 public:
  using Options = FoldOptions;
  static constexpr const char* kName = "Unfold";
  static const Arguments<Sizes>& arguments();
  static constexpr int kDims = 2;
  explicit Unfold(const Sizes& kernel_size, const FoldOptions& options = {});
};
class Fold : public FunctionLayer {
 public:
  using Options = FoldOptions;
  static constexpr const char* kName = "Fold";
  static const Arguments<Sizes, Sizes>& arguments();
  static constexpr int kDims = 2;
  Fold(const Sizes& output_size, const Sizes& kernel_size, const FoldOptions& options = {});
};

// Pads [N, C, in...] or [C, in...]: one number for all sides, or two for each dimension, (before, after), last dimension first.
// Negative numbers crop. Throws ValueError for another count of numbers.
enum class PadKind : uint8_t { zero, constant, reflect, replicate, circular };
class PadNd : public FunctionLayer {
 public:
  static const Arguments<Sizes>& arguments();

 protected:
  PadNd(const char* type, int dims, const Sizes& padding, PadKind mode, double value = 0);
};
template <ClassName family, PadKind mode, int n>
class PadOf : public PadNd, public OfDims<family, n> {
 public:
  using OfDims<family, n>::kName;
  explicit PadOf(const Sizes& padding) : PadNd(kName, n, padding, mode) {}
};
template <int n>
class ConstantPad : public PadNd, public OfDims<"ConstantPad", n> {
 public:
  static const Arguments<Sizes, double>& arguments() {
    static const auto& list =
        *new Arguments<Sizes, double>({PadNd::arguments().each[0], argument("value", "value of the padding")});
    return list;
  }
  using OfDims<"ConstantPad", n>::kName;
  ConstantPad(const Sizes& padding, double value) : PadNd(kName, n, padding, PadKind::constant, value) {}
};
template <int n>
using ZeroPad = PadOf<"ZeroPad", PadKind::zero, n>;
template <int n>
using ReflectionPad = PadOf<"ReflectionPad", PadKind::reflect, n>;
template <int n>
using ReplicationPad = PadOf<"ReplicationPad", PadKind::replicate, n>;
template <int n>
using CircularPad = PadOf<"CircularPad", PadKind::circular, n>;
using ZeroPad1d = ZeroPad<1>;
using ZeroPad2d = ZeroPad<2>;
using ZeroPad3d = ZeroPad<3>;
using ConstantPad1d = ConstantPad<1>;
using ConstantPad2d = ConstantPad<2>;
using ConstantPad3d = ConstantPad<3>;
using ReflectionPad1d = ReflectionPad<1>;
using ReflectionPad2d = ReflectionPad<2>;
using ReflectionPad3d = ReflectionPad<3>;
using ReplicationPad1d = ReplicationPad<1>;
using ReplicationPad2d = ReplicationPad<2>;
using ReplicationPad3d = ReplicationPad<3>;
using CircularPad1d = CircularPad<1>;
using CircularPad2d = CircularPad<2>;
using CircularPad3d = CircularPad<3>;

}  // namespace halfstep
