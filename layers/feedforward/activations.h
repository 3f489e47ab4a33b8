// SPDX-License-Identifier: Apache-2.0
// Activations. Constructor arguments, names and defaults are PyTorch's, except that nothing works in place.
#pragma once

#include <concepts>
#include <string>

#include "layers/module/layer.h"

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

struct ELUOptions {
  double alpha = 1;
};
class ELU : public FunctionLayer {
 public:
  explicit ELU(const ELUOptions& options = {});
  explicit ELU(PlainNumber auto alpha) : ELU(ELUOptions{double(alpha)}) {}
};
struct CELUOptions {
  double alpha = 1;  // not 0
};
class CELU : public FunctionLayer {
 public:
  explicit CELU(const CELUOptions& options = {});
  explicit CELU(PlainNumber auto alpha) : CELU(CELUOptions{double(alpha)}) {}
};
struct LeakyReLUOptions {
  double negative_slope = 0.01;
};
class LeakyReLU : public FunctionLayer {
 public:
  explicit LeakyReLU(const LeakyReLUOptions& options = {});
  explicit LeakyReLU(PlainNumber auto negative_slope) : LeakyReLU(LeakyReLUOptions{double(negative_slope)}) {}
};
struct HardtanhOptions {
  double min_val = -1, max_val = 1;  // min_val < max_val
};
class Hardtanh : public FunctionLayer {
 public:
  explicit Hardtanh(const HardtanhOptions& options = {});
  Hardtanh(PlainNumber auto min_val, PlainNumber auto max_val) : Hardtanh(HardtanhOptions{double(min_val), double(max_val)}) {}
};
struct HardshrinkOptions {
  double lambd = 0.5;
};
class Hardshrink : public FunctionLayer {
 public:
  explicit Hardshrink(const HardshrinkOptions& options = {});
  explicit Hardshrink(PlainNumber auto lambd) : Hardshrink(HardshrinkOptions{double(lambd)}) {}
};
struct SoftshrinkOptions {
  double lambd = 0.5;  // >= 0
};
class Softshrink : public FunctionLayer {
 public:
  explicit Softshrink(const SoftshrinkOptions& options = {});
  explicit Softshrink(PlainNumber auto lambd) : Softshrink(SoftshrinkOptions{double(lambd)}) {}
};
struct SoftplusOptions {
  double beta = 1, threshold = 20;
};
class Softplus : public FunctionLayer {
 public:
  explicit Softplus(const SoftplusOptions& options = {});
  explicit Softplus(PlainNumber auto beta, PlainNumber auto threshold)
      : Softplus(SoftplusOptions{double(beta), double(threshold)}) {}
  explicit Softplus(PlainNumber auto beta) : Softplus(SoftplusOptions{.beta = double(beta)}) {}
};
class Threshold : public FunctionLayer {
 public:
  Threshold(PlainNumber auto threshold, PlainNumber auto value) : Threshold(Numbers{double(threshold), double(value)}) {}

 private:
  struct Numbers {
    double threshold, value;
  };
  explicit Threshold(Numbers numbers);
};
struct GLUOptions {
  int64_t dim = -1;
};
class GLU : public FunctionLayer {
 public:
  explicit GLU(const GLUOptions& options = {});
  explicit GLU(Whole dim) : GLU(GLUOptions{dim}) {}
};

struct GELUOptions {
  std::string approximate = "none";  // (erf) or "tanh"
};
class GELU : public FunctionLayer {
 public:
  explicit GELU(const GELUOptions& options = {});
  explicit GELU(const std::convertible_to<std::string> auto& approximate) : GELU(GELUOptions{approximate}) {}
  bool is_tanh() const { return tanh_; }

 private:
  bool tanh_;
};

// Along a dimension; the last one unless another is named, where PyTorch chooses one by the rank, with a warning.
struct SoftmaxOptions {
  int64_t dim = -1;
};
class Softmax : public FunctionLayer {
 public:
  explicit Softmax(const SoftmaxOptions& options = {});
  explicit Softmax(Whole dim) : Softmax(SoftmaxOptions{dim}) {}
};
class Softmin : public FunctionLayer {
 public:
  explicit Softmin(const SoftmaxOptions& options = {});
  explicit Softmin(Whole dim) : Softmin(SoftmaxOptions{dim}) {}
};
class LogSoftmax : public FunctionLayer {
 public:
  explicit LogSoftmax(const SoftmaxOptions& options = {});
  explicit LogSoftmax(Whole dim) : LogSoftmax(SoftmaxOptions{dim}) {}
};
class Softmax2d : public FunctionLayer {
 public:
  Softmax2d();
};  // over the channels of [N, C, H, W] or [C, H, W]

// x, or weight x for x <= 0. weight: [num_parameters], which is 1 or the number of channels, dimension 1 of the input.
struct PReLUOptions {
  int64_t num_parameters = 1;
  double init = 0.25;
};
class PReLU : public Module {
 public:
  explicit PReLU(const PReLUOptions& options = {});
  explicit PReLU(Whole num_parameters, double init = 0.25) : PReLU(PReLUOptions{num_parameters, init}) {}
  Tensor forward(const Tensor& x) override { return prelu(x, weight); }
  bool is_recordable() const override { return true; }
  std::string describe() const override;
  Parameter weight;
};

// x, or s x for x <= 0: in training s is drawn for each element from [lower, upper], else it is their mean.
struct RReLUOptions {
  double lower = 1.0 / 8, upper = 1.0 / 3;
};
class RReLU : public Module {
 public:
  explicit RReLU(const RReLUOptions& options = {});
  RReLU(PlainNumber auto lower, PlainNumber auto upper) : RReLU(RReLUOptions{double(lower), double(upper)}) {}
  Tensor forward(const Tensor& x) override { return rrelu(x, lower_, upper_, training()); }
  bool is_recordable() const override { return true; }
  std::string describe() const override;

 private:
  double lower_, upper_;
};

}  // namespace halfstep
