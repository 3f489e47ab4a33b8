// SPDX-License-Identifier: Apache-2.0
// Layers that move, repeat or surround elements.
#pragma once

#include <string>

#include "layers/module/layer.h"

namespace halfstep {

class Identity : public FunctionLayer {
 public:
  Identity() : FunctionLayer("Identity()", [](const Tensor& x) { return x; }) {}
};
struct FlattenOptions {
  int64_t start_dim = 1, end_dim = -1;
};
class Flatten : public FunctionLayer {
 public:
  explicit Flatten(const FlattenOptions& options = {});
  explicit Flatten(Whole start_dim, Whole end_dim = -1) : Flatten(FlattenOptions{start_dim, end_dim}) {}
};
// Dimension dim as several, of which one may be -1.
class Unflatten : public FunctionLayer {
 public:
  Unflatten(Whole dim, const Dims& unflattened_size);
};

// torchvision's Permute: dimension dims[i] becomes dimension i; all of them are named, the batch too.
class Permute : public FunctionLayer {
 public:
  explicit Permute(const Dims& dims);
};

class PixelShuffle : public FunctionLayer {
 public:
  explicit PixelShuffle(Whole upscale_factor);
};
class PixelUnshuffle : public FunctionLayer {
 public:
  explicit PixelUnshuffle(Whole downscale_factor);
};
class ChannelShuffle : public FunctionLayer {
 public:
  explicit ChannelShuffle(Whole groups);
};

// Exactly one of size and scale_factor, one number for all spatial dimensions or one each (framework/ops/window/resample.h).
class Upsample : public FunctionLayer {
 public:
  explicit Upsample(const InterpolateOptions& options) : Upsample("Upsample", options) {}

 protected:
  Upsample(const char* type, const InterpolateOptions& options);
};
// Of [N, C, H, W]; the bilinear one with align_corners.
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
};
// [N, C, H, W] -> [N, C kh kw, L]: the elements of a window at each of its L places; and back, summing where windows overlap.
class Unfold : public FunctionLayer {
 public:
  explicit Unfold(const Sizes& kernel_size, const FoldOptions& options = {});
};
class Fold : public FunctionLayer {
 public:
  Fold(const Sizes& output_size, const Sizes& kernel_size, const FoldOptions& options = {});
};

// Padding around [N, C, in...] or [C, in...]: one number for all sides, or two for each dimension, (before, after) from the last
// on. Negative ones cut off. Throws ValueError for another number of them.
class PadNd : public FunctionLayer {
 protected:
  PadNd(const char* type, int dims, const Sizes& padding, const std::string& mode, double value = 0);
};
#define HALFSTEP_PAD(dims)                                                                                                         \
  class ZeroPad##dims##d : public PadNd {                                                                                          \
   public:                                                                                                                         \
    explicit ZeroPad##dims##d(const Sizes& padding) : PadNd("ZeroPad" #dims "d", dims, padding, "zero") {}                         \
  };                                                                                                                               \
  class ConstantPad##dims##d : public PadNd {                                                                                      \
   public:                                                                                                                         \
    ConstantPad##dims##d(const Sizes& padding, double value) : PadNd("ConstantPad" #dims "d", dims, padding, "constant", value) {} \
  };                                                                                                                               \
  class ReflectionPad##dims##d : public PadNd {                                                                                    \
   public:                                                                                                                         \
    explicit ReflectionPad##dims##d(const Sizes& padding) : PadNd("ReflectionPad" #dims "d", dims, padding, "reflect") {}          \
  };                                                                                                                               \
  class ReplicationPad##dims##d : public PadNd {                                                                                   \
   public:                                                                                                                         \
    explicit ReplicationPad##dims##d(const Sizes& padding) : PadNd("ReplicationPad" #dims "d", dims, padding, "replicate") {}      \
  };                                                                                                                               \
  class CircularPad##dims##d : public PadNd {                                                                                      \
   public:                                                                                                                         \
    explicit CircularPad##dims##d(const Sizes& padding) : PadNd("CircularPad" #dims "d", dims, padding, "circular") {}             \
  };
HALFSTEP_PAD(1)  // ZeroPad1d, ConstantPad1d, ReflectionPad1d, ReplicationPad1d, CircularPad1d
HALFSTEP_PAD(2)  // ZeroPad2d, ConstantPad2d, ReflectionPad2d, ReplicationPad2d, CircularPad2d
HALFSTEP_PAD(3)  // ZeroPad3d, ConstantPad3d, ReflectionPad3d, ReplicationPad3d, CircularPad3d
#undef HALFSTEP_PAD

}  // namespace halfstep
