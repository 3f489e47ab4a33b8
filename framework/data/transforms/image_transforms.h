// SPDX-License-Identifier: Apache-2.0
// torchvision's transforms of images [B, C, H, W] float32 on the host, with its names, arguments, defaults and meaning; random
// numbers are drawn separately for each sample. All throw ShapeError for samples that are not images [C, H, W], DTypeError for
// inputs that are not float32 (such as tokens), DeviceError for data on a GPU, and ValueError for arguments out of range.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/data/sets/dataset.h"
#include "framework/data/transforms/transforms.h"

namespace halfstep {

using ImageSize = std::array<int64_t, 2>;  // height and width

// The source row and column of each row and column of the result; -1: filled.
struct Moves {
  std::vector<int32_t> rows, columns;
};
enum class PadMode : uint8_t { constant, edge, reflect, symmetric };
PadMode parse_pad_mode(std::string_view name);  // "constant", ...; throws ValueError

// A transform that only chooses the source of each pixel.
class MoveTransform : public Transform {
 public:
  Batch apply(const Batch& batch, const Draws& draws) const final;
  const MoveTransform* as_moves() const final { return this; }
  // Composes this transform with the earlier ones for a sample. `random` is null on Device::meta, where only the sizes count.
  virtual void move(Moves& moves, SampleRandom* random) const = 0;
  virtual std::string_view name() const = 0;
  virtual std::optional<float> fill() const { return {}; }  // fill value, if it may leave pixels without a source
};

// Applies `steps`, whose indices in the list begin at draws.place, and then `scaling` unless it is null, to the samples of a batch
// in one pass. The samples are in one tensor, or bytes of shape `sample` each. All steps that fill must use one value.
struct MoveSource {
  const Batch* batch = nullptr;
  const ByteRows* bytes = nullptr;
  Shape sample;
};
Tensor run_moves(const MoveSource& from, std::span<const MoveTransform* const> steps, const ChannelScaling* scaling,
                 const Draws& draws);

struct PadOptions {
  double fill = 0;
  PadMode mode = PadMode::constant;
};

// Crops a window of `size` at a random place of the image, after padding.
struct RandomCropOptions {
  std::array<int64_t, 4> padding{};  // left, top, right, bottom
  bool pad_if_needed = false;
  PadOptions pad = {};
};
class RandomCrop : public MoveTransform {
 public:
  explicit RandomCrop(ImageSize size, const RandomCropOptions& options = {});
  bool is_random() const override { return true; }
  void move(Moves& moves, SampleRandom* random) const override;
  std::string_view name() const override { return "RandomCrop"; }
  std::optional<float> fill() const override { return float(options_.pad.fill); }

 private:
  ImageSize size_;
  RandomCropOptions options_;
};

// Crops the window of `size` in the middle; zeros around a smaller image.
class CenterCrop : public MoveTransform {
 public:
  explicit CenterCrop(ImageSize size);
  void move(Moves& moves, SampleRandom* random) const override;
  std::string_view name() const override { return "CenterCrop"; }
  std::optional<float> fill() const override { return 0.f; }

 private:
  ImageSize size_;
};

class Pad : public MoveTransform {
 public:
  explicit Pad(std::array<int64_t, 4> padding, const PadOptions& options = {});  // left, top, right, bottom
  void move(Moves& moves, SampleRandom* random) const override;
  std::string_view name() const override { return "Pad"; }
  std::optional<float> fill() const override { return float(options_.fill); }

 private:
  std::array<int64_t, 4> padding_;
  PadOptions options_;
};

class RandomHorizontalFlip : public MoveTransform {
 public:
  explicit RandomHorizontalFlip(double p = 0.5);
  bool is_random() const override { return true; }
  void move(Moves& moves, SampleRandom* random) const override;
  std::string_view name() const override { return "RandomHorizontalFlip"; }

 private:
  double p_;
};

class RandomVerticalFlip : public MoveTransform {
 public:
  explicit RandomVerticalFlip(double p = 0.5);
  bool is_random() const override { return true; }
  void move(Moves& moves, SampleRandom* random) const override;
  std::string_view name() const override { return "RandomVerticalFlip"; }

