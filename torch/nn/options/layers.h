// SPDX-License-Identifier: Apache-2.0
// The options of layers, with libtorch's names and defaults.
#pragma once

#include "torch/nn/enums.h"

namespace torch::nn {

struct LinearOptions {
  LinearOptions(int64_t in_features, int64_t out_features) : in_features_(in_features), out_features_(out_features) {}
  TORCH_ARG(int64_t, in_features);
  TORCH_ARG(int64_t, out_features);
  HS_TORCH_ARG(bool, bias, true);
};
struct BilinearOptions {
  BilinearOptions(int64_t a, int64_t b, int64_t out) : in1_features_(a), in2_features_(b), out_features_(out) {}
  TORCH_ARG(int64_t, in1_features);
  TORCH_ARG(int64_t, in2_features);
  TORCH_ARG(int64_t, out_features);
  HS_TORCH_ARG(bool, bias, true);
};
struct FlattenOptions {
  HS_TORCH_ARG(int64_t, start_dim, 1);
  HS_TORCH_ARG(int64_t, end_dim, -1);
};
struct UnflattenOptions {
  UnflattenOptions(int64_t dim, std::vector<int64_t> sizes) : dim_(dim), sizes_(std::move(sizes)) {}
  TORCH_ARG(int64_t, dim);
  TORCH_ARG(std::vector<int64_t>, sizes);
};

using conv_mode_t = std::variant<enumtype::kZeros, enumtype::kReflect, enumtype::kReplicate, enumtype::kCircular>;
template <size_t D>
struct ConvOptions {
  using padding_t = std::variant<ExpandingArray<D>, enumtype::kValid, enumtype::kSame>;
  using padding_mode_t = conv_mode_t;
  ConvOptions(int64_t in, int64_t out, ExpandingArray<D> k) : in_channels_(in), out_channels_(out), kernel_size_(std::move(k)) {}
  auto& padding(std::initializer_list<int64_t> p) {
    padding_ = ExpandingArray<D>(p);
    return *this;
  }
  TORCH_ARG(int64_t, in_channels);
  TORCH_ARG(int64_t, out_channels);
  TORCH_ARG(ExpandingArray<D>, kernel_size);
  HS_TORCH_ARG(ExpandingArray<D>, stride, 1);
  HS_TORCH_ARG(padding_t, padding, ExpandingArray<D>(0));
  HS_TORCH_ARG(ExpandingArray<D>, dilation, 1);
  HS_TORCH_ARG(int64_t, groups, 1);
  HS_TORCH_ARG(bool, bias, true);
  HS_TORCH_ARG(padding_mode_t, padding_mode, kZeros);
};
using Conv1dOptions = ConvOptions<1>;
using Conv2dOptions = ConvOptions<2>;
using Conv3dOptions = ConvOptions<3>;
template <size_t D>
struct ConvTransposeOptions {
  using padding_mode_t = conv_mode_t;
  ConvTransposeOptions(int64_t in, int64_t out, ExpandingArray<D> k)
      : in_channels_(in), out_channels_(out), kernel_size_(std::move(k)) {}
  TORCH_ARG(int64_t, in_channels);
  TORCH_ARG(int64_t, out_channels);
  TORCH_ARG(ExpandingArray<D>, kernel_size);
  HS_TORCH_ARG(ExpandingArray<D>, stride, 1);
  HS_TORCH_ARG(ExpandingArray<D>, padding, 0);
  HS_TORCH_ARG(ExpandingArray<D>, output_padding, 0);
  HS_TORCH_ARG(int64_t, groups, 1);
  HS_TORCH_ARG(bool, bias, true);
  HS_TORCH_ARG(ExpandingArray<D>, dilation, 1);
  HS_TORCH_ARG(padding_mode_t, padding_mode, kZeros);
};
using ConvTranspose1dOptions = ConvTransposeOptions<1>;
using ConvTranspose2dOptions = ConvTransposeOptions<2>;
using ConvTranspose3dOptions = ConvTransposeOptions<3>;

template <size_t D>
struct MaxPoolOptions {
  MaxPoolOptions(ExpandingArray<D> k) : kernel_size_(k), stride_(k) {}
  TORCH_ARG(ExpandingArray<D>, kernel_size);
  TORCH_ARG(ExpandingArray<D>, stride);
  HS_TORCH_ARG(ExpandingArray<D>, padding, 0);
  HS_TORCH_ARG(ExpandingArray<D>, dilation, 1);
  HS_TORCH_ARG(bool, ceil_mode, false);
};
template <size_t D>
struct AvgPoolOptions {
  AvgPoolOptions(ExpandingArray<D> k) : kernel_size_(k), stride_(k) {}
  TORCH_ARG(ExpandingArray<D>, kernel_size);
  TORCH_ARG(ExpandingArray<D>, stride);
  HS_TORCH_ARG(ExpandingArray<D>, padding, 0);
  HS_TORCH_ARG(bool, ceil_mode, false);
  HS_TORCH_ARG(bool, count_include_pad, true);
  HS_TORCH_ARG(std::optional<int64_t>, divisor_override, std::nullopt);
};
template <size_t D>
struct LPPoolOptions {
  LPPoolOptions(float p, ExpandingArray<D> k) : norm_type_(p), kernel_size_(k), stride_(k) {}
  TORCH_ARG(float, norm_type);
  TORCH_ARG(ExpandingArray<D>, kernel_size);
  TORCH_ARG(ExpandingArray<D>, stride);
  HS_TORCH_ARG(bool, ceil_mode, false);
};
template <size_t D>
struct MaxUnpoolOptions {
  MaxUnpoolOptions(ExpandingArray<D> k) : kernel_size_(k), stride_(k) {}
  TORCH_ARG(ExpandingArray<D>, kernel_size);
  TORCH_ARG(ExpandingArray<D>, stride);
  HS_TORCH_ARG(ExpandingArray<D>, padding, 0);
};
template <size_t D>
struct FractionalMaxPoolOptions {
  FractionalMaxPoolOptions(ExpandingArray<D> k) : kernel_size_(k) {}
  TORCH_ARG(ExpandingArray<D>, kernel_size);
  HS_TORCH_ARG(std::optional<ExpandingArray<D>>, output_size, std::nullopt);
  using Ratio = ExpandingArray<D, double>;
  HS_TORCH_ARG(std::optional<Ratio>, output_ratio, std::nullopt);
  HS_TORCH_ARG(Tensor, _random_samples, Tensor());
};
template <class T>
struct AdaptivePoolOptions {
  using size_type = T;
  AdaptivePoolOptions(T s) : output_size_(s) {}
  template <class U>
  requires std::is_integral_v<U> AdaptivePoolOptions(std::initializer_list<U> s)
      : output_size_(std::vector<int64_t>(s.begin(), s.end())) {}
  TORCH_ARG(T, output_size);
};
#define HS_TORCH_DIMS(Name)                 \
  using Name##1dOptions = Name##Options<1>; \
  using Name##2dOptions = Name##Options<2>; \
  using Name##3dOptions = Name##Options<3>;
HS_TORCH_DIMS(MaxPool)
HS_TORCH_DIMS(AvgPool)
HS_TORCH_DIMS(LPPool) HS_TORCH_DIMS(MaxUnpool) using FractionalMaxPool2dOptions = FractionalMaxPoolOptions<2>;
using FractionalMaxPool3dOptions = FractionalMaxPoolOptions<3>;
using AdaptiveAvgPool1dOptions = AdaptivePoolOptions<ExpandingArray<1>>;
using AdaptiveAvgPool2dOptions = AdaptivePoolOptions<ExpandingArrayWithOptionalElem<2>>;
using AdaptiveAvgPool3dOptions = AdaptivePoolOptions<ExpandingArrayWithOptionalElem<3>>;
using AdaptiveMaxPool1dOptions = AdaptiveAvgPool1dOptions;
using AdaptiveMaxPool2dOptions = AdaptiveAvgPool2dOptions;
using AdaptiveMaxPool3dOptions = AdaptiveAvgPool3dOptions;

template <size_t D>
struct PadOptionsN {
  PadOptionsN(ExpandingArray<2 * D> p) : padding_(p) {}
  TORCH_ARG(ExpandingArray<2 * D>, padding);
};
using ReflectionPad1dOptions = PadOptionsN<1>;
using ReflectionPad2dOptions = PadOptionsN<2>;
using ReflectionPad3dOptions = PadOptionsN<3>;
using ReplicationPad1dOptions = PadOptionsN<1>;
using ReplicationPad2dOptions = PadOptionsN<2>;
using ReplicationPad3dOptions = PadOptionsN<3>;
using ZeroPad1dOptions = PadOptionsN<1>;
using ZeroPad2dOptions = PadOptionsN<2>;
using ZeroPad3dOptions = PadOptionsN<3>;
template <size_t D>
struct ConstantPadOptions {
  ConstantPadOptions(ExpandingArray<2 * D> p, double v) : padding_(p), value_(v) {}
  TORCH_ARG(ExpandingArray<2 * D>, padding);
  TORCH_ARG(double, value);
};
HS_TORCH_DIMS(ConstantPad)

struct BatchNormOptions {
  BatchNormOptions(int64_t n) : num_features_(n) {}
  TORCH_ARG(int64_t, num_features);
  HS_TORCH_ARG(double, eps, 1e-5);
  HS_TORCH_ARG(std::optional<double>, momentum, 0.1);
  HS_TORCH_ARG(bool, affine, true);
  HS_TORCH_ARG(bool, track_running_stats, true);
};
using BatchNorm1dOptions = BatchNormOptions;
using BatchNorm2dOptions = BatchNormOptions;
using BatchNorm3dOptions = BatchNormOptions;
struct InstanceNormOptions {
  InstanceNormOptions(int64_t n) : num_features_(n) {}
  TORCH_ARG(int64_t, num_features);
  HS_TORCH_ARG(double, eps, 1e-5);
  HS_TORCH_ARG(double, momentum, 0.1);
  HS_TORCH_ARG(bool, affine, false);
  HS_TORCH_ARG(bool, track_running_stats, false);
};
using InstanceNorm1dOptions = InstanceNormOptions;
using InstanceNorm2dOptions = InstanceNormOptions;
using InstanceNorm3dOptions = InstanceNormOptions;
struct LayerNormOptions {
  LayerNormOptions(std::vector<int64_t> s) : normalized_shape_(std::move(s)) {}
  TORCH_ARG(std::vector<int64_t>, normalized_shape);
  HS_TORCH_ARG(double, eps, 1e-5);
  HS_TORCH_ARG(bool, elementwise_affine, true);
};
struct GroupNormOptions {
  GroupNormOptions(int64_t g, int64_t c) : num_groups_(g), num_channels_(c) {}
  TORCH_ARG(int64_t, num_groups);
  TORCH_ARG(int64_t, num_channels);
  HS_TORCH_ARG(double, eps, 1e-5);
  HS_TORCH_ARG(bool, affine, true);
};
struct LocalResponseNormOptions {
  LocalResponseNormOptions(int64_t s) : size_(s) {}
  TORCH_ARG(int64_t, size);
  HS_TORCH_ARG(double, alpha, 1e-4);
  HS_TORCH_ARG(double, beta, 0.75);
  HS_TORCH_ARG(double, k, 1.);
};
struct CrossMapLRN2dOptions {
  CrossMapLRN2dOptions(int64_t s) : size_(s) {}
  TORCH_ARG(int64_t, size);
  HS_TORCH_ARG(double, alpha, 1e-4);
  HS_TORCH_ARG(double, beta, 0.75);
  HS_TORCH_ARG(int64_t, k, 1);
};

struct DropoutOptions {
  DropoutOptions(double p = 0.5) : p_(p) {}
  TORCH_ARG(double, p);
  HS_TORCH_ARG(bool, inplace, false);
};
using Dropout2dOptions = DropoutOptions;
using Dropout3dOptions = DropoutOptions;
using AlphaDropoutOptions = DropoutOptions;
using FeatureAlphaDropoutOptions = DropoutOptions;

struct EmbeddingOptions {
  EmbeddingOptions(int64_t n, int64_t d) : num_embeddings_(n), embedding_dim_(d) {}
  TORCH_ARG(int64_t, num_embeddings);
  TORCH_ARG(int64_t, embedding_dim);
  HS_TORCH_ARG(std::optional<int64_t>, padding_idx, std::nullopt);
  HS_TORCH_ARG(std::optional<double>, max_norm, std::nullopt);
  HS_TORCH_ARG(double, norm_type, 2.);
  HS_TORCH_ARG(bool, scale_grad_by_freq, false);
  HS_TORCH_ARG(bool, sparse, false);
  HS_TORCH_ARG(Tensor, _weight, Tensor());
};
struct EmbeddingFromPretrainedOptions {
  HS_TORCH_ARG(bool, freeze, true);
  HS_TORCH_ARG(std::optional<int64_t>, padding_idx, std::nullopt);
  HS_TORCH_ARG(std::optional<double>, max_norm, std::nullopt);
  HS_TORCH_ARG(double, norm_type, 2.);
  HS_TORCH_ARG(bool, scale_grad_by_freq, false);
  HS_TORCH_ARG(bool, sparse, false);
};
using bag_mode_t = std::variant<enumtype::kSum, enumtype::kMean, enumtype::kMax>;
struct EmbeddingBagOptions {
  EmbeddingBagOptions(int64_t n, int64_t d) : num_embeddings_(n), embedding_dim_(d) {}
  TORCH_ARG(int64_t, num_embeddings);
  TORCH_ARG(int64_t, embedding_dim);
  HS_TORCH_ARG(std::optional<double>, max_norm, std::nullopt);
  HS_TORCH_ARG(double, norm_type, 2.);
  HS_TORCH_ARG(bool, scale_grad_by_freq, false);
  HS_TORCH_ARG(bag_mode_t, mode, kMean);
  HS_TORCH_ARG(bool, sparse, false);
  HS_TORCH_ARG(Tensor, _weight, Tensor());
  HS_TORCH_ARG(bool, include_last_offset, false);
  HS_TORCH_ARG(std::optional<int64_t>, padding_idx, std::nullopt);
};
struct EmbeddingBagFromPretrainedOptions {
  HS_TORCH_ARG(bool, freeze, true);
  HS_TORCH_ARG(std::optional<double>, max_norm, std::nullopt);
  HS_TORCH_ARG(double, norm_type, 2.);
  HS_TORCH_ARG(bool, scale_grad_by_freq, false);
  HS_TORCH_ARG(bag_mode_t, mode, kMean);
  HS_TORCH_ARG(bool, sparse, false);
  HS_TORCH_ARG(bool, include_last_offset, false);
  HS_TORCH_ARG(std::optional<int64_t>, padding_idx, std::nullopt);
};

// ---- activations
#define HS_INPLACE(Name)                                       \
  struct Name##Options {                                       \
    Name##Options(bool inplace = false) : inplace_(inplace) {} \
    TORCH_ARG(bool, inplace);                                  \
  };
