// SPDX-License-Identifier: Apache-2.0
// Transforms that compute pixels from several others: rotation, affine maps, resizing; and erasing.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "framework/base/check.h"
#include "framework/data/transforms/image_transforms.h"
#include "framework/ops/window/resample.h"

namespace halfstep {
namespace {

double radians(double degrees) { return degrees * std::numbers::pi / 180; }

void check_range(std::string_view name, const char* what, const std::array<double, 2>& range, double least) {
  check<ValueError>(least <= range[0] && range[0] <= range[1] && std::isfinite(range[1]), name, what,
                    " must go from a smaller to a larger number", least > -HUGE_VAL ? joined(", from ", least, " on") : "",
                    ", got [", range[0], ", ", range[1], ']');
}

template <class O>
Option<O> degrees_of() {
  return about(option("degrees", &O::degrees, "from [from, to], or [-d, d] for one number d"), 0).required();
}

// Makes a new batch of images, each by make(sample, its random numbers, from, to).
template <class Make>
Batch map_images(std::string_view name, const Batch& batch, const Draws& draws, Make make) {
  check_images(name, batch.input);
  if (batch.input.device().is_meta()) return batch;
  const Tensor input = batch.input.contiguous(), out = Tensor::empty(input.shape(), {.device = Device::cpu});
  const Shape sample = without_batch(input.shape());
  const int64_t size = numel(sample);
  for (int64_t b = 0; b < input.size(0); ++b) {
    SampleRandom random(draws, size_t(b));
    make(sample, random, input.data_ptr<float>() + b * size, out.data_ptr<float>() + b * size);
  }
  return {out, batch.target};
}

}  // namespace

// Inverts scale M: the inverse of M = [a b; c d], a rotation times shears as in torchvision, is [d -b; -c a], since its
// determinant is 1.
std::array<double, 6> inverse_of(const AffineMap& m) {
  const double turn = radians(m.angle), sx = radians(m.shear_x), sy = radians(m.shear_y);
  const double a = std::cos(turn - sy) / std::cos(sy);
  const double b = -std::cos(turn - sy) * std::tan(sx) / std::cos(sy) - std::sin(turn);
  const double c = std::sin(turn - sy) / std::cos(sy);
  const double d = -std::sin(turn - sy) * std::tan(sx) / std::cos(sy) + std::cos(turn);
  std::array<double, 6> out{d / m.scale, -b / m.scale, 0, -c / m.scale, a / m.scale, 0};
  out[2] = -out[0] * m.translate_x - out[1] * m.translate_y;
  out[5] = -out[3] * m.translate_x - out[4] * m.translate_y;
  return out;
}

void warp_image(const float* from, float* to, const Shape& sample, const std::array<double, 6>& inverse,
                const WarpOptions& options) {
  const int64_t channels = sample[0], height = sample[1], width = sample[2], plane = height * width;
  const double middle_x = double(width - 1) / 2, middle_y = double(height - 1) / 2;
  const float fill = float(options.fill);
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      const double u = double(x) - middle_x, v = double(y) - middle_y;
      const double at_x = inverse[0] * u + inverse[1] * v + inverse[2] + middle_x;
      const double at_y = inverse[3] * u + inverse[4] * v + inverse[5] + middle_y;
      float* const pixel = to + y * width + x;
      // Beyond these bounds everything is outside, and far outside the position would not fit an integer.
      const bool near = at_x > -2 && at_x < double(width) + 1 && at_y > -2 && at_y < double(height) + 1;
      if (!near) {
        for (int64_t c = 0; c < channels; ++c) pixel[c * plane] = fill;
        continue;
      }
      const auto is_there = [&](int64_t row, int64_t column) { return row >= 0 && row < height && column >= 0 && column < width; };
      if (options.interpolation == Sampling::nearest) {
        const auto row = int64_t(std::nearbyint(at_y)), column = int64_t(std::nearbyint(at_x));
        const bool inside = is_there(row, column);
        for (int64_t c = 0; c < channels; ++c) pixel[c * plane] = inside ? from[c * plane + row * width + column] : fill;
        continue;
      }
      const auto row = int64_t(std::floor(at_y)), column = int64_t(std::floor(at_x));
      const double right = at_x - double(column), down = at_y - double(row);
      std::array<float, 4> weights{};
      std::array<int64_t, 4> places{};
      float covered = 0;
      for (size_t i = 0; i < 4; ++i) {
        const int64_t r = row + int64_t(i / 2), c = column + int64_t(i % 2);
        if (!is_there(r, c)) continue;
        weights[i] = float((i / 2 ? down : 1 - down) * (i % 2 ? right : 1 - right));
        places[i] = r * width + c;
        covered += weights[i];
      }
      for (int64_t c = 0; c < channels; ++c) {
        float sum = 0;
        for (size_t i = 0; i < 4; ++i) sum += weights[i] * from[c * plane + places[i]];
        pixel[c * plane] = sum * covered + fill * (1 - covered);
      }
    }
  }
}

