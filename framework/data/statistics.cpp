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
        const float* const row = input.data<float>() + (b * channels + c) * inner;
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
  std::vector<int64_t> out;
  out.reserve(size_t(data.size()));
  const auto take = [&](const Tensor& target) {
    for (const int64_t c : target.to(Device::cpu).to_vector<int64_t>()) out.push_back(c);
  };
  std::vector<int64_t> all;
  for (int64_t i = 0; i < data.size(); ++i) all.push_back(i);
  if (const auto bytes = data.byte_rows(all))
    take(bytes->target);
  else
    for_each_batch(data, [&](const Batch& batch, int64_t) { take(batch.target); });
  return out;
}

}  // namespace halfstep
