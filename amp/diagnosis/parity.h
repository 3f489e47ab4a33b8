// SPDX-License-Identifier: Apache-2.0
// Measures whether computing in 16 bits hurts the training. Computes some batches in a 16-bit dtype and in float32, from the same
// weights, and compares the difference d of the gradients with the noise between gradients of different batches:
//
//   const Parity p = compare_with_float32({.module = net, .batches = {first, second, ...}, .low = DType::bf16});
//   if (p.verdict() == Parity::Verdict::harmful) ...
//
// Each batch is a step by itself. Nothing is updated, and gradients, buffers, kept states, the default generator, precisions and
// 16-bit copies are restored. Kept states pass from one batch to the next, as in training.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "amp/diagnosis/diagnose.h"
#include "amp/diagnosis/step_under_test.h"

namespace halfstep {

class Optimizer;

// A module without children, computed alone in 16 bits from its float32 input.
struct ModuleParity {
  std::string path, what;  // "fc1", "Linear(in_features=16, ...)"
  double error = 0;        // |y - y of float32| / |y of float32|
  int64_t roundings = 0;   // number of roundings to 16 bits: casts of inputs and weights, 16-bit results
  double expected = 0;     // error expected of that many roundings to nearest
  double ratio() const { return expected > 0 ? error / expected : 0; }
  bool loses_precision() const { return ratio() > 4; }
};

// Parts of a step that are computed in float32 in addition, to measure how much the error falls.
struct ParityVariant {
  std::string name;
  std::vector<std::string> modules = {};    // paths of modules
  std::optional<OpPolicies> policies = {};  // replace the step's
  bool low_gradients = true;                // false: gradients of weights are not kept in 16 bits
  bool rounded_weights = false;             // the float32 step uses the rounded weights too: the error of all other parts remains
};

struct Parity {
  enum class Verdict : uint8_t { harmless, visible, harmful };

  DType low = DType::bf16;
  double scale = 1;  // of the loss: the step's, or the largest one below it under which no gradient overflows
  int64_t batches = 0;
  double noise = 0;               // s, as a share of the rms |gradient|; s^2 = sum |gradient - mean|^2 / (batches - 1)
  double error = 0;               // rms |d|, as a share of the rms |gradient|
  bool by_noise = true;           // compare the error with the noise (if there is some), not with the gradient
  double loss = 0, loss_f32 = 0;  // means over the batches, weighted by their denominators
  double cosine = 1;              // mean, of the gradients' angles
  double bias = 0;                // |mean d| / |mean gradient|, minus its expectation by chance
  std::optional<double> update_error;  // error of the optimizer's updates, relative to the update; see below
  double flushed = 0;             // share of the elements not 0 in float32 that are 0 in 16 bits
  std::string worst;              // the parameter with the largest relative error
  double worst_error = 0;
  std::vector<ModuleParity> modules;  // on the first batch
  std::vector<double> variants;       // measure() for each
  std::optional<Diagnosis> fault;     // a batch has no finite loss or gradient at any scale: nothing could be compared

  double against_noise() const { return error / noise; }
  // Measure and threshold of the verdict. Rounding errors of 0.3 of the noise add 9 % to the variance of the gradient. Without
  // noise, training stops where the gradient is as small as its error.
  double measure() const { return by_noise ? against_noise() : error; }
  double harmless_below() const { return by_noise ? 0.3 : 0.1; }
  Verdict verdict() const;
};
std::string_view name(Parity::Verdict verdict);

// Compares `step.low` with float32. Throws what computing the step throws. With an optimizer that needs no closure it also
// compares updates: an optimizer like Adam divides a gradient, and so its error, by the gradient's size. Restores the optimizer's
// state and the weights.
Parity compare_with_float32(const StepUnderTest& step, const std::vector<ParityVariant>& variants = {},
                            Optimizer* optimizer = nullptr);

// Returns variants that locate the error: weights, gradients, the kinds of ops, and the modules right below the model.
std::vector<ParityVariant> bisection(const StepUnderTest& step);

// Measures the modules for compare_with_float32.
std::vector<ModuleParity> compare_modules(const StepUnderTest& step);

}  // namespace halfstep
