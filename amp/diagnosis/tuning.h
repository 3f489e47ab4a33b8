// SPDX-License-Identifier: Apache-2.0
// Which modules must compute in float32 so that a model trains in 16 bits: first those whose values the dtype cannot hold, then,
// if rounding hurts (amp/diagnosis/parity.h), those that lose precision. A module that turns out not to be needed is taken out
// again. Where float16's range needs more than half of the operations in float32, bfloat16 takes its place if its rounding is
// harmless.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "amp/diagnosis/parity.h"

namespace halfstep {

struct TuneOptions {
  double budget = 0.1;                        // of the operations, that may go to float32 for the sake of precision
  std::map<std::string, double> shares = {};  // of the operations, by the path of a module without modules below it; others: 0
};

struct TunedModule {
  std::string path, why;
};

struct Tuning {
  std::optional<Diagnosis> fault;    // that float32 has too, or that neither modules nor bfloat16 mend: there is no result
  DType low = DType::bf16;           // in which to train: bfloat16 where modules do not help float16
  std::string why_low;               // where it is not the step's
  std::vector<TunedModule> modules;  // in float32, in the order of the model
  double share = 0;                  // of the operations that they take
  Parity before, after;              // with the modules that the range needs, and with all
};

// `step`: some batches, each a step by itself; `step.low` is the dtype to begin with. Leaves nothing behind.
Tuning tune(const StepUnderTest& step, const TuneOptions& options = {});

}  // namespace halfstep
