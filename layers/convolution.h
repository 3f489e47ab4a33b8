// SPDX-License-Identifier: Apache-2.0
// Convolutions. Shapes are those of the ops, framework/ops/window/convolution.h: inputs are [N, C, in...] or [C, in...].
//
//   Conv2d stem(3, 64, 7, {.stride = 2, .padding = 3, .bias = false});
//   Conv2d same(64, 64, 3, 1, 1, {.bias = false});  // stride and padding, as Python has them
//
// Parameters: weight, and bias [out_channels] unless without one, both from U(-b, b), b = 1/sqrt(weight.size(1) * the kernel's
// size). Arguments for dimensions are one number or one each. Throws ValueError for channels that groups does not divide, for
// sizes and strides below 1, negative padding, and the combinations that PyTorch refuses.
#pragma once

#include <concepts>
#include <optional>
#include <string>

#include "framework/ops/window/laid_weights.h"
#include "layers/layer.h"

namespace halfstep {

struct ConvLayerOptions {
  ByName by_name = ByName();
  Sizes stride = 1;
  ConvPadding padding = 0;  // or "same" (stride 1 only), "valid"
  Sizes dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  std::string padding_mode = "zeros";  // or reflect, replicate, circular: contents of the padding
};
struct ConvTransposeLayerOptions {
  ByName by_name = ByName();
  Sizes stride = 1;
  Sizes padding = 0;
  Sizes output_padding = 0;
  int64_t groups = 1;
  bool bias = true;
  Sizes dilation = 1;
};
// All arguments by name: Conv2d({.in_channels = 3, .out_channels = 8, .kernel_size = 3, .padding = 1}).
struct ConvArguments {
  ByName by_name = ByName();
  Required<int64_t> in_channels, out_channels;
  Required<Sizes> kernel_size;
  Sizes stride = 1;
  ConvPadding padding = 0;
  Sizes dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  std::string padding_mode = "zeros";
};
struct ConvTransposeArguments {
  ByName by_name = ByName();
  Required<int64_t> in_channels, out_channels;
  Required<Sizes> kernel_size;
  Sizes stride = 1, padding = 0, output_padding = 0;
  int64_t groups = 1;
  bool bias = true;
  Sizes dilation = 1;
};

// weight: [out_channels, in_channels / groups, kernel...]
class ConvNd : public Module {
 public:
  Tensor forward(const Tensor& x) override { return convolve(x, weight, bias, /*relu=*/false, laid_); }
  Tensor forward_relu(const Tensor& x) { return convolve(x, weight, bias, /*relu=*/true, laid_); }
  // relu(layer(x)), in one pass if no hook needs the value between.
  Tensor relu(const Tensor& x) {
    return has_hooks() || autocast::any_policies() ? halfstep::relu((*this)(x))
                                                 : run([this](const Tensor& in) { return forward_relu(in); }, x);
  }
  // The layer with another weight and bias of the same shapes, as a call of this layer.
  Tensor call_with(const Tensor& x, const Tensor& other_weight, const Tensor& other_bias, bool relu, LaidWeights& laid) {
    return run([&](const Tensor& in) { return convolve(in, other_weight, other_bias, relu, laid); }, x);
  }
  bool is_recordable() const override { return true; }
  std::string describe() const override;
  int64_t in_channels() const { return weight.size(1) * options_.groups; }
  int64_t out_channels() const { return weight.size(0); }
  Dims kernel_size() const { return Dims(weight.shape().span().subspan(2)); }
  Parameter weight, bias;  // bias undefined without one

 protected:
  ConvNd(const char* type, int dims, int64_t in_channels, int64_t out_channels, const Sizes& kernel_size,
         const ConvLayerOptions& options, Generator* generator);
  static ConvLayerOptions rest(const ConvArguments& a);
  // The options with these. Throws ValueError if they have others.
  static ConvLayerOptions with(ConvLayerOptions rest, const Sizes& stride, const std::optional<ConvPadding>& padding = {});

 private:
  Tensor convolve(const Tensor& x, const Tensor& w, const Tensor& b, bool relu, LaidWeights& laid) const;

