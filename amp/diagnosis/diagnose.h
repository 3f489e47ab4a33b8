// SPDX-License-Identifier: Apache-2.0
// Why a training step went wrong. It is computed again in a few arms (amp/diagnosis/replay.h); from those that are finite, and from
// the kernel that the first bad value comes from, follow the cause, its place, the evidence, and what to change. What can be
// tried is tried before it is advised.
//
//   const Diagnosis d = diagnose({.module = net, .batches = {{[&] { return loss_fn(net(x), y); }, {x}, {y}}},
//                                 .low = DType::f16, .scale = scaler.get_scale()});
//   std::cout << d.text();
//
// docs/diagnostics.md has all causes. Nothing is left behind: see run_arm.
#pragma once

#include <string>
#include <vector>

#include "amp/diagnosis/replay.h"
#include "amp/diagnosis/step_under_test.h"

namespace halfstep {

struct Remedy {
  enum class Tried : uint8_t { untried, holds, fails };
  std::string text;  // a sentence, or the line of a config: "amp": {"dtype": "bfloat16"}
  Tried tried = Tried::untried;
  std::string result;  // of the trial: "loss 4.38"
};

struct Diagnosis {
  std::string cause;     // "activation_range"; the names of docs/diagnostics.md
  std::string where;     // "fc1": a layer, a tensor, "the loss"; may be empty
  std::string place;     // what text() says of `where`, if its caller knows: "model.hidden[0], Linear(...)"
  std::string sentence;  // "float16 cannot hold what fc1 computes"
  std::string evidence;
  std::vector<Remedy> remedies;
  std::vector<ArmResult> arms;
  std::string whole_text;  // what text() gives in place of the parts, if not empty: of another process

  // "  cause     activation_range: float16 ..." and so on, a line each, without a line break at the end.
  std::string text() const;
  // Of no step of a scaler that looks for its scale: something is wrong.
  bool is_fault() const { return cause != "overflow_scale"; }
};

Diagnosis diagnose(const StepUnderTest& step, const StepHistory& history = {});

// The largest loss scale, a power of two, under which no 16-bit gradient of the step overflows: measured in bfloat16, which rounds
// where float16 would and does not overflow. 0: the step has no such gradient, or none that is finite.
double largest_scale(const StepUnderTest& step, GradientPeak* peak = nullptr);

}  // namespace halfstep
