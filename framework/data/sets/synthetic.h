// SPDX-License-Identifier: Apache-2.0
// Random tensors, for benchmarks and smoke tests.
#pragma once

#include <cstdint>

#include "framework/base/options.h"
#include "framework/data/sets/tensor_dataset.h"

namespace halfstep {

struct RandomOptions {
  int64_t num_batches = 1;
  int64_t batch_size = 1;  // samples = num_batches * batch_size
  Shape input_shape{};     // of one sample
  Shape target_shape{};    // of one sample, for regression
  int64_t classes = 0;     // > 0: targets uniform in [0, classes) instead
  uint64_t seed = 0;
  Device device = Device::cpu;  // device of all data
  static const OptionList<RandomOptions>& list();
};

// Inputs and regression targets from N(0, 1). Batches in order are views of the stored data, without a copy.
class RandomDataset : public TensorDataset<> {
 public:
  explicit RandomDataset(const RandomOptions& options);  // throws ValueError for counts below 1
};

}  // namespace halfstep