  const char* type_;
  int dims_;
  ConvOptions options_;
  std::string padding_mode_;
  Dims around_;  // padding that pad() adds before the op, if it is not of zeros
  LaidWeights laid_;
};
class Conv1d : public ConvNd {
 public:
  explicit Conv1d(const ConvArguments& a) : Conv1d(*a.in_channels, *a.out_channels, *a.kernel_size, rest(a)) {}
  Conv1d(Whole in_channels, Whole out_channels, const Sizes& kernel_size, const ConvLayerOptions& options = {},
         Generator* generator = nullptr)
      : ConvNd("Conv1d", 1, in_channels, out_channels, kernel_size, options, generator) {}
  Conv1d(Whole in_channels, Whole out_channels, const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride,
         const ConvLayerOptions& rest = {})
      : Conv1d(in_channels, out_channels, kernel_size, with(rest, stride)) {}
  Conv1d(Whole in_channels, Whole out_channels, const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride,
         const std::convertible_to<ConvPadding> auto& padding, const ConvLayerOptions& rest = {})
      : Conv1d(in_channels, out_channels, kernel_size, with(rest, stride, padding)) {}
};
class Conv2d : public ConvNd {
 public:
  explicit Conv2d(const ConvArguments& a) : Conv2d(*a.in_channels, *a.out_channels, *a.kernel_size, rest(a)) {}
  Conv2d(Whole in_channels, Whole out_channels, const Sizes& kernel_size, const ConvLayerOptions& options = {},
         Generator* generator = nullptr)
      : ConvNd("Conv2d", 2, in_channels, out_channels, kernel_size, options, generator) {}
  Conv2d(Whole in_channels, Whole out_channels, const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride,
         const ConvLayerOptions& rest = {})
      : Conv2d(in_channels, out_channels, kernel_size, with(rest, stride)) {}
  Conv2d(Whole in_channels, Whole out_channels, const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride,
         const std::convertible_to<ConvPadding> auto& padding, const ConvLayerOptions& rest = {})
      : Conv2d(in_channels, out_channels, kernel_size, with(rest, stride, padding)) {}
};
class Conv3d : public ConvNd {
 public:
  explicit Conv3d(const ConvArguments& a) : Conv3d(*a.in_channels, *a.out_channels, *a.kernel_size, rest(a)) {}
  Conv3d(Whole in_channels, Whole out_channels, const Sizes& kernel_size, const ConvLayerOptions& options = {},
         Generator* generator = nullptr)
      : ConvNd("Conv3d", 3, in_channels, out_channels, kernel_size, options, generator) {}
  Conv3d(Whole in_channels, Whole out_channels, const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride,
         const ConvLayerOptions& rest = {})
      : Conv3d(in_channels, out_channels, kernel_size, with(rest, stride)) {}
  Conv3d(Whole in_channels, Whole out_channels, const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride,
         const std::convertible_to<ConvPadding> auto& padding, const ConvLayerOptions& rest = {})
      : Conv3d(in_channels, out_channels, kernel_size, with(rest, stride, padding)) {}
};

// weight: [in_channels, out_channels / groups, kernel...]. output_size, in place of output_padding: of the spatial dimensions or of
// all, up to stride - 1 more than without output_padding, else ShapeError; convolutions give the same size for several.
class ConvTransposeNd : public Module {
 public:
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
  static ConvTransposeLayerOptions rest(const ConvTransposeArguments& a);
  static ConvTransposeLayerOptions with(ConvTransposeLayerOptions rest, const Sizes& stride, const Sizes& padding = {});

 private:
  const char* type_;
  int dims_;
  ConvTransposeOptions options_;
};
class ConvTranspose1d : public ConvTransposeNd {
 public:
  explicit ConvTranspose1d(const ConvTransposeArguments& a)
      : ConvTranspose1d(*a.in_channels, *a.out_channels, *a.kernel_size, rest(a)) {}
  ConvTranspose1d(Whole in_channels, Whole out_channels, const Sizes& kernel_size, const ConvTransposeLayerOptions& options = {},
                  Generator* generator = nullptr)
      : ConvTransposeNd("ConvTranspose1d", 1, in_channels, out_channels, kernel_size, options, generator) {}
  ConvTranspose1d(Whole in_channels, Whole out_channels, const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride,
                  const ConvTransposeLayerOptions& rest = {})
      : ConvTranspose1d(in_channels, out_channels, kernel_size, with(rest, stride)) {}
  ConvTranspose1d(Whole in_channels, Whole out_channels, const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride,
                  const std::convertible_to<Sizes> auto& padding, const ConvTransposeLayerOptions& rest = {})
      : ConvTranspose1d(in_channels, out_channels, kernel_size, with(rest, stride, padding)) {}
};
class ConvTranspose2d : public ConvTransposeNd {
 public:
  explicit ConvTranspose2d(const ConvTransposeArguments& a)
      : ConvTranspose2d(*a.in_channels, *a.out_channels, *a.kernel_size, rest(a)) {}
  ConvTranspose2d(Whole in_channels, Whole out_channels, const Sizes& kernel_size, const ConvTransposeLayerOptions& options = {},
                  Generator* generator = nullptr)
      : ConvTransposeNd("ConvTranspose2d", 2, in_channels, out_channels, kernel_size, options, generator) {}
  ConvTranspose2d(Whole in_channels, Whole out_channels, const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride,
                  const ConvTransposeLayerOptions& rest = {})
      : ConvTranspose2d(in_channels, out_channels, kernel_size, with(rest, stride)) {}
  ConvTranspose2d(Whole in_channels, Whole out_channels, const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride,
                  const std::convertible_to<Sizes> auto& padding, const ConvTransposeLayerOptions& rest = {})
      : ConvTranspose2d(in_channels, out_channels, kernel_size, with(rest, stride, padding)) {}
};
class ConvTranspose3d : public ConvTransposeNd {
 public:
  explicit ConvTranspose3d(const ConvTransposeArguments& a)
      : ConvTranspose3d(*a.in_channels, *a.out_channels, *a.kernel_size, rest(a)) {}
  ConvTranspose3d(Whole in_channels, Whole out_channels, const Sizes& kernel_size, const ConvTransposeLayerOptions& options = {},
                  Generator* generator = nullptr)
      : ConvTransposeNd("ConvTranspose3d", 3, in_channels, out_channels, kernel_size, options, generator) {}
  ConvTranspose3d(Whole in_channels, Whole out_channels, const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride,
                  const ConvTransposeLayerOptions& rest = {})
      : ConvTranspose3d(in_channels, out_channels, kernel_size, with(rest, stride)) {}
  ConvTranspose3d(Whole in_channels, Whole out_channels, const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride,
                  const std::convertible_to<Sizes> auto& padding, const ConvTransposeLayerOptions& rest = {})
      : ConvTranspose3d(in_channels, out_channels, kernel_size, with(rest, stride, padding)) {}
};

}  // namespace halfstep
