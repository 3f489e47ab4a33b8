// SPDX-License-Identifier: Apache-2.0
// Colour transforms of images, by torchvision's formulas for float tensors.
#include <algorithm>
#include <cmath>

#include "framework/base/check.h"
#include "framework/data/transforms/image_transforms.h"

namespace halfstep {
namespace {

float clamped(float x) { return std::clamp(x, 0.f, 1.f); }

float grey(float r, float g, float b) { return 0.2989f * r + 0.587f * g + 0.114f * b; }

struct Rgb {
  float r, g, b;
};

// Returns the color with its hue moved by a part of the circle, by way of HSV.
Rgb with_hue_moved(Rgb in, float by) {
  const float most = std::max({in.r, in.g, in.b}), least = std::min({in.r, in.g, in.b}), range = most - least;
  const bool is_grey = most == least;
  const float s = range / (is_grey ? 1 : most), divisor = is_grey ? 1 : range;
  const float rc = (most - in.r) / divisor, gc = (most - in.g) / divisor, bc = (most - in.b) / divisor;
  const float sector = most == in.r ? bc - gc : most == in.g ? 2 + rc - bc : 4 + gc - rc;
  float h = std::fmod(sector / 6 + 1, 1.f) + by;
  h -= std::floor(h);
  const float v = most, six = h * 6, whole = std::floor(six), f = six - whole;
  const float p = clamped(v * (1 - s)), q = clamped(v * (1 - s * f)), t = clamped(v * (1 - s * (1 - f)));
  switch (int(whole) % 6) {
    case 0: return {v, t, p};
    case 1: return {q, v, p};
    case 2: return {p, v, t};
    case 3: return {p, q, v};
    case 4: return {t, p, v};
    default: return {v, p, q};
  }
}

}  // namespace

void adjust_brightness(float* image, const Shape& sample, double factor) {
  const float f = float(factor);
  for (int64_t i = 0, n = numel(sample); i < n; ++i) image[i] = clamped(f * image[i]);
}

void adjust_contrast(float* image, const Shape& sample, double factor) {
  const int64_t plane = sample[1] * sample[2];
  double sum = 0;
  for (int64_t i = 0; i < plane; ++i)
    sum += double(sample[0] == 3 ? grey(image[i], image[plane + i], image[2 * plane + i]) : image[i]);
  const float f = float(factor), rest = float(1 - factor) * float(sum / double(plane));
  for (int64_t i = 0, n = numel(sample); i < n; ++i) image[i] = clamped(f * image[i] + rest);
}

void adjust_saturation(float* image, const Shape& sample, double factor) {
  if (sample[0] != 3) return;
  const int64_t plane = sample[1] * sample[2];
  const float f = float(factor);
  for (int64_t i = 0; i < plane; ++i) {
    const float rest = float(1 - factor) * grey(image[i], image[plane + i], image[2 * plane + i]);
    for (int64_t c = 0; c < 3; ++c) image[c * plane + i] = clamped(f * image[c * plane + i] + rest);
  }
}

void adjust_hue(float* image, const Shape& sample, double factor) {
  if (sample[0] != 3) return;
  const int64_t plane = sample[1] * sample[2];
  for (int64_t i = 0; i < plane; ++i) {
    const Rgb out = with_hue_moved({image[i], image[plane + i], image[2 * plane + i]}, float(factor));
    image[i] = out.r, image[plane + i] = out.g, image[2 * plane + i] = out.b;
  }
}

namespace {
// Describes a range about `middle`; in a config, 0 is no change.
template <class O>
Option<O> jitter(const char* name, ColorJitterOptions::Range O::*member, double middle, double least, const char* doc) {
  Option<O> o = about(option(name, member, doc), middle, least);
  o.get = [get = o.get, member](const O& all) { return all.*member ? get(all) : OptionValue(std::vector{0.0}); };
  o.put = [put = o.put](O& all, const OptionValue& value) {
    return put(all, value == OptionValue(0.0) || value == OptionValue(std::vector{0.0}) ? OptionValue() : value);
  };
  return o;
}
}  // namespace
HALFSTEP_OPTIONS(ColorJitterOptions,
                 jitter("brightness", &O::brightness, 1, 0, "a factor from [from, to], or [max(0, 1 - d), 1 + d] for one number d"),
                 jitter("contrast", &O::contrast, 1, 0, "the same"), jitter("saturation", &O::saturation, 1, 0, "the same"),
                 jitter("hue", &O::hue, 0, -1, "turned by [from, to] of the circle, or [-d, d]; in [-0.5, 0.5]"))
void(ColorJitterOptions::check)(std::string_view name) const {
  for (const Option<ColorJitterOptions>& o : list()) {
    const auto range = std::get<std::vector<double>>(o.get(*this));
    const double least = o.name == "hue" ? -0.5 : 0, most = o.name == "hue" ? 0.5 : HUGE_VAL;
    halfstep::check<ValueError>(
        range.size() == 1 || (least <= range[0] && range[0] <= range[1] && range[1] <= most && std::isfinite(range[1])), name,
        o.name, " must go from a smaller to a larger number in [", least, ", ", most, "], got [", range[0], ", ", range.back(),
        ']');
  }
}

Batch ColorJitter::apply(const Batch& batch, const Draws& draws) const {
  check_images("ColorJitter", batch.input);
  const Shape sample = without_batch(batch.input.shape());
  check<ShapeError>(sample[0] == 1 || sample[0] == 3, "ColorJitter", "needs images of 1 or 3 channels, got ", sample);
  if (batch.input.device().is_meta()) return batch;
  const bool in_place = draws.writable && batch.input.is_contiguous();
  const Tensor out = in_place ? batch.input : batch.input.clone().contiguous();
  constexpr decltype(&adjust_hue) kAdjust[] = {adjust_brightness, adjust_contrast, adjust_saturation, adjust_hue};
  const std::array ranges{options_.brightness, options_.contrast, options_.saturation, options_.hue};
  const int64_t size = numel(sample);
  for (int64_t b = 0; b < out.size(0); ++b) {
    SampleRandom random(draws, size_t(b));
    std::array<size_t, 4> order{0, 1, 2, 3};
    for (size_t i = 3; i > 0; --i) std::swap(order[i], order[size_t(random.integer(int64_t(i) + 1))]);
    for (const size_t which : order) {
      if (ranges[which])
        kAdjust[which](out.data_ptr<float>() + b * size, sample, random.uniform((*ranges[which])[0], (*ranges[which])[1]));
    }
  }
  return {out, batch.target};
}

}  // namespace halfstep
