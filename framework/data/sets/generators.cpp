// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/generators.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <vector>

#include "framework/base/check.h"
#include "framework/data/loading/sample_numbers.h"
#include "framework/data/sets/digits.h"
#include "framework/tensor/storage.h"

namespace halfstep {
namespace {

constexpr float kTurn = 6.2831853f;  // 2 pi
constexpr int64_t kDigitSide = 28;
constexpr int64_t kPool = 2000;  // digits from which strips are made

template <class O>
Option<O> count_of(const char* name, int64_t O::*member, const char* doc, double least = 1, double most = 1 << 24) {
  return option(name, member, doc).at_least(least).at_most(most);
}
template <class O>
Option<O> samples_of() {
  return count_of("size", &O::size, "samples");
}
template <class O>
Option<O> noise_of() {
  return option("noise", &O::noise, "deviation").at_least(0);
}

// Checks the product of the factors: all samples are drawn at once, and more would take gigabytes and hours.
void check_numbers(const char* where, const char* what, std::initializer_list<int64_t> factors) {
  constexpr double kMost = int64_t(1) << 26;
  double product = 1;
  for (const int64_t factor : factors) product *= double(factor);
  check<ValueError>(product <= kMost, where, what, " may be ", kMost, ", got ", product);
}

// Returns memory for n samples.
Tensor rows(int64_t n, const Shape& sample, DType dtype = DType::f32) {
  return Tensor::empty(with_batch(n, sample), {.dtype = dtype, .device = Device::cpu});
}

std::string label(const char* what, Split split) { return std::string(what) + ' ' + std::string(name(split)); }

TensorDataset<> spirals(const SpiralsOptions& o) {
  check_options("Spirals", o);
  const MemoryScope scope(MemoryTag::data);
  const Tensor input = rows(o.size, {2}), target = rows(o.size, {}, DType::i64);
  for (int64_t i = 0; i < o.size; ++i) {
    SampleNumbers random(o.seed, o.split, i);
    const int64_t arm = i % o.arms;
    const float radius = std::sqrt(random.uniform(0, 1));  // nearly the same number of points on each length of the arm
    const float angle = kTurn * (float(o.turns) * radius + float(arm) / float(o.arms));
    input.data_ptr<float>()[2 * i] = radius * std::cos(angle) + float(o.noise) * random.normal();
    input.data_ptr<float>()[2 * i + 1] = radius * std::sin(angle) + float(o.noise) * random.normal();
    target.data_ptr<int64_t>()[i] = arm;
  }
  return TensorDataset(input, target, o.arms, {}, label("Spirals", o.split));
}

TensorDataset<> sines(const SinesOptions& o) {
  check_options("Sines", o);
  check_numbers("Sines", "size (window + horizon) waves", {o.size, o.window + o.horizon, o.waves});
  const MemoryScope scope(MemoryTag::data);
  const Tensor input = rows(o.size, {o.window, 1}), target = rows(o.size, {o.horizon});
  float *x = input.data_ptr<float>(), *y = target.data_ptr<float>();
  for (int64_t i = 0; i < o.size; ++i) {
    SampleNumbers random(o.seed, o.split, i);
    std::vector<float> values(size_t(o.window + o.horizon), 0.0f);
    for (int64_t w = 0; w < o.waves; ++w) {
      const float height = random.uniform(0.2f, 1) / float(o.waves), step = kTurn / random.uniform(5, 40),
                  phase = random.uniform(0, kTurn);
      for (size_t t = 0; t < values.size(); ++t) values[t] += height * std::sin(step * float(t) + phase);
    }
    for (int64_t t = 0; t < o.window; ++t) *x++ = values[size_t(t)] + float(o.noise) * random.normal();
    y = std::copy(values.begin() + o.window, values.end(), y);
  }
  return TensorDataset(input, target, 0, {}, label("Sines", o.split));
}

TensorDataset<> copy_task(const CopyTaskOptions& o) {
  check_options("CopyTask", o);
  check_numbers("CopyTask", "2 size (2 length + wait)", {2, o.size, 2 * o.length + o.wait});
  const MemoryScope scope(MemoryTag::data);
  const int64_t steps = 2 * o.length + o.wait;
  const Tensor input = rows(o.size, {steps}, DType::i64), target = rows(o.size, {steps}, DType::i64);
  std::fill_n(input.data_ptr<int64_t>(), o.size * steps, 0);
  std::fill_n(target.data_ptr<int64_t>(), o.size * steps, 0);
  for (int64_t i = 0; i < o.size; ++i) {
    SampleNumbers random(o.seed, o.split, i);
    int64_t *const x = input.data_ptr<int64_t>() + i * steps, *const y = target.data_ptr<int64_t>() + i * steps;
    for (int64_t t = 0; t < o.length; ++t) x[t] = y[steps - o.length + t] = 1 + random.below(o.symbols);
    x[o.length + o.wait - 1] = o.symbols + 1;
  }
  return TensorDataset(input, target, o.symbols + 1, {}, label("CopyTask", o.split));
}

TensorDataset<> adding(const AddingOptions& o) {
  check_options("Adding", o);
  check_numbers("Adding", "2 size length", {2, o.size, o.length});
  const MemoryScope scope(MemoryTag::data);
  const Tensor input = rows(o.size, {o.length, 2}), target = rows(o.size, {1});
  for (int64_t i = 0; i < o.size; ++i) {
    SampleNumbers random(o.seed, o.split, i);
    float* const x = input.data_ptr<float>() + i * o.length * 2;
    for (int64_t t = 0; t < o.length; ++t) x[2 * t] = random.uniform(0, 1), x[2 * t + 1] = 0;
    const int64_t half = o.length / 2, first = random.below(half), second = half + random.below(o.length - half);
    x[2 * first + 1] = x[2 * second + 1] = 1;
    target.data_ptr<float>()[i] = x[2 * first] + x[2 * second];
  }
  return TensorDataset(input, target, 0, {}, label("Adding", o.split));
}

}  // namespace

HALFSTEP_OPTIONS(SpiralsOptions, samples_of<O>(), count_of("arms", &O::arms, "classes"),
                 option("turns", &O::turns, "turns of an arm around the centre").above(0), noise_of<O>())
HALFSTEP_OPTIONS(SinesOptions, samples_of<O>(), count_of("window", &O::window, "values of the input"),
                 count_of("horizon", &O::horizon, "values to predict"), count_of("waves", &O::waves, "number of sines in a sum"),
                 noise_of<O>())
HALFSTEP_OPTIONS(CopyTaskOptions, samples_of<O>(), count_of("length", &O::length, "number of symbols to remember"),
                 count_of("wait", &O::wait, "steps between symbols and their repetition"),
                 count_of("symbols", &O::symbols, "number of different symbols"))
HALFSTEP_OPTIONS(AddingOptions, samples_of<O>(), count_of("length", &O::length, "steps", 2))
HALFSTEP_OPTIONS(DigitStripsOptions, samples_of<O>(),
                 count_of("min_digits", &O::min_digits, "smallest number of digits in a strip", 1, 64),
                 count_of("max_digits", &O::max_digits, "largest number of digits in a strip", 1, 64))

SpiralsDataset::SpiralsDataset(const SpiralsOptions& options) : TensorDataset(spirals(options)) {}
SinesDataset::SinesDataset(const SinesOptions& options) : TensorDataset(sines(options)) {}
CopyTaskDataset::CopyTaskDataset(const CopyTaskOptions& options) : TensorDataset(copy_task(options)) {
  set_vocabulary(options.symbols + 2);
}
AddingDataset::AddingDataset(const AddingOptions& options) : TensorDataset(adding(options)) {}

DigitStripsDataset::DigitStripsDataset(const DigitStripsOptions& options) : options_(options) {
  check_options("DigitStrips", options);
  check<ValueError>(options.min_digits <= options.max_digits, "DigitStrips", "min_digits must be at most max_digits, got ",
                    options.min_digits, " and ", options.max_digits);
  digits_ = std::make_shared<DigitsDataset>(DigitsOptions{.split = options.split, .size = kPool, .seed = options.seed});
}

Shape DigitStripsDataset::input_shape() const { return {1, kDigitSide, kDigitSide * options_.max_digits}; }

Batch DigitStripsDataset::batch(std::span<const int64_t> indices) const {
  constexpr uint64_t kStripSalt = 0x7374726970730000u;  // different random numbers from those that draw the digits
  const MemoryScope scope(MemoryTag::data);
  constexpr int64_t kLeastAdvance = 20, kAdvances = kDigitSide - kLeastAdvance + 1;  // pixels from digit to digit: 20 to 28
  const int64_t most = options_.max_digits, width = kDigitSide * most, n = int64_t(indices.size());
  const Batch out{rows(n, input_shape()), rows(n, target_shape(), DType::i64)};
  std::fill_n(out.input.data_ptr<float>(), out.input.numel(), 0.0f);
  std::fill_n(out.target.data_ptr<int64_t>(), out.target.numel(), -1);
  for (int64_t k = 0; k < n; ++k) {
    const int64_t i = indices[size_t(k)];
    check<IndexError>(i >= 0 && i < size(), "DigitStrips", "a sample index must be in [0, ", size(), "), got ", i);
    SampleNumbers random(options_.seed ^ kStripSalt, options_.split, i);
    const int64_t digits = options_.min_digits + random.below(most - options_.min_digits + 1);
    float* const image = out.input.data_ptr<float>() + k * kDigitSide * width;
    for (int64_t d = 0, left = 0; d < digits;
         ++d, left += kLeastAdvance + random.below(kAdvances)) {  // digits may touch, but never leave the image
      const int64_t which = random.below(kPool);
      const uint8_t* const digit = digits_->input().const_data_ptr<uint8_t>() + which * kDigitSide * kDigitSide;
      for (int64_t y = 0; y < kDigitSide; ++y) {
        for (int64_t x = 0; x < kDigitSide; ++x) {
          float& pixel = image[y * width + left + x];
          pixel = std::max(pixel, float(digit[y * kDigitSide + x]) / 255);
        }
      }
      out.target.data_ptr<int64_t>()[k * most + d] = 1 + digits_->target().data_ptr<uint8_t>()[which];
    }
  }
  return out;
}

std::string DigitStripsDataset::describe() const {
  return joined(label("DigitStrips", options_.split), ": ", size(), " strips of ", options_.min_digits, " to ", options_.max_digits,
                " digits, input ", input_shape());
}

}  // namespace halfstep
