// SPDX-License-Identifier: Apache-2.0
// A training step that went wrong, as a description from which it can be computed again.
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
  std::function<Tensor()> loss;       // forward and loss: one number, in the autocast region of its caller
  Tensors inputs, targets;            // what goes in; may be empty where it is not known
  double weight = 1;                  // of the loss in the step's gradient
  std::vector<int64_t> samples = {};  // the numbers of the rows' samples in the data, where they are known
  std::optional<BatchRows> rows = {};  // of the step's rows, whose random numbers the loss draws; nothing: it is the only batch
  double over = 1;  // what the loss is a mean over: means over several batches weigh it by that
};

// The model's parameters, buffers and kept states must be those from before the step.
struct StepUnderTest {
  Module& module;
  std::vector<TestedBatch> batches;
  Device device = Device::cpu;
  std::optional<DType> low = {};  // of its autocast region; nothing: there was none
  OpPolicies policies = {};       // and the policies that ops have in it
  double scale = 1;               // of the loss
  bool low_gradients = false;     // framework/autograd/grad_mode.h
  Generator::State random = {};   // where its random numbers began
};

// What is known of the run before the step. Zero: not known.
struct StepHistory {
  double loss = 0;             // the median of the losses' magnitudes in applied steps
  double update = 0;           // the most by which a step changed the weights, as a share of their norm
  bool broke_weights = false;  // they were finite before the step, and are not after it
  std::optional<double> eps = {};  // the optimizer's; nothing: it has none, or it is not known
};

}  // namespace halfstep
