// SPDX-License-Identifier: Apache-2.0
// What the samples of a data set are like, gathered in one pass.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "framework/data/sets/dataset.h"

namespace halfstep {

// Statistics of one channel, which is dimension 1 of a batch; without that dimension, and for integers such as tokens, there is
// one. What is not finite is counted, and enters nothing else.
struct ChannelStatistics {
  int64_t count = 0, nan = 0, inf = 0;
  double mean = 0, std = 0;  // std: over all values, divided by their count
  double low = 0, high = 0;
};
// Of all samples, or of these, on as many threads as computations use, whose number changes no bit. progress: called now and then
// with the number of samples that are done.
std::vector<ChannelStatistics> channel_statistics(const Dataset& data, std::span<const int64_t> samples = {},
                                                  const std::function<void(int64_t)>& progress = {});
// The same of values that come in batches [B, ...].
class ChannelSums {
 public:
  void add(const Tensor& input);  // any dtype; copied to the host
  void add(const ChannelSums& more);
  std::vector<ChannelStatistics> result() const;

 private:
  struct Sum {
    ChannelStatistics s;
    double squares = 0;  // of the distances from the mean
  };
  void begin(size_t channels, const Shape& shape);
  static void add_values(Sum& to, std::span<const float> values);
  std::vector<Sum> sums_;
};

// The class of each sample, before transforms. Throws ValueError for a data set without classes, or with more than one class a
// sample.
std::vector<int64_t> class_labels(const Dataset& data);

// The number of samples of each class, or of positions in samples, before transforms. `ignored`: a class that is not counted.
// Throws ValueError for a data set without classes.
std::vector<int64_t> class_counts(const Dataset& data, int64_t ignored = -1);
// Weights for which all classes count the same, as scikit-learn's class_weight="balanced": samples / (classes with samples x
// samples of the class), and 1 for a class without samples.
std::vector<double> balanced_class_weights(std::span<const int64_t> counts);

// Calls f(batch, first sample) with all samples in order, in batches. No random transform is drawn twice: it is epoch 0.
template <class F>
void for_each_batch(const Dataset& data, F f) {
  constexpr int64_t kSamples = 256;
  std::vector<int64_t> indices;
  for (int64_t from = 0; from < data.size(); from += kSamples) {
    indices.clear();
    for (int64_t i = from; i < from + kSamples && i < data.size(); ++i) indices.push_back(i);
    f(data.batch(indices, 0), from);
  }
}

}  // namespace halfstep
