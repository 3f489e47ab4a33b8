// SPDX-License-Identifier: Apache-2.0
// Fully connected layers.
#pragma once

#include <string>

#include "framework/ops/ops.h"
#include "layers/module.h"

namespace halfstep {

struct LinearOptions {
  int64_t in_features, out_features;
  bool bias = true;
};
// y = x W^T + b. weight: [out, in], bias: [out], both from U(-1/sqrt(in), 1/sqrt(in)).
class Linear : public Module {
 public:
  explicit Linear(const LinearOptions& options, Generator* generator = nullptr);
  Linear(int64_t in_features, int64_t out_features, bool bias = true) : Linear(LinearOptions{in_features, out_features, bias}) {}
  Tensor forward(const Tensor& x) override { return linear(x, weight, bias); }
  Tensor forward_relu(const Tensor& x) { return linear(x, weight, bias, /*relu=*/true); }
  // relu(layer(x)), in one pass if no hook needs the value between.
  Tensor relu(const Tensor& x) {
    return has_hooks() ? halfstep::relu((*this)(x)) : run([this](const Tensor& in) { return forward_relu(in); }, x);
  }
  bool is_recordable() const override { return true; }
  std::string describe() const override;
  Parameter weight, bias;  // bias undefined without one
};

// y_o = x1 W_o x2 + b_o. weight: [out, in1, in2], bias: [out], both from U(-1/sqrt(in1), 1/sqrt(in1)). x1 [..., in1], x2 [...,
// in2].
class Bilinear : public ModuleOf<Bilinear> {
 public:
  Bilinear(int64_t in1_features, int64_t in2_features, int64_t out_features, bool bias = true, Generator* generator = nullptr);
  Tensor forward(const Tensor& x1, const Tensor& x2) { return bilinear(x1, x2, weight, bias); }
  bool is_recordable() const override { return true; }
  std::string describe() const override;
  Parameter weight, bias;  // bias undefined without one
};

}  // namespace halfstep
