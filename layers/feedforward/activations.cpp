// SPDX-License-Identifier: Apache-2.0
#include "layers/feedforward/activations.h"

namespace halfstep {

HALFSTEP_OPTIONS(HardtanhOptions, option("min_val", &O::min_val, "least"), option("max_val", &O::max_val, "most"))
void HardtanhOptions::check(std::string_view name) const {
  halfstep::check<ValueError>(min_val < max_val, name, "min_val must be below max_val, got ", min_val, " and ", max_val);
}
HALFSTEP_OPTIONS(GLUOptions, option("dim", &O::dim, "dimension; 0 is the batch"))
HALFSTEP_OPTIONS(GELUOptions, option("approximate", &O::approximate, "\"none\": by erf").one_of({"none", "tanh"}).in_quotes())
HALFSTEP_OPTIONS(SoftmaxOptions, option("dim", &O::dim, "dimension; 0 is the batch"))
HALFSTEP_OPTIONS(PReLUOptions, option("num_parameters", &O::num_parameters, "1, or one per channel").at_least(1),
                 option("init", &O::init, "first weight").unseen())
HALFSTEP_OPTIONS(RReLUOptions, option("lower", &O::lower, "bound of s"), option("upper", &O::upper, "bound of s"))
void RReLUOptions::check(std::string_view name) const {
  halfstep::check<ValueError>(lower <= upper, name, "lower must not be above upper, got ", lower, " and ", upper);
}

HALFSTEP_ARGUMENTS(Threshold, argument("threshold", "bound"), argument("value", "value that replaces x"))
Threshold::Threshold(Numbers n)
    : FunctionLayer(Repr("Threshold").arg("threshold", n.threshold).arg("value", n.value).str(),
                    [=](const Tensor& x) { return threshold(x, n.threshold, n.value); }) {}

Tensor softmax_of_image(const Tensor& x) {
  check_rank("Softmax2d", x, 3, 4);
  return softmax(x, -3);
}

PReLU::PReLU(const PReLUOptions& o) {
  check_options(kName, o);
  MemoryScope tag(MemoryTag::parameters);
  weight = register_parameter("weight", full({o.num_parameters}, o.init));
}

std::string PReLU::describe() const { return Repr(kName).arg("num_parameters", weight.numel()).str(); }

}  // namespace halfstep
