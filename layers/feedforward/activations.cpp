// SPDX-License-Identifier: Apache-2.0
#include "layers/feedforward/activations.h"

namespace halfstep {

ELU::ELU(const ELUOptions& o)
    : FunctionLayer(Repr("ELU").arg("alpha", o.alpha).str(), [=](const Tensor& x) { return elu(x, o.alpha); }) {}

CELU::CELU(const CELUOptions& o)
    : FunctionLayer(Repr("CELU").arg("alpha", o.alpha).str(), [=](const Tensor& x) { return celu(x, o.alpha); }) {
  check<ValueError>(o.alpha != 0, "CELU", "alpha must not be 0");
}

LeakyReLU::LeakyReLU(const LeakyReLUOptions& o)
    : FunctionLayer(Repr("LeakyReLU").arg("negative_slope", o.negative_slope).str(),
                    [=](const Tensor& x) { return leaky_relu(x, o.negative_slope); }) {}

Hardtanh::Hardtanh(const HardtanhOptions& o)
    : FunctionLayer(Repr("Hardtanh").arg("min_val", o.min_val).arg("max_val", o.max_val).str(),
                    [=](const Tensor& x) { return hardtanh(x, o.min_val, o.max_val); }) {
  check<ValueError>(o.min_val < o.max_val, "Hardtanh", "min_val must be below max_val, got ", o.min_val, " and ", o.max_val);
}

Hardshrink::Hardshrink(const HardshrinkOptions& o)
    : FunctionLayer(Repr("Hardshrink").arg(o.lambd).str(), [=](const Tensor& x) { return hardshrink(x, o.lambd); }) {}

Softshrink::Softshrink(const SoftshrinkOptions& o)
    : FunctionLayer(Repr("Softshrink").arg(o.lambd).str(), [=](const Tensor& x) { return softshrink(x, o.lambd); }) {
  check<ValueError>(o.lambd >= 0, "Softshrink", "lambd must be >= 0, got ", o.lambd);
}

Softplus::Softplus(const SoftplusOptions& o)
    : FunctionLayer(Repr("Softplus").arg("beta", o.beta).arg("threshold", o.threshold).str(),
                    [=](const Tensor& x) { return softplus(x, o.beta, o.threshold); }) {}

Threshold::Threshold(Numbers n)
    : FunctionLayer(Repr("Threshold").arg("threshold", n.threshold).arg("value", n.value).str(),
                    [=](const Tensor& x) { return threshold(x, n.threshold, n.value); }) {}

GLU::GLU(const GLUOptions& o)
    : FunctionLayer(Repr("GLU").arg("dim", o.dim).str(), [=](const Tensor& x) { return glu(x, o.dim); }) {}

GELU::GELU(const GELUOptions& o)
    : FunctionLayer(Repr("GELU").arg("approximate", "'" + o.approximate + "'").str(), o.approximate == "tanh" ? gelu_tanh : gelu),
      tanh_(o.approximate == "tanh") {
  check<ValueError>(o.approximate == "none" || tanh_, "GELU", "approximate must be \"none\" or \"tanh\", got \"", o.approximate,
                    '"');
}

Softmax::Softmax(const SoftmaxOptions& o)
    : FunctionLayer(Repr("Softmax").arg("dim", o.dim).str(), [=](const Tensor& x) { return softmax(x, o.dim); }) {}

Softmin::Softmin(const SoftmaxOptions& o)
    : FunctionLayer(Repr("Softmin").arg("dim", o.dim).str(), [=](const Tensor& x) { return softmin(x, o.dim); }) {}

LogSoftmax::LogSoftmax(const SoftmaxOptions& o)
    : FunctionLayer(Repr("LogSoftmax").arg("dim", o.dim).str(), [=](const Tensor& x) { return log_softmax(x, o.dim); }) {}

Softmax2d::Softmax2d()
    : FunctionLayer("Softmax2d()", [](const Tensor& x) {
        check_rank("Softmax2d", x, 3, 4);
        return softmax(x, -3);
      }) {}

PReLU::PReLU(const PReLUOptions& o) {
  check<ValueError>(o.num_parameters >= 1, "PReLU", "num_parameters must be >= 1, got ", o.num_parameters);
  MemoryScope tag(MemoryTag::parameters);
  weight = register_parameter("weight", full({o.num_parameters}, o.init));
}

std::string PReLU::describe() const { return Repr("PReLU").arg("num_parameters", weight.numel()).str(); }

RReLU::RReLU(const RReLUOptions& o) : lower_(o.lower), upper_(o.upper) {
  check<ValueError>(o.lower <= o.upper, "RReLU", "lower must not be above upper, got ", o.lower, " and ", o.upper);
}

std::string RReLU::describe() const { return Repr("RReLU").arg("lower", lower_).arg("upper", upper_).str(); }

}  // namespace halfstep
