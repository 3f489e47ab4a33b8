// SPDX-License-Identifier: Apache-2.0
// Convolutions. The ops are in framework/ops/window/convolution.h: x [N, C, in...] or [C, in...] -> [N, out_channels, out...] with
// out = floor((in + 2 padding - dilation (kernel - 1) - 1) / stride) + 1.
//
//   Conv2d stem(3, 64, 7, {.stride = 2, .padding = 3, .bias = false});
//   Conv2d same(64, 64, 3, 1, 1);  // stride and padding by position
//
// Parameters: weight, and bias [out_channels] unless .bias = false, both from U(-b, b), b = 1/sqrt(weight.size(1) * the kernel's
// size). Arguments for dimensions are one number or one each. Throws ValueError for channels that groups does not divide, for
// sizes and strides below 1, negative padding, and the combinations that PyTorch refuses.
#pragma once

#include <concepts>
#include <string>

#include "framework/ops/window/laid_weights.h"
#include "layers/module/layer.h"

namespace halfstep {

struct ConvLayerOptions {
  ByName by_name = ByName();
  Sizes stride = 1;
  ConvPadding padding = 0;
  Sizes dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  std::string padding_mode = "zeros";
  static const OptionList<ConvLayerOptions>& list();
};
struct ConvTransposeLayerOptions {
  ByName by_name = ByName();
  Sizes stride = 1;
  Sizes padding = 0;
  Sizes output_padding = 0;
  int64_t groups = 1;
  bool bias = true;
  Sizes dilation = 1;
  static const OptionList<ConvTransposeLayerOptions>& list();
};
template <>
struct OptionMember<ConvPadding> {
  static constexpr OptionKind kKind = OptionKind::sizes;
  static OptionValue get(const ConvPadding& member);
  static bool put(ConvPadding& member, const OptionValue& value);  // sizes or a name
};

// weight: [out_channels, in_channels / groups, kernel...]
class ConvNd : public Module {
 public:
  static const Arguments<int64_t, int64_t, Sizes>& arguments();
  Tensor forward(const Tensor& x) override { return convolve(x, weight, bias, /*relu=*/false, /*folded=*/false, laid_); }
  Tensor forward_relu(const Tensor& x) { return convolve(x, weight, bias, /*relu=*/true, /*folded=*/false, laid_); }
  // Computes relu(layer(x)), in one pass if no hook needs the value between.
  Tensor relu(const Tensor& x) {
    return has_hooks() || autocast::any_policies() ? halfstep::relu((*this)(x))
                                                 : run([this](const Tensor& in) { return forward_relu(in); }, x);
  }
  // Calls the layer with another weight and bias of the same shapes, into which a normalisation is folded.
  Tensor call_with(const Tensor& x, const Tensor& other_weight, const Tensor& other_bias, bool relu, LaidWeights& laid) {
    return run([&](const Tensor& in) { return convolve(in, other_weight, other_bias, relu, /*folded=*/true, laid); }, x);
  }
  bool is_recordable() const override { return true; }
  std::string describe() const override;
  int64_t in_channels() const { return weight.size(1) * options_.groups; }
  int64_t out_channels() const { return weight.size(0); }
  Dims kernel_size() const { return Dims(weight.shape().span().subspan(2)); }
  Parameter weight, bias;  // bias undefined with .bias = false

 protected:
  ConvNd(const char* type, int dims, int64_t in_channels, int64_t out_channels, const Sizes& kernel_size,
         const ConvLayerOptions& options, Generator* generator);

 private:
  Tensor convolve(const Tensor& x, const Tensor& w, const Tensor& b, bool relu, bool folded, LaidWeights& laid) const;

