// SPDX-License-Identifier: Apache-2.0
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

Bilinear::Bilinear(int64_t in1_features, int64_t in2_features, int64_t out_features, bool with_bias, Generator* generator) {
  check<ValueError>(in1_features > 0 && in2_features > 0 && out_features > 0, "Bilinear",
                    "in1_features, in2_features and out_features must be >= 1, got ", in1_features, ", ", in2_features, " and ",
                    out_features);
  MemoryScope tag(MemoryTag::parameters);
  const double bound = 1 / std::sqrt(double(in1_features));
  weight = Tensor::empty({out_features, in1_features, in2_features});
  uniform_(weight, -bound, bound, generator);
  if (with_bias) {
    bias = Tensor::empty({out_features});
    uniform_(bias, -bound, bound, generator);
  }
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}

std::string Bilinear::describe() const {
  return Repr("Bilinear")
      .arg("in1_features", weight.size(1))
      .arg("in2_features", weight.size(2))
      .arg("out_features", weight.size(0))
      .arg("bias", bias.defined())
      .str();
}

}  // namespace halfstep
