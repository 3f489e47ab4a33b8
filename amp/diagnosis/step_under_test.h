// SPDX-License-Identifier: Apache-2.0
// A description of a training step from which it can be computed again.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "amp/policy/policy.h"
#include "framework/base/device.h"
#include "framework/base/draws.h"
#include "framework/base/generator.h"
#include "layers/module/module.h"

namespace halfstep {

// A micro-batch.
struct TestedBatch {
  std::function<Tensor()> loss;        // forward and loss: one number, in the caller's autocast region
  Tensors inputs, targets;             // tensors of the batch; may be empty if unknown
  double weight = 1;                   // of the loss in the step's gradient
  std::vector<int64_t> samples = {};   // indices of the rows' samples in the data, if known
  std::optional<BatchRows> rows = {};  // rows of the step whose random numbers the loss draws; unset: it is the only batch
  double denominator = 1;              // of the loss: means over several batches are weighted by it
};

// The model's parameters, buffers and kept states must be those from before the step.
struct StepUnderTest {
  Module& module;
  std::vector<TestedBatch> batches;
  Device device = Device::cpu;
  std::optional<DType> low = {};  // of its autocast region; unset: none
  OpPolicies policies = {};       // of the ops in it
  double scale = 1;               // of the loss
  bool low_gradients = false;     // whether LowGradients is on (grad_mode.h)
  Generator::State random = {};   // state of the generator at its start
};

// Facts about the run before the step. Zero: unknown.
struct StepHistory {
  double loss = 0;                 // median of |loss| over applied steps
  double update = 0;               // largest change of the weights in a step, relative to their norm
  bool broke_weights = false;      // they were finite before the step but not after it
  std::optional<double> eps = {};  // the optimizer's; unset: it has none, or it is unknown
};

}  // namespace halfstep