  const char* type_;
  int dims_;
  ConvOptions options_;
  ConvLayerOptions given_;
  Dims around_;  // padding that pad() adds before the op, unless it is of zeros
  LaidWeights laid_;
};
// Conv2d(3, 8, 3, {.padding = 1}), or by position Conv2d(3, 8, 3, stride, padding, {.bias = false}).
template <int n>
class Conv : public ConvNd, public OfDims<"Conv", n> {
 public:
  using Options = ConvLayerOptions;
  using OfDims<"Conv", n>::kName;
  Conv(Integer in_channels, Integer out_channels, const Sizes& kernel_size, const ConvLayerOptions& options = {},
       Generator* generator = nullptr)
      : ConvNd(kName, n, in_channels, out_channels, kernel_size, options, generator) {}
  Conv(Integer in_channels, Integer out_channels, const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride,
       const ConvLayerOptions& rest = {})
      : Conv(in_channels, out_channels, kernel_size, with_option(rest, "stride", &Options::stride, Sizes(stride))) {}
  Conv(Integer in_channels, Integer out_channels, const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride,
       const std::convertible_to<ConvPadding> auto& padding, const ConvLayerOptions& rest = {})
      : Conv(in_channels, out_channels, kernel_size, stride,
             with_option(rest, "padding", &Options::padding, ConvPadding(padding))) {}
};
using Conv1d = Conv<1>;
using Conv2d = Conv<2>;
using Conv3d = Conv<3>;

// weight: [in_channels, out_channels / groups, kernel...]. out = (in - 1) stride - 2 padding + dilation (kernel - 1) +
// output_padding + 1. output_size, in place of output_padding, is the output's shape or its spatial part; it may exceed the size
// without output_padding by up to stride - 1, else ShapeError.
class ConvTransposeNd : public Module {
 public:
  static const Arguments<int64_t, int64_t, Sizes>& arguments() { return ConvNd::arguments(); }
  using Call = Tensor(const Tensor&, const Dims&);
  Tensor forward(const Tensor& x) override;
  virtual Tensor forward(const Tensor& x, const Dims& output_size);
  using Module::operator();
  Tensor operator()(const Tensor& x, const Dims& output_size) {
    return run([this](const Tensor& in, const Dims& size) { return forward(in, size); }, x, output_size);
  }
  bool is_recordable() const override { return true; }
  std::string describe() const override;
  Parameter weight, bias;

 protected:
  ConvTransposeNd(const char* type, int dims, int64_t in_channels, int64_t out_channels, const Sizes& kernel_size,
                  const ConvTransposeLayerOptions& options, Generator* generator);

 private:
  const char* type_;
  int dims_;
  ConvTransposeOptions options_;
  ConvTransposeLayerOptions given_;
};
// ConvTranspose2d(8, 3, 2, {.stride = 2}), or by position ConvTranspose2d(8, 3, 3, stride, padding).
template <int n>
class ConvTranspose : public ConvTransposeNd, public OfDims<"ConvTranspose", n> {
 public:
  using Options = ConvTransposeLayerOptions;
  using OfDims<"ConvTranspose", n>::kName;
  ConvTranspose(Integer in_channels, Integer out_channels, const Sizes& kernel_size, const ConvTransposeLayerOptions& options = {},
                Generator* generator = nullptr)
      : ConvTransposeNd(kName, n, in_channels, out_channels, kernel_size, options, generator) {}
  ConvTranspose(Integer in_channels, Integer out_channels, const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride,
                const ConvTransposeLayerOptions& rest = {})
      : ConvTranspose(in_channels, out_channels, kernel_size, with_option(rest, "stride", &Options::stride, Sizes(stride))) {}
  ConvTranspose(Integer in_channels, Integer out_channels, const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride,
                const std::convertible_to<Sizes> auto& padding, const ConvTransposeLayerOptions& rest = {})
      : ConvTranspose(in_channels, out_channels, kernel_size, stride,
                      with_option(rest, "padding", &Options::padding, Sizes(padding))) {}
};
using ConvTranspose1d = ConvTranspose<1>;
using ConvTranspose2d = ConvTranspose<2>;
using ConvTranspose3d = ConvTranspose<3>;

}  // namespace halfstep
