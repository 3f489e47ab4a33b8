// SPDX-License-Identifier: Apache-2.0
// Which samples an epoch has, and in which order: pure functions of the seed and the epoch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "framework/data/dataset.h"

namespace halfstep {

class Sampler {
 public:
  virtual ~Sampler() = default;
  virtual int64_t size() const = 0;  // samples an epoch
  virtual int64_t of() const = 0;    // samples of the data set that it was made for
  virtual std::vector<int64_t> order(uint64_t seed, int64_t epoch) const = 0;
};

// PyTorch's WeightedRandomSampler: each of `num_samples` draws takes sample i with probability weights[i] / their sum; without
// replacement, among those not drawn yet.
class WeightedSampler : public Sampler {
 public:
  // num_samples 0: as many as there are weights. Throws ValueError for weights that are negative, not finite or all 0, and, without
  // replacement, for fewer positive weights than draws.
  explicit WeightedSampler(std::vector<double> weights, int64_t num_samples = 0, bool replacement = true);
  int64_t size() const override { return num_samples_; }
  int64_t of() const override { return int64_t(weights_.size()); }
  std::vector<int64_t> order(uint64_t seed, int64_t epoch) const override;

 private:
  std::vector<double> weights_, sums_;
  int64_t num_samples_;
  bool replacement_;
};
// For each sample 1 / the number of samples of its class: every class is drawn equally often, and `ignored` never.
std::vector<double> balanced_weights(std::span<const int64_t> labels, int64_t ignored = kIgnoredClass);

// Batches of samples of nearly one length: all samples in a random order, sorted by length within windows of `window` batches; then
// the batches in a random order. A last batch that is not full stays last.
class BucketSampler : public Sampler {
 public:
  // Throws ValueError for counts below 1.
  BucketSampler(std::vector<int64_t> lengths, int64_t batch_size, int64_t window = 100);
  int64_t size() const override { return int64_t(lengths_.size()); }
  int64_t of() const override { return size(); }
  std::vector<int64_t> order(uint64_t seed, int64_t epoch) const override;

 private:
  std::vector<int64_t> lengths_;
  int64_t batch_size_, window_;
};

}  // namespace halfstep
