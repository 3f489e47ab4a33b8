// SPDX-License-Identifier: Apache-2.0
// Chooses the samples of an epoch and their order, as pure functions of the seed and the epoch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "framework/data/sets/dataset.h"

namespace halfstep {

class Sampler {
 public:
  virtual ~Sampler() = default;
  virtual int64_t size() const = 0;       // samples per epoch
  virtual int64_t data_size() const = 0;  // samples of its data set
  virtual std::vector<int64_t> order(uint64_t seed, int64_t epoch) const = 0;
};

// PyTorch's WeightedRandomSampler: each of `num_samples` draws takes sample i with probability weights[i] / their sum; without
// replacement, among those not drawn yet.
class WeightedSampler : public Sampler {
 public:
  // num_samples 0: the number of weights. Throws ValueError for weights that are negative, not finite or all 0, and, without
  // replacement, for fewer positive weights than draws.
  explicit WeightedSampler(std::vector<double> weights, int64_t num_samples = 0, bool replacement = true);
  int64_t size() const override { return num_samples_; }
  int64_t data_size() const override { return int64_t(weights_.size()); }
  std::vector<int64_t> order(uint64_t seed, int64_t epoch) const override;

 private:
  std::vector<double> weights_, sums_;  // sums_: of the weights up to each
  int64_t num_samples_;
  bool replacement_;
};
// Returns 1 / the number of samples in its class for each sample, so that all classes are drawn equally often; 0 for `ignored`.
std::vector<double> balanced_weights(std::span<const int64_t> labels, int64_t ignored = kIgnoredClass);

// Makes batches of samples of similar length: puts all samples in a random order, sorts windows of `window` batches by length,
// then puts the batches in a random order. An incomplete batch comes last; each epoch draws its place among the sorted samples.
class BucketSampler : public Sampler {
 public:
  // Throws ValueError for counts below 1.
  BucketSampler(std::vector<int64_t> lengths, int64_t batch_size, int64_t window = 100);
  int64_t size() const override { return int64_t(lengths_.size()); }
  int64_t data_size() const override { return size(); }
  std::vector<int64_t> order(uint64_t seed, int64_t epoch) const override;

 private:
  std::vector<int64_t> lengths_;
  int64_t batch_size_, window_;
};

}  // namespace halfstep
