// SPDX-License-Identifier: Apache-2.0
#include "framework/data/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/base/check.h"

namespace halfstep {

void ChannelSums::add(const Tensor& given) {
  if (given.numel() == 0) return;
  const Tensor input = given.to(Device::cpu).to(DType::f32).contiguous();
  // Tokens at different places are of one kind.
  const int64_t channels = input.dim() >= 2 && given.is_floating_point() ? input.size(1) : 1, samples = input.size(0);
  const int64_t inner = input.numel() / (samples * channels);
  if (sums_.empty()) {
    sums_.resize(size_t(channels));
    for (Sum& sum : sums_) sum.s.low = std::numeric_limits<double>::infinity(), sum.s.high = -sum.s.low;
  }
  check<ShapeError>(int64_t(sums_.size()) == channels, "statistics", "all batches must have ", sums_.size(), " channels, got ",
                    input.shape());
  for (int64_t c = 0; c < channels; ++c) {
    ChannelStatistics& s = sums_[size_t(c)].s;
    const auto each = [&](auto f) {
      for (int64_t b = 0; b < samples; ++b) {
        const float* const row = input.data_ptr<float>() + (b * channels + c) * inner;
        for (int64_t i = 0; i < inner; ++i) f(row[i]);
      }
    };
    int64_t n = 0;
    double sum = 0;
    each([&](float x) {
      if (!std::isfinite(x)) {
        ++(std::isnan(x) ? s.nan : s.inf);
        return;
      }
      ++n;
      sum += double(x);
      s.low = std::min(s.low, double(x)), s.high = std::max(s.high, double(x));
    });
    if (n == 0) continue;
    const double mean = sum / double(n);
    double squares = 0;
    each([&](float x) {
      if (std::isfinite(x)) squares += (double(x) - mean) * (double(x) - mean);
    });
    // Two parts joined (Chan, Golub & LeVeque, 1979).
    const double all = double(s.count + n), apart = mean - s.mean;
    sums_[size_t(c)].squares += squares + apart * apart * double(s.count) * double(n) / all;
    s.mean += apart * double(n) / all;
    s.count += n;
  }
}

std::vector<ChannelStatistics> ChannelSums::result() const {
  std::vector<ChannelStatistics> out;
  for (const Sum& sum : sums_) {
    out.push_back(sum.s);
    ChannelStatistics& s = out.back();
    if (s.count == 0)
      s.low = s.high = std::numeric_limits<double>::quiet_NaN();
    else
      s.std = std::sqrt(sum.squares / double(s.count));
  }
  return out;
}

std::vector<ChannelStatistics> channel_statistics(const Dataset& data) {
  ChannelSums sums;
  for_each_batch(data, [&](const Batch& batch, int64_t) { sums.add(batch.input); });
  return sums.result();
}

std::vector<int64_t> class_labels(const Dataset& given) {
  const Dataset& data = given.untransformed();
  check<ValueError>(data.classes() > 0 && data.target_shape().empty(), "class_labels",
                    "needs data with one class a sample, got: ", data.describe());
  std::vector<int64_t> out = data.labels();
  if (!out.empty()) return out;
  out.reserve(size_t(data.size()));
  for_each_batch(data, [&](const Batch& batch, int64_t) {
    for (const int64_t c : batch.target.to(Device::cpu).to_vector<int64_t>()) out.push_back(c);
  });
  return out;
}

std::vector<int64_t> class_counts(const Dataset& given, int64_t ignored) {
  const Dataset& data = given.untransformed();
  check<ValueError>(data.classes() > 0, "class_counts", "needs data with classes, got: ", data.describe());
  std::vector<int64_t> out(size_t(data.classes()), 0);
  const auto count = [&](std::span<const int64_t> labels) {
    for (const int64_t c : labels) {
      if (c >= 0 && c < data.classes() && c != ignored) ++out[size_t(c)];
    }
  };
  if (const std::vector<int64_t> labels = data.labels(); !labels.empty()) {
    count(labels);
  } else {
    for_each_batch(data, [&](const Batch& batch, int64_t) { count(batch.target.to(Device::cpu).to_vector<int64_t>()); });
  }
  return out;
}

std::vector<double> balanced_class_weights(std::span<const int64_t> counts) {
  int64_t all = 0, present = 0;
  for (const int64_t n : counts) all += n, present += n > 0;
  std::vector<double> out;
  for (const int64_t n : counts) out.push_back(n > 0 ? double(all) / (double(present) * double(n)) : 1.0);
  return out;
}

}  // namespace halfstep
