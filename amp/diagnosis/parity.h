// SPDX-License-Identifier: Apache-2.0
// Does computing in 16 bits hurt the training? Some batches are computed in a 16-bit dtype and in float32, from the same weights,
// and the difference d of the gradients is held against the noise that gradients of different batches have anyway:
//
//   const Parity p = compare_with_float32({.module = net, .batches = {first, second, ...}, .low = DType::bf16});
//   if (p.verdict() == Parity::Verdict::harmful) ...
//
// Each batch is a step by itself. Nothing is updated, and nothing is left behind: gradients, buffers, kept states, the default
// generator, precisions and 16-bit copies are as they were. Kept states go from one batch to the next, as in training.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "amp/diagnosis/diagnose.h"
#include "amp/diagnosis/step_under_test.h"

namespace halfstep {

class Optimizer;

// A module without modules below it, computed alone in 16 bits from the input that it has in float32.
struct ModuleParity {
  std::string path, what;  // "fc1", "Linear(in_features=16, ...)"
  double error = 0;        // |y - y of float32| / |y of float32|
  int64_t roundings = 0;   // to 16 bits on the way: casts of inputs and weights, 16-bit results
  double expected = 0;     // of so many roundings to nearest
  double ratio() const { return expected > 0 ? error / expected : 0; }
  bool loses_precision() const { return ratio() > 4; }
};

// What else than its description a step computes in float32, to see by how much the error falls.
struct ParityVariant {
  std::string name;
  std::vector<std::string> modules = {};    // paths of modules
  std::optional<OpPolicies> policies = {};  // in place of the step's
  bool low_gradients = true;                // false: gradients of weights are not kept in 16 bits
  bool rounded_weights = false;             // float32 has the same rounded weights: what is left is the error of all else
};

struct Parity {
  enum class Verdict : uint8_t { harmless, visible, harmful };

  DType low = DType::bf16;
  double scale = 1;  // of the loss: that of the step, or the largest one below it under which no gradient overflows
  int64_t batches = 0;
  double noise = 0;               // s, as a share of the rms |gradient|; s^2 = sum |gradient - mean|^2 / (batches - 1)
  double error = 0;               // rms |d|, as a share of the rms |gradient|
  bool by_noise = true;           // the batches have noise: it, and not the gradient, is what the error is held against
  double loss = 0, loss_f32 = 0;  // means, by what each batch's loss is a mean over
  double cosine = 1;              // mean, of the gradients' angles
  double bias = 0;                // |mean d| / |mean gradient|, less what chance makes of it
  std::optional<double> update_error;  // of what an optimizer makes of the gradients, as a share of the update; see below
  double flushed = 0;             // share of the elements not 0 in float32 that are 0 in 16 bits
  std::string worst;              // the parameter with the largest relative error
  double worst_error = 0;
  std::vector<ModuleParity> modules;  // on the first batch
  std::vector<double> variants;       // measure() of each
  std::optional<Diagnosis> fault;     // a batch has no finite loss or gradient, at no scale: there is nothing to compare

  double against_noise() const { return error / noise; }
  // What the verdict goes by. Rounding that is 0.3 of the noise adds 9 % to the variance of the gradient. Without noise training
  // ends where the gradient gets as small as its error.
  double measure() const { return by_noise ? against_noise() : error; }
  double harmless_below() const { return by_noise ? 0.3 : 0.1; }
  Verdict verdict() const;
};
std::string_view name(Parity::Verdict verdict);

// `step.low` is the dtype to compare with float32. Throws as computing the step does. With an optimizer that needs no closure its
// updates are compared, too: an optimizer like Adam divides a gradient by its size, and with it the error. Its state and the
// weights are put back.
Parity compare_with_float32(const StepUnderTest& step, const std::vector<ParityVariant>& variants = {},
                            Optimizer* optimizer = nullptr);

// By what the error comes about: weights, gradients, the kinds of ops, and the modules right below the model.
std::vector<ParityVariant> bisection(const StepUnderTest& step);

// Part of compare_with_float32.
std::vector<ModuleParity> compare_modules(const StepUnderTest& step);

}  // namespace halfstep