HS_INPLACE(ReLU)
HS_INPLACE(ReLU6)
HS_INPLACE(SELU)
#undef HS_INPLACE
    struct ELUOptions {
  HS_TORCH_ARG(double, alpha, 1.);
  HS_TORCH_ARG(bool, inplace, false);
};
struct CELUOptions {
  HS_TORCH_ARG(double, alpha, 1.);
  HS_TORCH_ARG(bool, inplace, false);
};
struct GLUOptions {
  GLUOptions(int64_t d = -1) : dim_(d) {}
  TORCH_ARG(int64_t, dim);
};
struct GELUOptions {
  HS_TORCH_ARG(std::string, approximate, "none");
};
struct HardshrinkOptions {
  HardshrinkOptions(double l = 0.5) : lambda_(l) {}
  TORCH_ARG(double, lambda);
};
struct SoftshrinkOptions {
  SoftshrinkOptions(double l = 0.5) : lambda_(l) {}
  TORCH_ARG(double, lambda);
};
struct HardtanhOptions {
  HS_TORCH_ARG(double, min_val, -1.);
  HS_TORCH_ARG(double, max_val, 1.);
  HS_TORCH_ARG(bool, inplace, false);
};
struct LeakyReLUOptions {
  HS_TORCH_ARG(double, negative_slope, 1e-2);
  HS_TORCH_ARG(bool, inplace, false);
};
struct RReLUOptions {
  HS_TORCH_ARG(double, lower, 1. / 8);
  HS_TORCH_ARG(double, upper, 1. / 3);
  HS_TORCH_ARG(bool, inplace, false);
};
struct SoftmaxOptions {
  SoftmaxOptions(int64_t d) : dim_(d) {}
  TORCH_ARG(int64_t, dim);
};
struct SoftminOptions {
  SoftminOptions(int64_t d) : dim_(d) {}
  TORCH_ARG(int64_t, dim);
};
struct LogSoftmaxOptions {
  LogSoftmaxOptions(int64_t d) : dim_(d) {}
  TORCH_ARG(int64_t, dim);
};
struct PReLUOptions {
  HS_TORCH_ARG(int64_t, num_parameters, 1);
  HS_TORCH_ARG(double, init, 0.25);
};
struct SoftplusOptions {
  HS_TORCH_ARG(double, beta, 1.);
  HS_TORCH_ARG(double, threshold, 20.);
};
struct ThresholdOptions {
  ThresholdOptions(double t, double v) : threshold_(t), value_(v) {}
  TORCH_ARG(double, threshold);
  TORCH_ARG(double, value);
  HS_TORCH_ARG(bool, inplace, false);
};
// ---- others
struct CosineSimilarityOptions {
  HS_TORCH_ARG(int64_t, dim, 1);
  HS_TORCH_ARG(double, eps, 1e-8);
};
struct PairwiseDistanceOptions {
  HS_TORCH_ARG(double, p, 2.0);
  HS_TORCH_ARG(double, eps, 1e-6);
  HS_TORCH_ARG(bool, keepdim, false);
};
struct PixelShuffleOptions {
  PixelShuffleOptions(int64_t f) : upscale_factor_(f) {}
  TORCH_ARG(int64_t, upscale_factor);
};
struct PixelUnshuffleOptions {
  PixelUnshuffleOptions(int64_t f) : downscale_factor_(f) {}
  TORCH_ARG(int64_t, downscale_factor);
};
struct FoldOptions {
  FoldOptions(ExpandingArray<2> o, ExpandingArray<2> k) : output_size_(o), kernel_size_(k) {}
  TORCH_ARG(ExpandingArray<2>, output_size);
  TORCH_ARG(ExpandingArray<2>, kernel_size);
  HS_TORCH_ARG(ExpandingArray<2>, dilation, 1);
  HS_TORCH_ARG(ExpandingArray<2>, padding, 0);
  HS_TORCH_ARG(ExpandingArray<2>, stride, 1);
};
struct UnfoldOptions {
  UnfoldOptions(ExpandingArray<2> k) : kernel_size_(k) {}
  TORCH_ARG(ExpandingArray<2>, kernel_size);
  HS_TORCH_ARG(ExpandingArray<2>, dilation, 1);
  HS_TORCH_ARG(ExpandingArray<2>, padding, 0);
  HS_TORCH_ARG(ExpandingArray<2>, stride, 1);
};
using upsample_mode_t = std::variant<enumtype::kNearest, enumtype::kLinear, enumtype::kBilinear, enumtype::kBicubic,
                                     enumtype::kTrilinear, enumtype::kArea>;