HALFSTEP_OPTIONS(WarpOptions, option("interpolation", &O::interpolation, "interpolation between pixels"),
                 option("fill", &O::fill, "of pixels from outside"))

HALFSTEP_OPTIONS(RandomRotationOptions, OptionList<O>{degrees_of<O>()} + within(&O::warp))
void(RandomRotationOptions::check)(std::string_view name) const { check_range(name, "degrees", degrees, -HUGE_VAL); }

Batch RandomRotation::apply(const Batch& batch, const Draws& draws) const {
  return map_images("RandomRotation", batch, draws, [&](const Shape& sample, SampleRandom& random, const float* from, float* to) {
    warp_image(from, to, sample, inverse_of({.angle = -random.uniform(options_.degrees[0], options_.degrees[1])}), options_.warp);
  });
}

HALFSTEP_OPTIONS(RandomAffineOptions,
                 OptionList<O>{degrees_of<O>(),
                               option("translate", &O::translate, "at most these shares of width and height").at_least(0),
                               option("scale", &O::scale, "a factor from [from, to]").at_least(0),
                               about(option("shear", &O::shear,
                                            "degrees: along x from [from, to], or [-d, d] for one number d; "
                                            "then along y")
                                         .items(1, 4),
                                     0)} +
                     within(&O::warp))
void(RandomAffineOptions::check)(std::string_view name) const {
  check_range(name, "degrees", degrees, -HUGE_VAL);
  for (const double t : translate.value_or(std::array<double, 2>{}))
    halfstep::check<ValueError>(t <= 1, name, "translate must be shares in [0, 1], got ", t);
  if (scale) {
    check_range(name, "scale", *scale, 0);
    halfstep::check<ValueError>((*scale)[0] > 0, name, "scale must be positive, got ", (*scale)[0]);
  }
  halfstep::check<ValueError>(shear.size() % 2 == 0, name, "shear must have 2 or 4 numbers, got ", shear.size());
  for (size_t i = 0; i < shear.size(); i += 2) check_range(name, "shear", {shear[i], shear[i + 1]}, -HUGE_VAL);
}

Batch RandomAffine::apply(const Batch& batch, const Draws& draws) const {
  return map_images("RandomAffine", batch, draws, [&](const Shape& sample, SampleRandom& random, const float* from, float* to) {
    const RandomAffineOptions& o = options_;
    AffineMap map{.angle = random.uniform(o.degrees[0], o.degrees[1])};
    if (o.translate) {
      const double most_x = (*o.translate)[0] * double(sample[2]), most_y = (*o.translate)[1] * double(sample[1]);
      map.translate_x = std::nearbyint(random.uniform(-most_x, most_x));
      map.translate_y = std::nearbyint(random.uniform(-most_y, most_y));
    }
    if (o.scale) map.scale = random.uniform((*o.scale)[0], (*o.scale)[1]);
    if (o.shear.size() >= 2) map.shear_x = random.uniform(o.shear[0], o.shear[1]);
    if (o.shear.size() == 4) map.shear_y = random.uniform(o.shear[2], o.shear[3]);
    warp_image(from, to, sample, inverse_of(map), o.warp);
  });
}

HALFSTEP_OPTIONS(ResizeOptions,
                 option("size", &O::size, "height and width; one number: of the shorter edge")
                     .items(1, 2)
                     .at_least(1)
                     .at_most(kMaxImageEdge)
                     .required(),
                 option("interpolation", &O::interpolation, "interpolation between pixels"),
                 option("antialias", &O::antialias, "use all pixels when the image shrinks"))

