// SPDX-License-Identifier: Apache-2.0
// Finds the modules that must compute in float32 for a model to train in 16 bits: first those whose values exceed the dtype's
// range, then, if rounding hurts (amp/diagnosis/parity.h), those that lose precision. Modules that turn out not to be needed are
// removed. If float16's range needs more than half of the operations in float32, it chooses bfloat16 instead if its rounding is
// harmless.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "amp/diagnosis/parity.h"

namespace halfstep {

struct TuneOptions {
  double budget = 0.1;                        // share of the operations that may move to float32 for precision
  std::map<std::string, double> shares = {};  // of the operations, by path of a module without children; others: 0
};

struct TunedModule {
  std::string path, why;
};

struct Tuning {
  std::optional<Diagnosis> fault;    // present in float32 too, or cured neither by modules nor by bfloat16: there is no result
  DType low = DType::bf16;           // dtype to train in: bfloat16 if no modules help float16
  std::string why_low;               // set if it is not the step's
  std::vector<TunedModule> modules;  // in float32, in the model's order
  double share = 0;                  // of the operations in them
  Parity before, after;              // with the modules that the range needs, and with all
};

// Tunes `step`: some batches, each a step by itself; `step.low` is the first dtype to try. Restores all state.
Tuning tune(const StepUnderTest& step, const TuneOptions& options = {});

}  // namespace halfstep
