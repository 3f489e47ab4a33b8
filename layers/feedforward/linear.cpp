// SPDX-License-Identifier: Apache-2.0
#include "layers/feedforward/linear.h"

#include <cmath>

namespace halfstep {

HALFSTEP_OPTIONS(LinearOptions, option("bias", &O::bias, "add a bias"))
HALFSTEP_OPTIONS(BilinearOptions, option("bias", &O::bias, "add a bias"))
HALFSTEP_ARGUMENTS(Linear, argument("in_features", "width of the input").at_least(1),
                   argument("out_features", "width of the output").at_least(1))
HALFSTEP_ARGUMENTS(Bilinear, argument("in1_features", "width of the first input").at_least(1),
                   argument("in2_features", "width of the second input").at_least(1),
                   argument("out_features", "width of the output").at_least(1))

Linear::Linear(Integer in, Integer out, const LinearOptions& o, Generator* generator) {
  const int64_t in_features = in, out_features = out;
  check_arguments(kName, arguments(), in_features, out_features);
  MemoryScope tag(MemoryTag::parameters);
  // Draws kaiming_uniform_(weight, a = sqrt(5)), as PyTorch does: the gain sqrt(1/3) cancels the sqrt(3).
  const double bound = 1 / std::sqrt(double(in_features));
  const auto from_uniform = [&](const Shape& shape) {
    const Tensor made = Tensor::empty(shape);
    uniform_(made, -bound, bound, generator);
    return made;
  };
  weight = register_parameter("weight", from_uniform({out_features, in_features}));
  bias = register_parameter("bias", o.bias ? from_uniform({out_features}) : Tensor());
}

std::string Linear::describe() const {
  const LinearOptions shown{bias.defined()};
  return Repr("Linear").arg("in_features", weight.size(1)).arg("out_features", weight.size(0)).options(shown).str();
}

Bilinear::Bilinear(Integer in1, Integer in2, Integer out, const BilinearOptions& o, Generator* generator) {
  const int64_t in1_features = in1, in2_features = in2, out_features = out;
  check_arguments("Bilinear", arguments(), in1_features, in2_features, out_features);
  MemoryScope tag(MemoryTag::parameters);
  const double bound = 1 / std::sqrt(double(in1_features));
  const auto from_uniform = [&](const Shape& shape) {
    const Tensor made = Tensor::empty(shape);
    uniform_(made, -bound, bound, generator);
    return made;
  };
  weight = register_parameter("weight", from_uniform({out_features, in1_features, in2_features}));
  bias = register_parameter("bias", o.bias ? from_uniform({out_features}) : Tensor());
}

std::string Bilinear::describe() const {
  return Repr("Bilinear")
      .arg("in1_features", weight.size(1))
      .arg("in2_features", weight.size(2))
      .arg("out_features", weight.size(0))
      .options(BilinearOptions{bias.defined()})
      .str();
}

}  // namespace halfstep
