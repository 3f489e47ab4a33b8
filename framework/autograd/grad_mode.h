// SPDX-License-Identifier: Apache-2.0
// Thread-local switches that say whether ops record a graph.
#pragma once

#include "framework/base/guard.h"

namespace halfstep {

bool grad_enabled();       // default true; false inside NoGrad and InferenceMode
bool inference_enabled();  // default false

// Turns recording on or off while it lives: GradMode off(false).
class GradMode : public OrderedGuard<GradMode> {
 public:
  [[nodiscard]] explicit GradMode(bool enabled);
  ~GradMode();

 private:
  bool saved_;
};

struct NoGrad : GradMode {
  [[nodiscard]] NoGrad() : GradMode(false) {}
};
struct EnableGrad : GradMode {
  [[nodiscard]] EnableGrad() : GradMode(true) {}
};
using NoGradGuard = NoGrad;  // PyTorch's name in C++

// Returns f() computed without recording: `const Tensor y = no_grad([&] { return model(x); })`.
template <class F>
auto no_grad(F&& f) {
  const NoGrad off;
  return f();
}

// Like NoGrad, and EnableGrad inside it has no effect. Layers may use faster forms whose results differ by rounding: a convolution
// and the batch normalisation behind it become one convolution (layers/containers/conv_norm.h). Weights of convolutions and linear
// layers also keep a second copy in the library's layout (framework/ops/linalg/packed_weights.h), which takes memory.
class InferenceMode : public OrderedGuard<InferenceMode> {
 public:
  [[nodiscard]] InferenceMode();
  ~InferenceMode();

 private:
  bool saved_;
};

// While it lives, backward keeps the gradient of a float32 leaf that autocast lowered in the op's 16-bit dtype, if it is the
// leaf's only gradient. That halves memory and traffic. Tensor::grad() converts it to the leaf's dtype.
class LowGradients : LocalGuard {
 public:
  [[nodiscard]] explicit LowGradients(bool enabled);
  ~LowGradients();

 private:
  bool saved_;
};
bool low_gradients();  // default false

}  // namespace halfstep
