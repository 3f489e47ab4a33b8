// SPDX-License-Identifier: Apache-2.0
// Activations. Constructor arguments, names and defaults are PyTorch's, except that nothing works in place.
#pragma once

#include <string>

#include "layers/layer.h"

namespace halfstep {

class ReLU : public FunctionLayer {
 public:
  ReLU() : FunctionLayer("ReLU()", relu) {}
};
class ReLU6 : public FunctionLayer {
 public:
  ReLU6() : FunctionLayer("ReLU6()", relu6) {}
};
class Sigmoid : public FunctionLayer {
 public:
  Sigmoid() : FunctionLayer("Sigmoid()", sigmoid) {}
};
class LogSigmoid : public FunctionLayer {
 public:
  LogSigmoid() : FunctionLayer("LogSigmoid()", logsigmoid) {}
};
class Tanh : public FunctionLayer {
 public:
  Tanh() : FunctionLayer("Tanh()", tanh) {}
};
class Tanhshrink : public FunctionLayer {
 public:
  Tanhshrink() : FunctionLayer("Tanhshrink()", tanhshrink) {}
};
class SiLU : public FunctionLayer {
 public:
  SiLU() : FunctionLayer("SiLU()", silu) {}
};
class Mish : public FunctionLayer {
 public:
  Mish() : FunctionLayer("Mish()", mish) {}
};
class SELU : public FunctionLayer {
 public:
  SELU() : FunctionLayer("SELU()", selu) {}
};
class Hardsigmoid : public FunctionLayer {
 public:
  Hardsigmoid() : FunctionLayer("Hardsigmoid()", hardsigmoid) {}
};
class Hardswish : public FunctionLayer {
 public:
  Hardswish() : FunctionLayer("Hardswish()", hardswish) {}
};
class Softsign : public FunctionLayer {
 public:
  Softsign() : FunctionLayer("Softsign()", softsign) {}
};

class ELU : public FunctionLayer {
 public:
  explicit ELU(double alpha = 1);
};
class CELU : public FunctionLayer {
 public:
  explicit CELU(double alpha = 1);
};  // alpha not 0
class LeakyReLU : public FunctionLayer {
 public:
  explicit LeakyReLU(double negative_slope = 0.01);
};
class Hardtanh : public FunctionLayer {
 public:
  explicit Hardtanh(double min_val = -1, double max_val = 1);
};  // min_val < max_val
class Hardshrink : public FunctionLayer {
 public:
  explicit Hardshrink(double lambd = 0.5);
};
class Softshrink : public FunctionLayer {
 public:
  explicit Softshrink(double lambd = 0.5);
};  // lambd >= 0
class Softplus : public FunctionLayer {
 public:
  explicit Softplus(double beta = 1, double threshold = 20);
};
class Threshold : public FunctionLayer {
 public:
  Threshold(double threshold, double value);
};
class GLU : public FunctionLayer {
 public:
  explicit GLU(int64_t dim = -1);
};

class GELU : public FunctionLayer {
 public:
  explicit GELU(const std::string& approximate = "none");  // "none" (erf) or "tanh"
  bool is_tanh() const { return tanh_; }

 private:
  bool tanh_;
};

// Along a dimension; the last one unless another is named, where PyTorch chooses one by the rank, with a warning.
class Softmax : public FunctionLayer {
 public:
  explicit Softmax(int64_t dim = -1);
};
class Softmin : public FunctionLayer {
 public:
  explicit Softmin(int64_t dim = -1);
};
class LogSoftmax : public FunctionLayer {
 public:
  explicit LogSoftmax(int64_t dim = -1);
};
class Softmax2d : public FunctionLayer {
 public:
  Softmax2d();
};  // over the channels of [N, C, H, W] or [C, H, W]

// x, or weight x for x <= 0. weight: [num_parameters], which is 1 or the number of channels, dimension 1 of the input.
class PReLU : public Module {
 public:
  explicit PReLU(int64_t num_parameters = 1, double init = 0.25);
  Tensor forward(const Tensor& x) override { return prelu(x, weight); }
  bool is_recordable() const override { return true; }
  std::string describe() const override;
  Parameter weight;
};

// x, or s x for x <= 0: in training s is drawn for each element from [lower, upper], else it is their mean.
class RReLU : public Module {
 public:
  explicit RReLU(double lower = 1.0 / 8, double upper = 1.0 / 3);
  Tensor forward(const Tensor& x) override { return rrelu(x, lower_, upper_, training()); }
  bool is_recordable() const override { return true; }
  std::string describe() const override;

 private:
  double lower_, upper_;
};

}  // namespace halfstep
