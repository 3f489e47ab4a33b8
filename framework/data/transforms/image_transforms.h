// SPDX-License-Identifier: Apache-2.0
// torchvision's transforms of images [B, C, H, W] float32 on the host, with its names, arguments, defaults and meaning; random
// numbers are drawn separately for each sample. All throw ShapeError for samples that are not images [C, H, W], DTypeError for
// inputs that are not float32 (such as tokens), DeviceError for data on a GPU, and ValueError for arguments out of range.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/options.h"
#include "framework/data/sets/dataset.h"
#include "framework/data/transforms/transforms.h"

namespace halfstep {

using ImageSize = std::array<int64_t, 2>;                   // height and width
inline constexpr int64_t kMaxImageEdge = int64_t(1) << 24;  // pixels, so that places fit

// The source row and column of each row and column of the result; -1: filled.
struct Moves {
  std::vector<int32_t> rows, columns;
};
enum class PadMode : uint8_t { constant, edge, reflect, symmetric };
HALFSTEP_OPTION_NAMES(PadMode, "constant", "edge", "reflect", "symmetric");

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

// Applies `steps`, whose indices in the list begin at draws.transform_index, and then `scaling` unless it is null, to the samples
// of a batch in one pass. The samples are in one tensor, or bytes of shape `sample` each. All steps that fill must use one value.
struct MoveSource {
  const Batch* batch = nullptr;
  const ByteRows* bytes = nullptr;
  Shape sample;
};
Tensor move_and_scale(const MoveSource& from, std::span<const MoveTransform* const> steps, const ChannelScaling* scaling,
                 const Draws& draws);

struct PadOptions {
  double fill = 0;
  PadMode mode = PadMode::constant;
  static const OptionList<PadOptions>& list();
};

template <ClassName type, class O>
class ListedMove : public ListedTransform<type, O, MoveTransform> {
 public:
  using ListedTransform<type, O, MoveTransform>::ListedTransform;
  std::string_view name() const override { return type.text; }
};

// Crops a window of `size` at a random place of the image, after padding.
struct RandomCropOptions {
  std::array<int64_t, 4> padding{};  // left, top, right, bottom
  bool pad_if_needed = false;
  PadOptions pad = {};
  ImageSize size{};
  static const OptionList<RandomCropOptions>& list();
};
class RandomCrop : public ListedMove<"RandomCrop", RandomCropOptions> {
 public:
  template <std::same_as<Options> O>  // {8, 8} is a size
  explicit RandomCrop(const O& options) : ListedMove(options) {}
  explicit RandomCrop(ImageSize size, const Options& options = {})
      : ListedMove(with_option(options, "size", &Options::size, size)) {}
  bool is_random() const override { return true; }
  void move(Moves& moves, SampleRandom* random) const override;
  std::optional<float> fill() const override { return float(options_.pad.fill); }
};

// Crops the window of `size` in the middle; zeros around a smaller image.
struct CenterCropOptions {
  ByName by_name = ByName();
  ImageSize size{};
  static const OptionList<CenterCropOptions>& list();
};
class CenterCrop : public ListedMove<"CenterCrop", CenterCropOptions> {
 public:
  using ListedMove::ListedMove;
  explicit CenterCrop(ImageSize size) : ListedMove(Options{.size = size}) {}
  void move(Moves& moves, SampleRandom* random) const override;
  std::optional<float> fill() const override { return 0.f; }
};

struct PadEdgesOptions {
  ByName by_name = ByName();
  std::array<int64_t, 4> padding{};  // left, top, right, bottom
  PadOptions pad = {};
  static const OptionList<PadEdgesOptions>& list();
};
class Pad : public ListedMove<"Pad", PadEdgesOptions> {
 public:
  using ListedMove::ListedMove;
  explicit Pad(std::array<int64_t, 4> padding, const PadOptions& options = {})
      : ListedMove(Options{.padding = padding, .pad = options}) {}
  void move(Moves& moves, SampleRandom* random) const override;
  std::optional<float> fill() const override { return float(options_.pad.fill); }
};

struct FlipOptions {
  double p = 0.5;
  static const OptionList<FlipOptions>& list();
};
class RandomHorizontalFlip : public ListedMove<"RandomHorizontalFlip", FlipOptions> {
 public:
  using ListedMove::ListedMove;
  RandomHorizontalFlip() : ListedMove(Options()) {}
  explicit RandomHorizontalFlip(double p) : ListedMove(Options{p}) {}
  bool is_random() const override { return true; }
  void move(Moves& moves, SampleRandom* random) const override;
};

class RandomVerticalFlip : public ListedMove<"RandomVerticalFlip", FlipOptions> {
 public:
  using ListedMove::ListedMove;
  RandomVerticalFlip() : ListedMove(Options()) {}
  explicit RandomVerticalFlip(double p) : ListedMove(Options{p}) {}
  bool is_random() const override { return true; }
  void move(Moves& moves, SampleRandom* random) const override;
};

enum class Sampling : uint8_t { nearest, bilinear };
HALFSTEP_OPTION_NAMES(Sampling, "nearest", "bilinear");

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
  static const OptionList<WarpOptions>& list();
};
void warp_image(const float* from, float* to, const Shape& sample, const std::array<double, 6>& inverse,
                const WarpOptions& options);

