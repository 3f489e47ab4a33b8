// SPDX-License-Identifier: Apache-2.0
// Observes the numbers of a training step: the exponents of its gradients, how far the loss scale could grow, and how many weights
// its update left unchanged. Observing does not change the step's bits.
//
//   StepObserver observer(net, Device::cpu, scaler.get_scale());
//   observer.open();                              // around each micro-batch
//   StepResult r = step(x, y);
//   observer.close();
//   Observation seen = observer.finish(r.outcome.applied());
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/backend/kernel_log.h"
#include "layers/module/module.h"

namespace halfstep {

// A histogram of exponents: counts[i] values have 2^(first + i) <= |x| < 2^(first + i + 1). Empty without values.
struct ExponentCounts {
  int first = 0;
  std::vector<int64_t> counts;
};

// Numbers of one parameter with a gradient. Shares are of the gradient's elements.
struct TensorObservation {
  std::string name;
  DType stored = DType::f32, gradient = DType::f32;  // dtypes of the parameter and of its gradient after backward
  ExponentCounts exponents;                          // of the gradient without the loss scale
  double zero = 0;                                   // share of zeros, including those that are zero in float32 too
  double subnormal = 0, overflow = 0;                // of the scaled gradient; overflow: infinite or NaN
  std::optional<double> flushed;  // share of zeros among the elements that are not zero in float32; if compared (silent_causes.h)
  // Effects of the update; unset for tensors whose old values were not copied.
  std::optional<double> lost;     // share of the elements with a gradient whose stored value did not change
  std::optional<double> lost_16;  // the same for the 16-bit copy
  int64_t with_gradient = 0;      // number of elements with a gradient
  std::optional<double> update;   // |change| / |values|
};

struct Observation {
  double scale = 1;
  std::optional<double> room;  // log2(65504 / largest float16 gradient under the scale): how often the scale could be doubled
  bool updated = false;        // the step changed weights: it was not skipped, and its learning rate was not 0
  std::vector<TensorObservation> tensors;
};

class StepObserver {
 public:
  // Construct it before the step's first forward, with the step's loss scale. It copies old values, with their 16-bit copies, up
  // to `most_bytes` in total, and only the first rows of a larger tensor; `part` counts the observed steps and rotates through the
  // parameters. `module` must outlive it.
  StepObserver(Module& module, Device device, double scale, int64_t part = 0, size_t most_bytes = size_t(64) << 20);

  void open();  // observes this thread until close()
  void close();
  // Call after the step, while its gradients are in place.
  Observation finish(bool updated);

 private:
  struct OldValues {
    size_t parameter;
    int64_t rows;  // number of first rows
    Tensor values;
  };
  void copy_part(int64_t part, size_t most_bytes);

  Module& module_;
  Device device_;
  double scale_;
  bool has_room_;
  double largest_ = 0;
  std::vector<OldValues> before_;
  std::optional<KernelLog> log_;
};

// Returns |now - before| / |before| over all elements together; nothing if that is not a number.
std::optional<double> relative_change(const Tensors& before, const Tensors& now);

}  // namespace halfstep
