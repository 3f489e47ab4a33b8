// SPDX-License-Identifier: Apache-2.0
#include "framework/data/loading/sampler.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "framework/base/check.h"
#include "framework/data/loading/permutation.h"
#include "framework/data/transforms/transforms.h"

namespace halfstep {
namespace {

// Separates these draws from those of an order with the same seed.
constexpr uint64_t kSampleSalt = 0x73616d706c65u;

}  // namespace

WeightedSampler::WeightedSampler(std::vector<double> weights, int64_t num_samples, bool replacement)
    : weights_(std::move(weights)), num_samples_(num_samples), replacement_(replacement) {
  constexpr const char* kName = "WeightedSampler";
  check<ValueError>(num_samples >= 0, kName, "num_samples must not be negative, got ", num_samples);
  if (num_samples_ == 0) num_samples_ = data_size();
  double sum = 0;
  int64_t positive = 0;
  for (const double w : weights_) {
    check<ValueError>(w >= 0 && std::isfinite(w), kName, "weights must be numbers >= 0, got ", w);
    positive += w > 0;
    sums_.push_back(sum += w);
  }
  check<ValueError>(sum > 0 && std::isfinite(sum), kName, "the weights must have a positive sum, got ", sum);
  check<ValueError>(replacement || num_samples_ <= positive, kName, "without replacement ", num_samples_,
                    " draws need as many positive weights, got ", positive);
}

std::vector<int64_t> WeightedSampler::order(uint64_t seed, int64_t epoch) const {
  const auto random_of = [&](int64_t i) {
    const int64_t index[] = {i};
    return SampleRandom({.seed = seed ^ kSampleSalt, .epoch = epoch, .indices = index}, 0);
  };
  std::vector<int64_t> out;
  if (replacement_) {
    for (int64_t i = 0; i < num_samples_; ++i) {
      const double at = random_of(i).uniform() * sums_.back();
      const auto found = std::upper_bound(sums_.begin(), sums_.end(), at);  // skips samples of weight 0
      out.push_back(std::min<int64_t>(found - sums_.begin(), data_size() - 1));
    }
    return out;
  }
  // Orders samples by the time at which a clock of rate `weight` rings: -log(1 - u) / weight (Efraimidis & Spirakis, 2006).
  std::vector<std::pair<double, int64_t>> ring_times;
  for (int64_t i = 0; i < data_size(); ++i) {
    const double w = weights_[size_t(i)];
    if (w > 0) ring_times.emplace_back(-std::log(1 - random_of(i).uniform()) / w, i);
  }
  std::sort(ring_times.begin(), ring_times.end());
  for (int64_t i = 0; i < num_samples_; ++i) out.push_back(ring_times[size_t(i)].second);
  return out;
}

std::vector<double> balanced_weights(std::span<const int64_t> labels, int64_t ignored) {
  std::map<int64_t, int64_t> counts;
  for (const int64_t c : labels) ++counts[c];
  std::vector<double> out;
  for (const int64_t c : labels) out.push_back(c == ignored ? 0 : 1 / double(counts[c]));
  return out;
}

BucketSampler::BucketSampler(std::vector<int64_t> lengths, int64_t batch_size, int64_t window)
    : lengths_(std::move(lengths)), batch_size_(batch_size), window_(window) {
  check<ValueError>(batch_size >= 1 && window >= 1, "BucketSampler", "batch_size and window must be at least 1, got ", batch_size,
                    " and ", window);
}

std::vector<int64_t> BucketSampler::order(uint64_t seed, int64_t epoch) const {
  std::vector<int64_t> order = permutation(size(), seed, uint64_t(epoch));
  const int64_t window_samples = batch_size_ * std::min(window_, size() / batch_size_ + 1);
  for (int64_t from = 0; from < size(); from += window_samples) {
    const auto begin = order.begin() + from, end = order.begin() + std::min(from + window_samples, size());
    std::stable_sort(begin, end, [&](int64_t a, int64_t b) { return lengths_[size_t(a)] < lengths_[size_t(b)]; });
  }
  const int64_t full_batches = size() / batch_size_, rest = size() % batch_size_;
  if (rest > 0) {  // of the last window
    const int64_t last = (size() - 1) / window_samples * window_samples, index[] = {0};
    SampleRandom random({.seed = seed ^ kSampleSalt, .epoch = epoch, .indices = index}, 0);
    const auto begin = order.begin() + last + random.integer(size() - last - rest + 1);
    std::rotate(begin, begin + rest, order.end());
  }
  std::vector<int64_t> out;
  for (const int64_t b : permutation(full_batches, seed ^ kSampleSalt, uint64_t(epoch)))
    out.insert(out.end(), order.begin() + b * batch_size_, order.begin() + (b + 1) * batch_size_);
  out.insert(out.end(), order.begin() + full_batches * batch_size_, order.end());
  return out;
}

}  // namespace halfstep
