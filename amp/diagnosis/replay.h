// SPDX-License-Identifier: Apache-2.0
// An arm of an experiment: a step computed again, in this or that precision, under a log. From the arms that are finite follows
// whether the scale is to blame, the range of float16, or something that no precision mends.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "amp/diagnosis/step_under_test.h"
#include "framework/backend/kernel_log.h"

namespace halfstep {

struct Arm {
  std::string name;                  // "float16 at scale 1"
  std::optional<DType> low;          // of the region; nothing: float32
  double scale = 1;                  // of the loss
  KernelLog::Change change = nullptr;  // for tests
  bool keep_gradients = false;       // in the result
};

// The largest magnitude that a kernel of the backward wrote to a 16-bit tensor.
struct GradientPeak {
  double largest = 0;
  std::string where;
};

struct ArmResult {
  std::string name;
  std::string error;         // of what the step threw; empty: it came to its end
  bool index_error = false;  // it threw IndexError
  double loss = 0;           // the mean of all micro-batches, by their weights
  bool loss_finite = false, gradients_finite = false;
  Origin origin;                               // of the first loss or gradient that is not finite
  std::optional<KernelEvent> event, nan_born;  // those of the origin
  std::string layer;                           // of the event: where several layers are one op, that of the weight that it reads
  std::string weight;  // that the event reads, perhaps through its cast, or that the origin is: "fc1.weight"
  // Of a gradient that overflows where the input of a module was cast: the layer that made that input.
  std::string feeding_layer;
  std::vector<GradientPeak> peaks;             // one for each such kernel, in order
  std::vector<KernelEvent> events;             // where asked for
  Tensors gradients;                           // where asked for: of the parameters, as backward left them; some may be undefined
  bool finite() const { return error.empty() && loss_finite && gradients_finite; }
};

// Leaves gradients, buffers, kept states and the default generator as they were, and does not touch parameters or 16-bit copies
// that the run keeps. Nobody listens to the gradients: ranks exchange nothing. Throws MemoryError.
ArmResult run_arm(const StepUnderTest& step, const Arm& arm, bool keep_events = false);

// A layer, or "0 to 4", in a sentence: one that has only a number is called "layer 2".
std::string spoken_layer(const std::string& layer);

// "forward of linear (gemm) in fc1 writes 3 inf of 512 float16 values; reads ..."
std::string describe(const KernelEvent& e);

}  // namespace halfstep
