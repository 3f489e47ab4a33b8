// SPDX-License-Identifier: Apache-2.0
// Statistics of the samples of a data set, computed in one pass.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "framework/data/sets/dataset.h"

namespace halfstep {

// Statistics of one channel, which is dimension 1 of a batch; without that dimension, and for integers such as tokens, there is
// one. Values that are not finite are counted, and do not enter the others.
struct ChannelStatistics {
  int64_t count = 0, nan = 0, inf = 0;
  double mean = 0, std = 0;  // std: over all values, divided by their count
  double low = 0, high = 0;
};
// Computes the statistics of all samples, or of these, on as many threads as computations use; their number changes no bit.
// progress: called now and then with the number of finished samples.
std::vector<ChannelStatistics> channel_statistics(const Dataset& data, std::span<const int64_t> samples = {},
                                                  const std::function<void(int64_t)>& progress = {});
// Computes the same for values that come in batches [B, ...].
class ChannelSums {
 public:
  void add(const Tensor& input);  // any dtype; copied to the host
  void add(const ChannelSums& more);
  std::vector<ChannelStatistics> result() const;

 private:
  struct Sum {
    ChannelStatistics statistics;
    double squares = 0;  // sum of squared distances from the mean
  };
  void check_channels(size_t channels, const Shape& shape);  // sets their number at the first call
  static void add_values(Sum& to, std::span<const float> values);
  std::vector<Sum> sums_;
};

// Returns the class of each sample, before transforms. Throws ValueError for a data set without classes, or with several classes
// per sample.
std::vector<int64_t> class_labels(const Dataset& data);

// Returns the number of samples, or of positions in samples, of each class, before transforms. `ignored`: a class to skip. Throws
// ValueError for a data set without classes.
std::vector<int64_t> class_counts(const Dataset& data, int64_t ignored = -1);
// Returns weights with which all classes count equally, like scikit-learn's class_weight="balanced": samples / (classes with
// samples x samples of the class), and 1 for a class without samples.
std::vector<double> balanced_class_weights(std::span<const int64_t> counts);

// Calls f(batch, first sample) for all samples in order, in batches. Random transforms are those of epoch 0.
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
