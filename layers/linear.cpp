#include "layers/linear.h"

#include <cmath>

#include "layers/layer.h"

namespace halfstep {

Linear::Linear(const LinearOptions& o, Generator* generator) {
  check<ValueError>(o.in_features > 0 && o.out_features > 0, "Linear", "in_features and out_features must be >= 1, got ",
                    o.in_features, " and ", o.out_features);
  MemoryScope tag(MemoryTag::parameters);
  // kaiming_uniform_(weight, a = sqrt(5)), as PyTorch: the gain sqrt(1/3) cancels the sqrt(3).
  const double bound = 1 / std::sqrt(double(o.in_features));
  weight = Tensor::empty({o.out_features, o.in_features});
  uniform_(weight, -bound, bound, generator);
  if (o.bias) {
    bias = Tensor::empty({o.out_features});
    uniform_(bias, -bound, bound, generator);
  }
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}

std::string Linear::describe() const {
  return Repr("Linear").arg("in_features", weight.size(1)).arg("out_features", weight.size(0)).arg("bias", bias.defined()).str();
}

}  // namespace halfstep
