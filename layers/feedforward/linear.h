// SPDX-License-Identifier: Apache-2.0
// Fully connected layers.
#pragma once

#include <concepts>
#include <string>

#include "layers/module/layer.h"

namespace halfstep {

struct LinearOptions {
  bool bias = true;
  static const OptionList<LinearOptions>& list();
};
// Computes y = x W^T + b: x [..., in] -> y [..., out]. weight: [out, in], bias: [out], both from U(-1/sqrt(in), 1/sqrt(in)).
class Linear : public Module {
 public:
  using Options = LinearOptions;
  static constexpr const char* kName = "Linear";
  static const Arguments<int64_t, int64_t>& arguments();
  Linear(Integer in_features, Integer out_features, const LinearOptions& options = {}, Generator* generator = nullptr);
  Linear(Integer in_features, Integer out_features, std::same_as<bool> auto bias)
      : Linear(in_features, out_features, LinearOptions{bias}) {}
  Tensor forward(const Tensor& x) override { return linear(x, weight, bias); }
  Tensor forward_relu(const Tensor& x) { return linear(x, weight, bias, /*relu=*/true); }
  // Computes relu(layer(x)), in one pass if no hook needs the value between.
  Tensor relu(const Tensor& x) {
    return has_hooks() || autocast::any_policies() ? halfstep::relu((*this)(x))
                                                 : run([this](const Tensor& in) { return forward_relu(in); }, x);
  }
  bool is_recordable() const override { return true; }
  std::string describe() const override;
  int64_t in_features() const { return weight.size(1); }
  int64_t out_features() const { return weight.size(0); }
  Parameter weight, bias;  // bias undefined with .bias = false
};

struct BilinearOptions {
  bool bias = true;
  static const OptionList<BilinearOptions>& list();
};
// Computes y_o = x1 W_o x2 + b_o: x1 [..., in1], x2 [..., in2] -> y [..., out]. weight: [out, in1, in2], bias: [out], both from
// U(-1/sqrt(in1), 1/sqrt(in1)).
class Bilinear : public ModuleOf<Bilinear> {
 public:
  static const Arguments<int64_t, int64_t, int64_t>& arguments();
  Bilinear(Integer in1_features, Integer in2_features, Integer out_features, const BilinearOptions& options = {},
           Generator* generator = nullptr);
  Tensor forward(const Tensor& x1, const Tensor& x2) { return bilinear(x1, x2, weight, bias); }
  bool is_recordable() const override { return true; }
  std::string describe() const override;
  Parameter weight, bias;  // bias undefined with .bias = false
};

}  // namespace halfstep
