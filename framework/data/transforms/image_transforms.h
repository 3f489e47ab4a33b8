// SPDX-License-Identifier: Apache-2.0
// torchvision's transforms of images [B, C, H, W] float32 on the host, with its names, arguments, defaults and meaning; what is
// random is drawn for each sample by itself. All throw ShapeError for samples that are no images [C, H, W], DTypeError for inputs
// that are not float32 (such as tokens), DeviceError for data on a GPU, and ValueError for arguments out of range.
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

// Where each row and column of the result comes from; -1: from nowhere, it is filled.
struct Moves {
  std::vector<int32_t> rows, columns;
};
enum class PadMode : uint8_t { constant, edge, reflect, symmetric };
PadMode parse_pad_mode(std::string_view name);  // "constant", ...; throws ValueError

// A transform that only chooses where pixels come from.
class MoveTransform : public Transform {
 public:
  Batch apply(const Batch& batch, const Draws& draws) const final;
  const MoveTransform* as_moves() const final { return this; }
  // Adds this transform to those before it for a sample. `random` is null on Device::meta: then only the sizes count.
  virtual void move(Moves& moves, SampleRandom* random) const = 0;
  virtual std::string_view name() const = 0;
  virtual std::optional<float> fill() const { return {}; }  // where it may leave pixels that come from nowhere
};

// The samples of a batch through `steps`, whose places in the list begin at draws.place, and then through `scaling` unless it is
// null, in one pass. Either all in a tensor, or bytes of shape `sample` each. All steps that fill do so with one value.
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

// A window of `size` at a random place of the image, padded before.
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

// The window of `size` in the middle; zeros around a smaller image.
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

// An affine map of the image about its middle, as torchvision.transforms.functional.affine does it to tensors: turned
// clockwise for affine and counter-clockwise for rotate by `angle` degrees, moved, scaled and sheared.
struct AffineMap {
  double angle = 0;
  double translate_x = 0, translate_y = 0;  // pixels
  double scale = 1;
  double shear_x = 0, shear_y = 0;  // degrees
};
// For a pixel of the result: where it comes from, both about the middle: {a, b, c, d, e, f} of (a x + b y + c, d x + e y + f).
std::array<double, 6> inverse_of(const AffineMap& map);

// An image [C, H, W] at `from` through the inverse map, into `to`. Pixels from outside are `fill`. At the edge of the image, where
// a share s of a bilinear pixel lies within, it is s times the sum over what lies within plus (1 - s) fill, as torchvision has it.
struct WarpOptions {
  Sampling interpolation = Sampling::nearest;
  double fill = 0;
};
void warp_image(const float* from, float* to, const Shape& sample, const std::array<double, 6>& inverse,
                const WarpOptions& options);

// Turned by an angle from U(low, high), degrees, counter-clockwise.
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
  std::optional<std::array<double, 2>> translate = {};  // at most these shares of width and height, whole pixels
  std::optional<std::array<double, 2>> scale = {};      // U(low, high)
  std::vector<double> shear = {};                       // degrees: none, x from U(0, 1), or x from U(0, 1) and y from U(2, 3)
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

// To `size`, or, with one number, so that the shorter edge has it. Bilinear, when shrinking with a filter as wide as the step
// unless antialias is off; or nearest.
class Resize : public Transform {
 public:
  explicit Resize(std::vector<int64_t> size, Sampling interpolation = Sampling::bilinear, bool antialias = true);
  Tensor operator()(const Tensor& input) const override;

 private:
  std::vector<int64_t> size_;
  Sampling interpolation_;
  bool antialias_;
};

// With probability p a rectangle of a share of the image from U(scale), height over width log-uniform in `ratio`, is overwritten
// by `value`: one, one for each channel, or, when empty, normal noise.
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

// Pixels in [0, 1], 1 or 3 channels; in place. For parity with torchvision.transforms.functional.adjust_...
void adjust_brightness(float* image, const Shape& sample, double factor);
void adjust_contrast(float* image, const Shape& sample, double factor);
void adjust_saturation(float* image, const Shape& sample, double factor);
void adjust_hue(float* image, const Shape& sample, double factor);

// Brightness, contrast, saturation and hue by factors from U(low, high), in a random order; what is empty is left alone. For
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

// Each sample with the one before it in the batch (the first with the last), lambda x + (1 - lambda) y, and so the targets, which
// become shares of the classes; lambda from Beta(alpha, alpha).
class Mixup : public Transform {
 public:
  explicit Mixup(double alpha = 1);
  bool is_random() const override { return true; }
  Batch apply(const Batch& batch, const Draws& draws) const override;

 private:
  double alpha_;
};

// A rectangle of each sample comes from the one before it in the batch; it covers 1 - lambda of the image, less what is outside,
// and the targets are mixed by what it covers.
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
