// SPDX-License-Identifier: Apache-2.0
// Thread-local switches: is a graph being recorded?
#pragma once

namespace halfstep {

bool grad_enabled();       // default true; false inside NoGrad and InferenceMode
bool inference_enabled();  // default false

// Sets recording while it lives: GradMode off(false).
class GradMode {
 public:
  [[nodiscard]] explicit GradMode(bool enabled);
  ~GradMode();
  GradMode(const GradMode&) = delete;

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

// f() without recording: `const Tensor y = no_grad([&] { return model(x); })`.
template <class F>
auto no_grad(F&& f) {
  const NoGrad off;
  return f();
}

// As NoGrad, and EnableGrad inside it has no effect. Layers may use faster forms whose results differ by rounding: a convolution
// and the batch normalisation behind it are one convolution (layers/containers/conv_norm.h), and weights of convolutions and of
// linear layers are kept in the layout of the library's code (framework/ops/linalg/packed_weights.h), which takes memory for a
// second copy.
class InferenceMode {
 public:
  [[nodiscard]] InferenceMode();
  ~InferenceMode();
  InferenceMode(const InferenceMode&) = delete;

 private:
  bool saved_;
};

// While it lives, backward leaves the gradient of a float32 leaf that autocast lowered in the 16-bit dtype its op computed in,
// when it is the leaf's only one: half the memory and traffic. Tensor::grad() converts it to the leaf's dtype when asked.
class LowGradients {
 public:
  [[nodiscard]] explicit LowGradients(bool enabled);
  ~LowGradients();
  LowGradients(const LowGradients&) = delete;

 private:
  bool saved_;
};
bool low_gradients();  // default false

}  // namespace halfstep