Tensor Resize::operator()(const Tensor& input) const {
  check_images("Resize", input);
  const std::vector<int64_t>& given = options_.size;
  const int64_t height = input.size(2), width = input.size(3);
  Dims size{given[0], given.back()};
  if (given.size() == 1) {
    const int64_t longer = int64_t(double(given[0] * std::max(height, width)) / double(std::min(height, width)));
    size[height <= width ? 1 : 0] = longer;
  }
  if (size[0] == height && size[1] == width) return input;
  if (options_.interpolation == Sampling::nearest) return interpolate(input, {.size = size, .mode = "nearest"});
  return interpolate(input, {.size = size, .mode = "bilinear", .align_corners = false, .antialias = options_.antialias});
}

namespace {
// Describes the value of RandomErasing: noise is an empty list, and "random" in words.
Option<RandomErasingOptions> erasing_value() {
  using O = RandomErasingOptions;
  Option<O> o = option("value", &O::value, "values to write: one number, or one for each channel; \"random\": normal noise")
                    .items(1, 1 << 16)
                    .one_of({"random"});
  o.get = [](const O& all) { return all.value.empty() ? OptionValue("random") : OptionValue(all.value); };
  o.put = [put = o.put](O& all, const OptionValue& value) {
    const bool word = std::holds_alternative<std::monostate>(value) || std::holds_alternative<std::string>(value);
    return word ? (all.value.clear(), true) : put(all, value);
  };
  return o;
}
}  // namespace
HALFSTEP_OPTIONS(RandomErasingOptions, option("p", &O::p, "probability").at_least(0).at_most(1),
                 option("scale", &O::scale, "share of the image, from [from, to]").at_least(0),
                 option("ratio", &O::ratio, "height over width, from [from, to]").above(0), erasing_value())
void(RandomErasingOptions::check)(std::string_view name) const {
  check_range(name, "scale", scale, 0);
  halfstep::check<ValueError>(scale[1] <= 1, name, "scale must be shares in [0, 1], got ", scale[1]);
  check_range(name, "ratio", ratio, 0);
}

Batch RandomErasing::apply(const Batch& batch, const Draws& draws) const {
  constexpr const char* kName = "RandomErasing";
  constexpr int kTries = 10;
  check_images(kName, batch.input);
  const Shape sample = without_batch(batch.input.shape());
  const int64_t channels = sample[0], height = sample[1], width = sample[2];
  check<ShapeError>(options_.value.size() <= 1 || int64_t(options_.value.size()) == channels, kName,
                    "value must be one number, or one for each of the ", channels, " channels, got ", options_.value.size());
  if (batch.input.device().is_meta()) return batch;
  const bool in_place = draws.writable && batch.input.is_contiguous();
  const Tensor out = in_place ? batch.input : batch.input.clone().contiguous();
  for (int64_t b = 0; b < out.size(0); ++b) {
    SampleRandom random(draws, size_t(b));
    if (!random.chance(options_.p)) continue;
    for (int i = 0; i < kTries; ++i) {
      const double area = double(height * width) * random.uniform(options_.scale[0], options_.scale[1]);
      const double ratio = std::exp(random.uniform(std::log(options_.ratio[0]), std::log(options_.ratio[1])));
      const auto h = int64_t(std::nearbyint(std::sqrt(area * ratio))), w = int64_t(std::nearbyint(std::sqrt(area / ratio)));
      if (h >= height || w >= width) continue;
      const int64_t top = random.integer(height - h + 1), left = random.integer(width - w + 1);
      for (int64_t c = 0; c < channels; ++c) {
        const std::vector<double>& value = options_.value;
        const float fill = value.empty() ? 0 : float(value[value.size() == 1 ? 0 : size_t(c)]);
        for (int64_t y = top; y < top + h; ++y) {
          float* const line = out.data_ptr<float>() + ((b * channels + c) * height + y) * width + left;
          for (int64_t x = 0; x < w; ++x) line[x] = value.empty() ? float(random.normal()) : fill;
        }
      }
      break;
    }
  }
  return {out, batch.target};
}

}  // namespace halfstep
