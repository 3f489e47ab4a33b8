// SPDX-License-Identifier: Apache-2.0
#include "framework/data/transforms/statistics.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <numeric>

#include "framework/backend/backend.h"
#include "framework/backend/cpu/team.h"
#include "framework/base/check.h"

namespace halfstep {

namespace {

// Adds the values of `more` to `s` (Chan, Golub & LeVeque, 1979): with d = mean of more - mean of s and n values in all, the mean
// grows by d (count of more) / n, and the squares grow by those of `more` and d^2 (count of s) (count of more) / n.
void join(ChannelStatistics& s, double& squares, const ChannelStatistics& more, double more_squares) {
  s.nan += more.nan, s.inf += more.inf;
  if (more.count == 0) return;
  const double count = double(s.count + more.count), difference = more.mean - s.mean;
  squares += more_squares + difference * difference * double(s.count) * double(more.count) / count;
  s.mean += difference * double(more.count) / count;
  s.count += more.count;
  s.low = std::min(s.low, more.low), s.high = std::max(s.high, more.high);
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr size_t kLanes = 16, kCacheValues = 4096;  // values per vector step, and values that fit into the first-level cache

// Adds up values that are all finite; returns false for others.
bool sum_finite(std::span<const float> x, ChannelStatistics& out, double& squares) {
  double sum[kLanes] = {};
  float low[kLanes], high[kLanes], bad[kLanes] = {};
  std::fill_n(low, kLanes, x[0]), std::fill_n(high, kLanes, x[0]);
  const size_t whole = x.size() / kLanes * kLanes;
  const auto add = [&](size_t i, size_t l) {
    const float v = x[i + l];
    sum[l] += double(v);
    low[l] = v < low[l] ? v : low[l], high[l] = v > high[l] ? v : high[l];
    bad[l] += v - v;  // NaN if v is not finite
  };
  for (size_t i = 0; i < whole; i += kLanes)
    for (size_t l = 0; l < kLanes; ++l) add(i, l);
  for (size_t l = 0; l < x.size() - whole; ++l) add(whole, l);
  if (std::any_of(bad, bad + kLanes, [](float b) { return b != 0; })) return false;
  out.count = int64_t(x.size());
  out.low = *std::min_element(low, low + kLanes), out.high = *std::max_element(high, high + kLanes);
  out.mean = std::accumulate(sum, sum + kLanes, 0.0) / double(x.size());
  double square[kLanes] = {};
  const auto add_square = [&](size_t i, size_t l) {
    const double difference = double(x[i + l]) - out.mean;
    square[l] += difference * difference;
  };
  for (size_t i = 0; i < whole; i += kLanes)
    for (size_t l = 0; l < kLanes; ++l) add_square(i, l);
  for (size_t l = 0; l < x.size() - whole; ++l) add_square(whole, l);
  squares = std::accumulate(square, square + kLanes, 0.0);
  return true;
}

}  // namespace

void ChannelSums::add_values(Sum& to, std::span<const float> x) {
  ChannelStatistics part;
  double squares = 0;
  if (x.empty() || sum_finite(x, part, squares)) return join(to.statistics, to.squares, part, squares);
  std::vector<float> finite;
  for (const float v : x) {
    if (std::isfinite(v))
      finite.push_back(v);
    else
      ++(std::isnan(v) ? to.statistics.nan : to.statistics.inf);
  }
  add_values(to, finite);
}

void ChannelSums::check_channels(size_t channels, const Shape& shape) {
  if (sums_.empty()) {
    sums_.resize(channels);
    for (Sum& sum : sums_) sum.statistics.low = kInfinity, sum.statistics.high = -kInfinity;
  }
  check<ShapeError>(sums_.size() == channels, "statistics", "all batches must have ", sums_.size(), " channels, got ", shape);
}

void ChannelSums::add(const Tensor& given) {
  if (given.numel() == 0) return;
  const Tensor input = given.to(Device::cpu).to(DType::f32).contiguous();
  // Tokens at all positions form one channel.
  const int64_t channels = input.dim() >= 2 && given.is_floating_point() ? input.size(1) : 1, samples = input.size(0);
  const size_t inner = size_t(input.numel() / (samples * channels));
  check_channels(size_t(channels), input.shape());
  constexpr size_t kGathered = 4;  // samples, at least, that are added together if each has few values
  std::vector<float> gathered;
  for (int64_t c = 0; c < channels; ++c) {
    Sum& sum = sums_[size_t(c)];
    for (int64_t b = 0; b < samples; ++b) {
      const std::span<const float> row(input.const_data_ptr<float>() + size_t(b * channels + c) * inner, inner);
      if (inner * kGathered < kCacheValues) {
        gathered.insert(gathered.end(), row.begin(), row.end());
        if (gathered.size() < kCacheValues && b + 1 < samples) continue;
        add_values(sum, gathered);
        gathered.clear();
        continue;
      }
      for (size_t i = 0; i < inner; i += kCacheValues) add_values(sum, row.subspan(i, std::min(kCacheValues, inner - i)));
    }
  }
}

void ChannelSums::add(const ChannelSums& more) {
  if (more.sums_.empty()) return;
  check_channels(more.sums_.size(), {int64_t(more.sums_.size())});
  for (size_t c = 0; c < sums_.size(); ++c)
    join(sums_[c].statistics, sums_[c].squares, more.sums_[c].statistics, more.sums_[c].squares);
}

std::vector<ChannelStatistics> ChannelSums::result() const {
  std::vector<ChannelStatistics> out;
  for (const Sum& sum : sums_) {
    out.push_back(sum.statistics);
    ChannelStatistics& s = out.back();
    if (s.count == 0)
      s.low = s.high = std::numeric_limits<double>::quiet_NaN();
    else
      s.std = std::sqrt(sum.squares / double(s.count));
  }
  return out;
}

std::vector<ChannelStatistics> channel_statistics(const Dataset& data, std::span<const int64_t> samples,
                                                  const std::function<void(int64_t)>& progress) {
  std::vector<int64_t> indices(samples.begin(), samples.end());
  if (samples.empty()) indices.resize(size_t(data.size())), std::iota(indices.begin(), indices.end(), int64_t(0));
  constexpr int64_t kBatchValues = 1 << 20, kMostSamples = 256;  // of a batch; each thread has one
  constexpr size_t kBatchesPerThread = 8;                        // between two calls of `progress`
  const size_t batch = size_t(std::clamp<int64_t>(kBatchValues / std::max<int64_t>(1, numel(data.input_shape())), 1, kMostSamples));
  const int threads = num_threads();
  ChannelSums out;
  for (size_t first = 0; first < indices.size();) {
    struct Part {
      std::span<const int64_t> indices;
      ChannelSums sums;
      std::exception_ptr failed;
    };
    std::vector<Part> parts;
    for (; parts.size() < kBatchesPerThread * size_t(threads) && first < indices.size(); first += batch)
      parts.push_back({std::span(indices).subspan(first, std::min(batch, indices.size() - first)), {}, {}});
    const auto add_part = [&](size_t i) {
      try {
        parts[i].sums.add(data.batch(parts[i].indices, 0).input);
      } catch (...) { parts[i].failed = std::current_exception(); }
    };
    cpu::run_team(
        int64_t(parts.size()), threads, [](void* f, int64_t i) { (*static_cast<decltype(add_part)*>(f))(size_t(i)); },
        const_cast<void*>(static_cast<const void*>(&add_part)));
    for (const Part& part : parts) {
      if (part.failed) std::rethrow_exception(part.failed);
      out.add(part.sums);
    }
    if (progress) progress(int64_t(std::min(first, indices.size())));
  }
  return out.result();
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
  int64_t samples = 0, classes = 0;  // with samples
  for (const int64_t n : counts) samples += n, classes += n > 0;
  std::vector<double> out;
  for (const int64_t n : counts) out.push_back(n > 0 ? double(samples) / (double(classes) * double(n)) : 1.0);
  return out;
}

}  // namespace halfstep