struct UpsampleOptions {
  HS_TORCH_ARG(std::optional<std::vector<int64_t>>, size, std::nullopt);
  HS_TORCH_ARG(std::optional<std::vector<double>>, scale_factor, std::nullopt);
  using mode_t = upsample_mode_t;
  HS_TORCH_ARG(mode_t, mode, kNearest);
  HS_TORCH_ARG(std::optional<bool>, align_corners, std::nullopt);
};
struct AdaptiveLogSoftmaxWithLossOptions {
  AdaptiveLogSoftmaxWithLossOptions(int64_t in, int64_t n, std::vector<int64_t> c)
      : in_features_(in), n_classes_(n), cutoffs_(std::move(c)) {}
  TORCH_ARG(int64_t, in_features);
  TORCH_ARG(int64_t, n_classes);
  TORCH_ARG(std::vector<int64_t>, cutoffs);
  HS_TORCH_ARG(double, div_value, 4.);
  HS_TORCH_ARG(bool, head_bias, false);
};
struct MultiheadAttentionOptions {
  MultiheadAttentionOptions(int64_t e, int64_t h) : embed_dim_(e), num_heads_(h) {}
  TORCH_ARG(int64_t, embed_dim);
  TORCH_ARG(int64_t, num_heads);
  HS_TORCH_ARG(double, dropout, 0.0);
  HS_TORCH_ARG(bool, bias, true);
  HS_TORCH_ARG(bool, add_bias_kv, false);
  HS_TORCH_ARG(bool, add_zero_attn, false);
  HS_TORCH_ARG(int64_t, kdim, 0);
  HS_TORCH_ARG(int64_t, vdim, 0);
};

}  // namespace torch::nn
