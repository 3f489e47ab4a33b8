// SPDX-License-Identifier: Apache-2.0
// Activations. Constructor arguments, names and defaults are PyTorch's, but `inplace` is missing.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

#include "layers/module/layer.h"

namespace halfstep {

using ReLU = PlainLayer<"ReLU", relu>;
using ReLU6 = PlainLayer<"ReLU6", relu6>;
using Sigmoid = PlainLayer<"Sigmoid", sigmoid>;
using LogSigmoid = PlainLayer<"LogSigmoid", logsigmoid>;
using Tanh = PlainLayer<"Tanh", tanh>;
using Tanhshrink = PlainLayer<"Tanhshrink", tanhshrink>;
using SiLU = PlainLayer<"SiLU", silu>;
using Mish = PlainLayer<"Mish", mish>;
using SELU = PlainLayer<"SELU", selu>;
using Hardsigmoid = PlainLayer<"Hardsigmoid", hardsigmoid>;
using Hardswish = PlainLayer<"Hardswish", hardswish>;
using Softsign = PlainLayer<"Softsign", softsign>;
Tensor softmax_of_image(const Tensor& x);  // along the channels of [N, C, H, W] or [C, H, W]
using Softmax2d = PlainLayer<"Softmax2d", softmax_of_image>;

// LeakyReLU and others: the rows of pointwise.def whose parameters have names there.
#define HS_ONE_OPTION(row, layer, ...) using layer = OptionLayer<#layer, layer##Options>;
#define HS_TWO_OPTIONS(row, layer, ...) using layer = OptionLayer<#layer, layer##Options>;
#include "framework/math/pointwise.def"

struct HardtanhOptions {
  double min_val = -1, max_val = 1;
  static const OptionList<HardtanhOptions>& list();
  void(check)(std::string_view name) const;  // min_val < max_val
  Tensor operator()(const Tensor& x) const { return hardtanh(x, min_val, max_val); }
};
using Hardtanh = OptionLayer<"Hardtanh", HardtanhOptions>;

class Threshold : public FunctionLayer {
 public:
  static constexpr const char* kName = "Threshold";
  static const Arguments<double, double>& arguments();
  Threshold(PlainNumber auto threshold, PlainNumber auto value) : Threshold(Numbers{double(threshold), double(value)}) {}

 private:
  struct Numbers {
    double threshold, value;
  };
  explicit Threshold(Numbers numbers);
};

struct GLUOptions {
  int64_t dim = -1;
  static const OptionList<GLUOptions>& list();
  Tensor operator()(const Tensor& x) const { return glu(x, dim); }
};
using GLU = OptionLayer<"GLU", GLUOptions>;

struct GELUOptions {
  std::string approximate = "none";
  static const OptionList<GELUOptions>& list();
  bool is_tanh() const { return approximate == "tanh"; }
  Tensor operator()(const Tensor& x) const { return is_tanh() ? gelu_tanh(x) : gelu(x); }
};
class GELU : public OptionLayer<"GELU", GELUOptions> {
 public:
  explicit GELU(const GELUOptions& options = {}) : OptionLayer(options), tanh_(options.is_tanh()) {}
  template <FirstOption<GELUOptions> T>
  explicit GELU(const T& approximate) : GELU(GELUOptions{approximate}) {}
  bool is_tanh() const { return tanh_; }

 private:
  bool tanh_;
};

// dim: -1 by default; PyTorch instead chooses one by the rank, and warns.
struct SoftmaxOptions {
  int64_t dim = -1;
  static const OptionList<SoftmaxOptions>& list();
};
inline Tensor softmax_along(const Tensor& x, const SoftmaxOptions& o) { return softmax(x, o.dim); }
inline Tensor softmin_along(const Tensor& x, const SoftmaxOptions& o) { return softmin(x, o.dim); }
inline Tensor log_softmax_along(const Tensor& x, const SoftmaxOptions& o) { return log_softmax(x, o.dim); }
using Softmax = OptionLayer<"Softmax", SoftmaxOptions, softmax_along>;
using Softmin = OptionLayer<"Softmin", SoftmaxOptions, softmin_along>;
using LogSoftmax = OptionLayer<"LogSoftmax", SoftmaxOptions, log_softmax_along>;

// Computes x for x > 0, else weight x. weight: [num_parameters], which is 1 or the number of channels, dimension 1 of the input.
struct PReLUOptions {
  int64_t num_parameters = 1;
  double init = 0.25;
  static const OptionList<PReLUOptions>& list();
};
class PReLU : public Module {
 public:
  using Options = PReLUOptions;
  static constexpr const char* kName = "PReLU";
  explicit PReLU(const PReLUOptions& options = {});
  explicit PReLU(Integer num_parameters) : PReLU(PReLUOptions{num_parameters}) {}
  Tensor forward(const Tensor& x) override { return prelu(x, weight); }
  bool is_recordable() const override { return true; }
  std::string describe() const override;
  Parameter weight;
};

// Computes x for x > 0, else s x. In training s is drawn for each element from [lower, upper], in evaluation it is their mean.
struct RReLUOptions {
  double lower = 1.0 / 8, upper = 1.0 / 3;
  static const OptionList<RReLUOptions>& list();
  void(check)(std::string_view name) const;  // lower <= upper
};
class RReLU : public Module {
 public:
  using Options = RReLUOptions;
  static constexpr const char* kName = "RReLU";
  explicit RReLU(const RReLUOptions& options = {}) : options_(options) { check_options(kName, options); }
  Tensor forward(const Tensor& x) override { return rrelu(x, options_.lower, options_.upper, training()); }
  bool is_recordable() const override { return true; }
  std::string describe() const override { return Repr(kName).options(options_).str(); }

 private:
  RReLUOptions options_;
};

}  // namespace halfstep
