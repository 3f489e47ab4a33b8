// SPDX-License-Identifier: Apache-2.0
#include "framework/data/transforms/transforms.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "framework/base/check.h"
#include "framework/data/sets/dataset.h"
#include "framework/math/random.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

constexpr uint64_t kDrawSalt = 0x617567000000000u;   // separates these draws from orders and Generators of the same seed
constexpr uint64_t kRepeatSalt = 0x616761696e0000u;  // and from those of a sample that was drawn before

struct Preset {
  std::string_view name;
  std::vector<double> mean, std;
};
const std::vector<Preset>& presets() {
  static const auto& all = *new std::vector<Preset>{{"mnist", {0.1307}, {0.3081}},
                                                    {"fashion_mnist", {0.2860}, {0.3530}},
                                                    {"cifar10", {0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}},
                                                    {"cifar100", {0.5071, 0.4865, 0.4409}, {0.2673, 0.2564, 0.2762}},
                                                    {"imagenet", {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}}};
  return all;
}

// Returns the preset. most: the number of channels that it may have. Throws ValueError for another name.
const Preset& preset_of(std::string_view name, size_t most) {
  std::string names;
  for (const Preset& p : presets()) {
    if (p.mean.size() > most) continue;
    if (p.name == name) return p;
    names += (names.empty() ? "\"" : ", \"") + std::string(p.name) + '"';
  }
  fail<ValueError>("Normalize", "the presets are ", names, ", got \"", name, '"');
}

}  // namespace

Normalize Normalize::preset(std::string_view name) {
  const Preset& p = preset_of(name, 1);
  return {.mean = p.mean[0], .std = p.std[0]};
}

Affine Normalize::for_u8() const {
  check_options(NormalizeTransform::kName, NormalizeOptions{.mean = {mean}, .std = {std}});
  return {.scale = float(1 / (255 * std)), .shift = float(-mean / std)};
}

SampleRandom::SampleRandom(const Draws& draws, size_t sample) {
  const math::Random4 key = math::philox(draws.seed ^ kDrawSalt, uint64_t(draws.epoch) << 16 | uint64_t(draws.transform_index));
  key_ = uint64_t(key.v[0]) << 32 | key.v[1];
  if (const int64_t before = draws.repeats.empty() ? 0 : draws.repeats[sample]; before > 0) {
    const math::Random4 repeat_key = math::philox(key_ ^ kRepeatSalt, uint64_t(before));
    key_ = uint64_t(repeat_key.v[0]) << 32 | repeat_key.v[1];
  }
  block_ = uint64_t(draws.indices[sample]) << 16;
}

uint32_t SampleRandom::bits() {
  if (next_ == 4) {
    const math::Random4 r = math::philox(key_, block_++);
    std::copy_n(r.v, 4, ready_);
    next_ = 0;
  }
  return ready_[next_++];
}

double SampleRandom::uniform() {
  const uint64_t high = bits() >> 5, low = bits() >> 6;  // 27 and 26 bits
  return double(high << 26 | low) * 0x1p-53;
}

double SampleRandom::uniform(double low, double high) { return low + (high - low) * uniform(); }

int64_t SampleRandom::integer(int64_t n) { return std::min(int64_t(uniform() * double(n)), n - 1); }

double SampleRandom::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

// Marsaglia & Tsang, "A simple method for generating gamma variables" (2000).
double SampleRandom::gamma(double alpha) {
  if (alpha < 1) {
    const double boost = std::pow(1 - uniform(), 1 / alpha);
    return gamma(alpha + 1) * boost;
  }
  const double d = alpha - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = normal(), base = 1 + c * x;
    if (base <= 0) continue;
    const double v = base * base * base;
    if (std::log(1 - uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

double SampleRandom::beta(double alpha) {
  const double a = gamma(alpha), b = gamma(alpha);
  return a + b > 0 ? a / (a + b) : chance(0.5) ? 1.0 : 0.0;  // both underflow for a tiny alpha, where Beta is a coin flip
}

Tensor Transform::operator()(const Tensor& input) const { return input; }

Batch Transform::apply(const Batch& batch, const Draws&) const { return {(*this)(batch.input), batch.target}; }

HALFSTEP_OPTIONS(
    NormalizeOptions,
    option("mean", &O::mean, "subtracted: one number, or one for each channel (dimension 1 of a batch)").items(1, 1 << 16),
    option("std", &O::std, "divided by").items(1, 1 << 16).above(0))
void(NormalizeOptions::check)(std::string_view name) const {
  halfstep::check<ValueError>(!mean.empty() && mean.size() == std.size(), name,
                              "mean and std must have one value, or one for each channel, got ", mean.size(), " and ", std.size());
}

NormalizeTransform::NormalizeTransform(const Options& o)
    : ListedTransform(o), scaling_{{o.mean.begin(), o.mean.end()}, {o.std.begin(), o.std.end()}} {}

NormalizeTransform NormalizeTransform::preset(std::string_view name) {
  const Preset& p = preset_of(name, 3);
  return NormalizeTransform(p.mean, p.std);
}

std::vector<std::string_view> normalize_presets() {
  std::vector<std::string_view> out;
  for (const Preset& p : presets()) out.push_back(p.name);
  return out;
}

std::optional<Normalize> NormalizeTransform::as_normalize() const {
  const auto& [mean, std] = options_;
  return mean.size() == 1 ? std::optional(Normalize{mean[0], std[0]}) : std::nullopt;
}

Tensor NormalizeTransform::operator()(const Tensor& input) const {
  check<DTypeError>(input.dtype() == DType::f32, "Normalize", "needs float32 inputs, got ", input.dtype());
  const size_t channels = options_.mean.size();
  if (channels == 1) return (input - options_.mean[0]) / options_.std[0];
  check<ShapeError>(input.dim() >= 2 && input.size(1) == int64_t(channels), "Normalize", "has ", channels,
                    " means and deviations, one for each channel, but a sample of shape ", without_batch(input.shape()), " has ",
                    input.dim() >= 2 ? input.size(1) : 1);
  Shape wide;
  for (int64_t d = 0; d < input.dim(); ++d) wide.push_back(1);
  wide[1] = int64_t(channels);
  const auto row = [&](const std::vector<float>& values) {
    const Tensor t = Tensor::empty(wide, {.device = Device::cpu});
    std::copy(values.begin(), values.end(), t.data_ptr<float>());
    return t.to(input.device());
  };
  return (input - row(scaling_.mean)) / row(scaling_.std);
}

}  // namespace halfstep
