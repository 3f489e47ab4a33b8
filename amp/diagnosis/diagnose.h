// SPDX-License-Identifier: Apache-2.0
// Finds out why a training step went wrong. It replays the step in a few precisions and scales (amp/diagnosis/replay.h); from the
// replays that are finite, and from the kernel that wrote the first bad value, it derives the cause, its place, the evidence, and
// remedies. Remedies that can be tried are tried before they are listed.
//
//   const Diagnosis d = diagnose({.module = net, .batches = {{[&] { return loss_fn(net(x), y); }, {x}, {y}}},
//                                 .low = DType::f16, .scale = scaler.get_scale()});
//   std::cout << d.text();
//
// docs/diagnostics.md has all causes. The run's state does not change (replay_step).
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
  std::string result;  // of trying it: "loss 4.38"
};

struct Diagnosis {
  std::string cause;        // "activation_range"; the names of docs/diagnostics.md
  std::string where;        // "fc1": a layer, a tensor, "the loss"; may be empty
  std::string config_path;  // replaces `where` in text() if the caller has one: "model.hidden[0], Linear(...)"
  std::string sentence;     // "float16 cannot hold what fc1 computes"
  std::string evidence;
  std::vector<Remedy> remedies;
  std::vector<StepReplayResult> replays;
  std::string whole_text;  // replaces the parts in text() if not empty: from another process

  // Returns "  cause     activation_range: float16 ..." and further lines, without a final line break.
  std::string text() const;
  // Returns whether something is wrong; false for a scaler's overflow while it searches for its scale.
  bool is_fault() const { return cause != "overflow_scale"; }
};

Diagnosis diagnose(const StepUnderTest& step, const StepHistory& history = {});

// Returns the largest loss scale, a power of two, under which no 16-bit gradient of the step overflows: measured in bfloat16,
// which rounds where float16 would but does not overflow. 0: the step has no such gradient, or none that is finite.
double largest_scale(const StepUnderTest& step, GradientPeak* peak = nullptr);

// Diagnoses a step whose float32 replay is not finite, by the kernel that wrote the first bad value.
Diagnosis verdict_of_origin(const StepReplayResult& replay, const StepHistory& history);

// Returns "fc1", or "the loss".
std::string place_of(const StepReplayResult& replay);

}  // namespace halfstep
