// SPDX-License-Identifier: Apache-2.0
#include "layers/activations.h"

namespace halfstep {

ELU::ELU(double alpha) : FunctionLayer(Repr("ELU").arg("alpha", alpha).str(), [=](const Tensor& x) { return elu(x, alpha); }) {}

CELU::CELU(double alpha) : FunctionLayer(Repr("CELU").arg("alpha", alpha).str(), [=](const Tensor& x) { return celu(x, alpha); }) {
  check<ValueError>(alpha != 0, "CELU", "alpha must not be 0");
}

LeakyReLU::LeakyReLU(double negative_slope)
    : FunctionLayer(Repr("LeakyReLU").arg("negative_slope", negative_slope).str(),
                    [=](const Tensor& x) { return leaky_relu(x, negative_slope); }) {}

Hardtanh::Hardtanh(double min_val, double max_val)
    : FunctionLayer(Repr("Hardtanh").arg("min_val", min_val).arg("max_val", max_val).str(),
                    [=](const Tensor& x) { return hardtanh(x, min_val, max_val); }) {
  check<ValueError>(min_val < max_val, "Hardtanh", "min_val must be below max_val, got ", min_val, " and ", max_val);
}

Hardshrink::Hardshrink(double lambd)
    : FunctionLayer(Repr("Hardshrink").arg(lambd).str(), [=](const Tensor& x) { return hardshrink(x, lambd); }) {}

Softshrink::Softshrink(double lambd)
    : FunctionLayer(Repr("Softshrink").arg(lambd).str(), [=](const Tensor& x) { return softshrink(x, lambd); }) {
  check<ValueError>(lambd >= 0, "Softshrink", "lambd must be >= 0, got ", lambd);
}

Softplus::Softplus(double beta, double threshold)
    : FunctionLayer(Repr("Softplus").arg("beta", beta).arg("threshold", threshold).str(),
                    [=](const Tensor& x) { return softplus(x, beta, threshold); }) {}

Threshold::Threshold(double limit, double value)
    : FunctionLayer(Repr("Threshold").arg("threshold", limit).arg("value", value).str(),
                    [=](const Tensor& x) { return threshold(x, limit, value); }) {}

GLU::GLU(int64_t dim) : FunctionLayer(Repr("GLU").arg("dim", dim).str(), [=](const Tensor& x) { return glu(x, dim); }) {}

GELU::GELU(const std::string& approximate)
    : FunctionLayer(Repr("GELU").arg("approximate", "'" + approximate + "'").str(), approximate == "tanh" ? gelu_tanh : gelu),
      tanh_(approximate == "tanh") {
  check<ValueError>(approximate == "none" || tanh_, "GELU", "approximate must be \"none\" or \"tanh\", got \"", approximate, '"');
}

Softmax::Softmax(int64_t dim)
    : FunctionLayer(Repr("Softmax").arg("dim", dim).str(), [=](const Tensor& x) { return softmax(x, dim); }) {}

Softmin::Softmin(int64_t dim)
    : FunctionLayer(Repr("Softmin").arg("dim", dim).str(), [=](const Tensor& x) { return softmin(x, dim); }) {}

LogSoftmax::LogSoftmax(int64_t dim)
    : FunctionLayer(Repr("LogSoftmax").arg("dim", dim).str(), [=](const Tensor& x) { return log_softmax(x, dim); }) {}

Softmax2d::Softmax2d()
    : FunctionLayer("Softmax2d()", [](const Tensor& x) {
        check_rank("Softmax2d", x, 3, 4);
        return softmax(x, -3);
      }) {}

PReLU::PReLU(int64_t num_parameters, double init) {
  check<ValueError>(num_parameters >= 1, "PReLU", "num_parameters must be >= 1, got ", num_parameters);
  MemoryScope tag(MemoryTag::parameters);
  weight = register_parameter("weight", full({num_parameters}, init));
}

std::string PReLU::describe() const { return Repr("PReLU").arg("num_parameters", weight.numel()).str(); }

RReLU::RReLU(double lower, double upper) : lower_(lower), upper_(upper) {
  check<ValueError>(lower <= upper, "RReLU", "lower must not be above upper, got ", lower, " and ", upper);
}

std::string RReLU::describe() const { return Repr("RReLU").arg("lower", lower_).arg("upper", upper_).str(); }

}  // namespace halfstep
