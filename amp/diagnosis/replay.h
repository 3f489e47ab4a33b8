// SPDX-License-Identifier: Apache-2.0
// Replays a training step in a chosen precision and at a chosen scale, under a log of kernels. The replays that are finite show
// whether the scale is the cause, or the range of float16, or something that no precision cures.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "amp/diagnosis/step_under_test.h"
#include "framework/backend/kernel_log.h"

namespace halfstep {

struct StepReplay {
  std::string name;                    // "float16 at scale 1"
  std::optional<DType> low;            // of the region; unset: float32
  double scale = 1;                    // of the loss
  KernelLog::Change change = nullptr;  // for tests
  bool keep_gradients = false;         // in the result
};

// The largest magnitude in a 16-bit tensor that a kernel of the backward wrote.
struct GradientPeak {
  double largest = 0;
  std::string where;  // op and layer: "linear of fc1"
};

struct StepReplayResult {
  std::string name;
  std::string error;         // message that the step threw; empty: it completed
  bool index_error = false;  // it was an IndexError
  double loss = 0;           // weighted mean of all micro-batches
  bool loss_finite = false, gradients_finite = false;
  Origin origin;                               // of the first loss or gradient that is not finite
  std::optional<KernelEvent> event, nan_born;  // of the origin
  std::string layer;                           // of the event; if several layers are one op, that of the weight that it reads
  std::string weight;                          // read by the event, perhaps through its cast, or the origin itself: "fc1.weight"
  // For a gradient that overflows where a module's input was cast: the layer that computed that input.
  std::string feeding_layer;
  std::vector<GradientPeak> peaks;  // one for each such tensor, in order
  std::vector<KernelEvent> events;  // if requested
  Tensors gradients;                // if requested: of the parameters, as after backward; some may be undefined
  bool finite() const { return error.empty() && loss_finite && gradients_finite; }
};

// Replays the step. Restores gradients, buffers, kept states and the default generator, and does not touch parameters or the run's
// 16-bit copies. Does not notify leaf listeners: ranks exchange nothing. Throws MemoryError.
StepReplayResult replay_step(const StepUnderTest& step, const StepReplay& replay, bool keep_events = false);

// Names a layer, or "0 to 4", in a sentence. Puts "layer" or "layers" before a name whose last part is a number: "layer 2",
// "layer encoder.2", "layers 0 to 4".
std::string layer_phrase(const std::string& layer);

// Returns "forward of linear (gemm) in fc1 writes 3 inf of 512 float16 values; it reads ...".
std::string describe(const KernelEvent& e);

}  // namespace halfstep