// Rotates by an angle from U(low, high), degrees, counter-clockwise.
struct RandomRotationOptions {
  ByName by_name = ByName();
  std::array<double, 2> degrees{};
  WarpOptions warp = {};
  static const OptionList<RandomRotationOptions>& list();
  void(check)(std::string_view name) const;
};
class RandomRotation : public ListedTransform<"RandomRotation", RandomRotationOptions> {
 public:
  using ListedTransform::ListedTransform;
  explicit RandomRotation(std::array<double, 2> degrees, const WarpOptions& options = {})
      : ListedTransform(Options{.degrees = degrees, .warp = options}) {}
  bool is_random() const override { return true; }
  Batch apply(const Batch& batch, const Draws& draws) const override;
};

struct RandomAffineOptions {
  std::array<double, 2> degrees{};                      // U(low, high)
  std::optional<std::array<double, 2>> translate = {};  // largest shares of width and height, in whole pixels
  std::optional<std::array<double, 2>> scale = {};      // U(low, high)
  std::vector<double> shear = {};                       // degrees: empty: none; x from U(0, 1); or also y from U(2, 3)
  WarpOptions warp = {};
  static const OptionList<RandomAffineOptions>& list();
  void(check)(std::string_view name) const;
};
class RandomAffine : public ListedTransform<"RandomAffine", RandomAffineOptions> {
 public:
  using ListedTransform::ListedTransform;
  bool is_random() const override { return true; }
  Batch apply(const Batch& batch, const Draws& draws) const override;
};

// Resizes to `size` or, given one number, so that the shorter edge has it. Bilinear, when shrinking with a filter as wide as the
// step unless antialias is off; or nearest.
struct ResizeOptions {
  ByName by_name = ByName();
  std::vector<int64_t> size = {};
  Sampling interpolation = Sampling::bilinear;
  bool antialias = true;
  static const OptionList<ResizeOptions>& list();
};
class Resize : public ListedTransform<"Resize", ResizeOptions> {
 public:
  using ListedTransform::ListedTransform;
  explicit Resize(std::vector<int64_t> size, Sampling interpolation = Options().interpolation, bool antialias = Options().antialias)
      : ListedTransform(Options{.size = std::move(size), .interpolation = interpolation, .antialias = antialias}) {}
  Tensor operator()(const Tensor& input) const override;
};

// With probability p, overwrites a rectangle by `value`: one value, one per channel or, if empty, normal noise. Its share of the
// image is from U(scale), and its ratio of height to width is log-uniform in `ratio`.
struct RandomErasingOptions {
  double p = 0.5;
  std::array<double, 2> scale{0.02, 0.33}, ratio{0.3, 3.3};
  std::vector<double> value{0.0};
  static const OptionList<RandomErasingOptions>& list();
  void(check)(std::string_view name) const;
};
class RandomErasing : public ListedTransform<"RandomErasing", RandomErasingOptions> {
 public:
  using ListedTransform::ListedTransform;
  RandomErasing() : ListedTransform(Options()) {}
  bool is_random() const override { return true; }
  Batch apply(const Batch& batch, const Draws& draws) const override;
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
  static const OptionList<ColorJitterOptions>& list();
  void(check)(std::string_view name) const;
};
class ColorJitter : public ListedTransform<"ColorJitter", ColorJitterOptions> {
 public:
  using ListedTransform::ListedTransform;
  bool is_random() const override { return true; }
  Batch apply(const Batch& batch, const Draws& draws) const override;
};

struct MixOptions {
  double alpha = 1;
  static const OptionList<MixOptions>& list();
};
// Mixes each sample with the one before it in the batch (the first with the last), lambda x + (1 - lambda) y, and likewise the
// targets, which become shares of the classes; lambda is from Beta(alpha, alpha).
class Mixup : public ListedTransform<"Mixup", MixOptions> {
 public:
  using ListedTransform::ListedTransform;
  Mixup() : ListedTransform(Options()) {}
  explicit Mixup(double alpha) : ListedTransform(Options{alpha}) {}
  bool is_random() const override { return true; }
  Batch apply(const Batch& batch, const Draws& draws) const override;
};

// Replaces a rectangle of each sample by that of the one before it in the batch. It covers 1 - lambda of the image, less any part
// outside, and the targets are mixed by the covered share.
class CutMix : public ListedTransform<"CutMix", MixOptions> {
 public:
  using ListedTransform::ListedTransform;
  CutMix() : ListedTransform(Options()) {}
  explicit CutMix(double alpha) : ListedTransform(Options{alpha}) {}
  bool is_random() const override { return true; }
  Batch apply(const Batch& batch, const Draws& draws) const override;
};

// Throws as above unless `batch` holds images.
void check_images(std::string_view transform, const Tensor& input);

// Accepts one number d for [middle - d, middle + d], whose lower end is at least `least`.
template <class O>
Option<O> about(Option<O> o, double middle, double least = -std::numeric_limits<double>::infinity()) {
  o.fewest = 1, o.count = std::max(o.count, 2);
  o.put = [put = o.put, middle, least](O& to, const OptionValue& value) {
    const auto* const all = std::get_if<std::vector<double>>(&value);
    const auto* const one = all && all->size() == 1 ? all->data() : std::get_if<double>(&value);
    return put(to, one ? std::vector{std::max(least, middle - *one), middle + *one} : value);
  };
  return o;
}

}  // namespace halfstep
