// SPDX-License-Identifier: Apache-2.0
// What a training step did to numbers: where the exponents of its gradients lie, how much room the loss scale has left, and how
// many weights its update did not change. All is read from the step itself, whose bits stay as they are.
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

// counts[i]: values with 2^(first + i) <= |x| < 2^(first + i + 1). Without values it is empty.
struct ExponentCounts {
  int first = 0;
  std::vector<int64_t> counts;
};

// Of a parameter with a gradient. Shares are of the gradient's elements.
struct TensorObservation {
  std::string name;
  DType stored = DType::f32, gradient = DType::f32;  // of the parameter, and of its gradient as backward left it
  ExponentCounts exponents;                          // of the true gradient: the loss scale is divided out
  double zero = 0;                                   // flushed, or zero in float32 too
  double subnormal = 0, overflow = 0;                // as stored, under the loss scale; overflow: infinite or NaN
  std::optional<double> flushed;  // of the elements that are not zero in float32: zero here. Where it was compared (quiet.h)
  // Of what the update did; nothing for tensors whose old values were not copied.
  std::optional<double> lost;     // of the elements with a gradient: the stored value did not change
  std::optional<double> lost_16;  // and the one of the 16-bit copy
  int64_t with_gradient = 0;      // how many elements those are
  std::optional<double> update;   // |change| / |values|
};

struct Observation {
  double scale = 1;
  std::optional<double> room;  // so many times the scale can be doubled: log2(65504 / largest float16 gradient under the scale)
  bool updated = false;        // the step changed weights: it was not skipped, and its learning rate was not 0
  std::vector<TensorObservation> tensors;
};

class StepObserver {
 public:
  // Before the step's first forward, with the loss scale that it will have. Old values are copied of parameters of `most_bytes`
  // together, their copies in 16 bits included, and of a larger tensor only so many of its first rows; `part`, a number that grows
  // from one observed step to the next, says whose turn it is. `module` must outlive it.
  StepObserver(Module& module, Device device, double scale, int64_t part = 0, size_t most_bytes = size_t(64) << 20);

  void open();  // looks on until close(), in this thread
  void close();
  // After the step, while its gradients are in place.
  Observation finish(bool updated);

 private:
  struct Copy {
    size_t parameter;
    int64_t rows;  // the first ones
    Tensor values;
  };
  void copy_part(int64_t part, size_t most_bytes);

  Module& module_;
  Device device_;
  double scale_;
  bool has_room_;
  double largest_ = 0;
  std::vector<Copy> before_;
  std::optional<KernelLog> log_;
};

// |now - before| / |before| over all elements together; nothing where that is no number.
std::optional<double> relative_change(const Tensors& before, const Tensors& now);

}  // namespace halfstep