 private:
  double p_;
};

enum class Sampling : uint8_t { nearest, bilinear };

// An affine map of the image about its middle, like torchvision.transforms.functional.affine for tensors: rotated by `angle`
// degrees (clockwise for affine, counter-clockwise for rotate), moved, scaled and sheared.
struct AffineMap {
  double angle = 0;
  double translate_x = 0, translate_y = 0;  // pixels
  double scale = 1;
  double shear_x = 0, shear_y = 0;  // degrees
};
// Maps a pixel of the result to its source, both relative to the middle: {a, b, c, d, e, f} of (a x + b y + c, d x + e y + f).
std::array<double, 6> inverse_of(const AffineMap& map);

// Warps an image [C, H, W] from `from` to `to` through the inverse map. Pixels from outside are `fill`. At the image's edge, where
// a share s of a bilinear pixel is inside, the result is s times the sum over the inside plus (1 - s) fill, as in torchvision.
struct WarpOptions {
  Sampling interpolation = Sampling::nearest;
  double fill = 0;
};
void warp_image(const float* from, float* to, const Shape& sample, const std::array<double, 6>& inverse,
                const WarpOptions& options);

// Rotates by an angle from U(low, high), degrees, counter-clockwise.
class RandomRotation : public Transform {
 public:
  explicit RandomRotation(std::array<double, 2> degrees, const WarpOptions& options = {});
  bool is_random() const override { return true; }
  Batch apply(const Batch& batch, const Draws& draws) const override;

 private:
  std::array<double, 2> degrees_;
  WarpOptions options_;
};

struct RandomAffineOptions {
  std::array<double, 2> degrees{};                      // U(low, high)
  std::optional<std::array<double, 2>> translate = {};  // largest shares of width and height, in whole pixels
  std::optional<std::array<double, 2>> scale = {};      // U(low, high)
  std::vector<double> shear = {};                       // degrees: empty: none; x from U(0, 1); or also y from U(2, 3)
  WarpOptions warp = {};
};
class RandomAffine : public Transform {
 public:
  explicit RandomAffine(RandomAffineOptions options);
  bool is_random() const override { return true; }
  Batch apply(const Batch& batch, const Draws& draws) const override;

 private:
  RandomAffineOptions options_;
};

// Resizes to `size` or, given one number, so that the shorter edge has it. Bilinear, when shrinking with a filter as wide as the
// step unless antialias is off; or nearest.
class Resize : public Transform {
 public:
  explicit Resize(std::vector<int64_t> size, Sampling interpolation = Sampling::bilinear, bool antialias = true);
  Tensor operator()(const Tensor& input) const override;

 private:
  std::vector<int64_t> size_;
  Sampling interpolation_;
  bool antialias_;
};

// With probability p, overwrites a rectangle by `value`: one value, one per channel or, if empty, normal noise. Its share of the
// image is from U(scale), and its ratio of height to width is log-uniform in `ratio`.
struct RandomErasingOptions {
  double p = 0.5;
  std::array<double, 2> scale{0.02, 0.33}, ratio{0.3, 3.3};
  std::vector<double> value{0.0};
};
class RandomErasing : public Transform {
 public:
  explicit RandomErasing(RandomErasingOptions options = {});
  bool is_random() const override { return true; }
  Batch apply(const Batch& batch, const Draws& draws) const override;

 private:
  RandomErasingOptions options_;
};

// Change pixels in [0, 1] with 1 or 3 channels in place, like torchvision.transforms.functional.adjust_...
void adjust_brightness(float* image, const Shape& sample, double factor);
void adjust_contrast(float* image, const Shape& sample, double factor);
void adjust_saturation(float* image, const Shape& sample, double factor);
void adjust_hue(float* image, const Shape& sample, double factor);

// Changes brightness, contrast, saturation and hue by factors from U(low, high), in a random order; empty ones are skipped. For
// pixels in [0, 1], so before a Normalize; images of 1 or 3 channels.
struct ColorJitterOptions {
  using Range = std::optional<std::array<double, 2>>;
  Range brightness = {}, contrast = {}, saturation = {}, hue = {};
};
class ColorJitter : public Transform {
 public:
  explicit ColorJitter(const ColorJitterOptions& options);
  bool is_random() const override { return true; }
  Batch apply(const Batch& batch, const Draws& draws) const override;

 private:
  std::array<ColorJitterOptions::Range, 4> ranges_;
};

// Mixes each sample with the one before it in the batch (the first with the last), lambda x + (1 - lambda) y, and likewise the
// targets, which become shares of the classes; lambda is from Beta(alpha, alpha).
class Mixup : public Transform {
 public:
  explicit Mixup(double alpha = 1);
  bool is_random() const override { return true; }
  Batch apply(const Batch& batch, const Draws& draws) const override;

 private:
  double alpha_;
};

// Replaces a rectangle of each sample by that of the one before it in the batch. It covers 1 - lambda of the image, less any part
// outside, and the targets are mixed by the covered share.
class CutMix : public Transform {
 public:
  explicit CutMix(double alpha = 1);
  bool is_random() const override { return true; }
  Batch apply(const Batch& batch, const Draws& draws) const override;

 private:
  double alpha_;
};

// Throws as above unless `batch` holds images.
void check_images(std::string_view transform, const Tensor& input);

}  // namespace halfstep
