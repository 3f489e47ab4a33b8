// SPDX-License-Identifier: Apache-2.0
// Pooling of [N, C, in...] or [C, in...]; framework/ops/window/pooling.h has the formulas. Without dilation and ceil_mode out =
// floor((in + 2 padding - kernel) / stride) + 1. Arguments for dimensions are one number or one each. Throws ValueError for a
// kernel or stride below 1, and for padding of more than half the kernel.
//
//   MaxPool2d pool(3, {.stride = 2, .padding = 1});  // or MaxPool2d(3, 2, 1)
#pragma once

#include <concepts>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "layers/module/layer.h"

namespace halfstep {

// The stride is by default the kernel's size.
struct MaxPoolLayerOptions {
  ByName by_name = ByName();
  Sizes stride = {};
  Sizes padding = 0;
  Sizes dilation = 1;
  bool ceil_mode = false;
  static const OptionList<MaxPoolLayerOptions>& list();
};
struct MaxUnpoolLayerOptions {
  ByName by_name = ByName();
  Sizes stride = {};
  Sizes padding = 0;
  static const OptionList<MaxUnpoolLayerOptions>& list();
};
struct AvgPoolLayerOptions {
  ByName by_name = ByName();
  Sizes stride = {};
  Sizes padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;
  std::optional<int64_t> divisor_override = {};  // AvgPool1d has none
  static const OptionList<AvgPoolLayerOptions>& list();
};
struct LPPoolLayerOptions {
  ByName by_name = ByName();
  Sizes stride = {};
  bool ceil_mode = false;
  static const OptionList<LPPoolLayerOptions>& list();
};

// The argument that all poolings take by position: the kernel's size.
struct PoolArguments {
  static const Arguments<Sizes>& arguments();
};
// MaxPool2d(3, {.stride = 2, .padding = 1}), or by position MaxPool2d(3, 2, 1).
template <ClassName family, int n, class Base, class O>
class PoolOf : public Base, public PoolArguments, public OfDims<family, n> {
 public:
  using Options = O;
  using OfDims<family, n>::kName;
  explicit PoolOf(const Sizes& kernel_size, const O& options = {}) : Base(kName, n, kernel_size, options) {}
  PoolOf(const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride, const std::convertible_to<Sizes> auto& padding)
      : PoolOf(kernel_size, O{.stride = stride, .padding = padding}) {}
  PoolOf(const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride) : PoolOf(kernel_size, O{.stride = stride}) {}
};

using TensorAndIndices = std::pair<Tensor, Tensor>;

class MaxPoolNd : public FunctionLayer {
 public:
  // Returns also the place of each largest element within its input plane, row-major, for MaxUnpool: PyTorch's return_indices.
  TensorAndIndices forward_with_indices(const Tensor& x) const { return with_indices_(x); }

 protected:
  MaxPoolNd(const char* type, int dims, const Sizes& kernel_size, const MaxPoolLayerOptions& options);

 private:
  std::function<TensorAndIndices(const Tensor&)> with_indices_;
};
template <int n>
using MaxPool = PoolOf<"MaxPool", n, MaxPoolNd, MaxPoolLayerOptions>;
using MaxPool1d = MaxPool<1>;
using MaxPool2d = MaxPool<2>;
using MaxPool3d = MaxPool<3>;

// Inverts a max pooling: returns zeros, with x at its indices. output_size, the output's shape or its spatial part, may differ by
// less than a stride from the default (in - 1) stride - 2 padding + kernel, else ShapeError.
class MaxUnpoolNd : public ModuleOf<MaxUnpoolNd> {
 public:
  Tensor forward(const Tensor& x, const Tensor& indices, const Dims& output_size = {});
  using ModuleOf::operator();
  Tensor operator()(const Tensor& x, const Tensor& indices, const Dims& output_size) {
    return ModuleOf::operator()(x, indices, output_size);
  }
  bool is_recordable() const override { return true; }
  std::string describe() const override;

 protected:
  MaxUnpoolNd(const char* type, int dims, const Sizes& kernel_size, const MaxUnpoolLayerOptions& options);

 private:
  const char* type_;
  int dims_;
  Dims kernel_, stride_, padding_;
};
template <int n>
using MaxUnpool = PoolOf<"MaxUnpool", n, MaxUnpoolNd, MaxUnpoolLayerOptions>;
using MaxUnpool1d = MaxUnpool<1>;
using MaxUnpool2d = MaxUnpool<2>;
using MaxUnpool3d = MaxUnpool<3>;

class AvgPoolNd : public FunctionLayer {
 protected:
  AvgPoolNd(const char* type, int dims, const Sizes& kernel_size, const AvgPoolLayerOptions& options);
};
template <int n>
using AvgPool = PoolOf<"AvgPool", n, AvgPoolNd, AvgPoolLayerOptions>;
using AvgPool1d = AvgPool<1>;
using AvgPool2d = AvgPool<2>;
using AvgPool3d = AvgPool<3>;

class LPPoolNd : public FunctionLayer {
 public:
  static const Arguments<double, Sizes>& arguments();

 protected:
  LPPoolNd(const char* type, int dims, double norm_type, const Sizes& kernel_size, const LPPoolLayerOptions& options);
};
template <int n>
class LPPool : public LPPoolNd, public OfDims<"LPPool", n> {
 public:
  using Options = LPPoolLayerOptions;
  using OfDims<"LPPool", n>::kName;
  LPPool(double norm_type, const Sizes& kernel_size, const LPPoolLayerOptions& options = {})
      : LPPoolNd(kName, n, norm_type, kernel_size, options) {}
};
using LPPool1d = LPPool<1>;
using LPPool2d = LPPool<2>;
using LPPool3d = LPPool<3>;

// Give exactly one of output_size and output_ratio; with the latter, sizes become floor(in * output_ratio).
struct FractionalMaxPoolLayerOptions {
  ByName by_name = ByName();
  Sizes output_size = {};
  ScaleFactors output_ratio = {};
  Generator* generator = nullptr;  // of the windows' places, drawn at each call, also in evaluation; null: the default one
  static const OptionList<FractionalMaxPoolLayerOptions>& list();
};
class FractionalMaxPoolNd : public FunctionLayer {
 public:
  TensorAndIndices forward_with_indices(const Tensor& x) const { return with_indices_(x); }

 protected:
  FractionalMaxPoolNd(const char* type, int dims, const Sizes& kernel_size, const FractionalMaxPoolLayerOptions& options);

 private:
  std::function<TensorAndIndices(const Tensor&)> with_indices_;
};
template <int n>
class FractionalMaxPool : public FractionalMaxPoolNd, public OfDims<"FractionalMaxPool", n> {
 public:
  using OfDims<"FractionalMaxPool", n>::kName;
  FractionalMaxPool(const Sizes& kernel_size, const FractionalMaxPoolLayerOptions& o)
      : FractionalMaxPoolNd(kName, n, kernel_size, o) {}
};
using FractionalMaxPool2d = FractionalMaxPool<2>;
using FractionalMaxPool3d = FractionalMaxPool<3>;

// Output sizes of an adaptive pooling: one number for all, or one for each dimension; an unset one keeps the input's size.
class AdaptiveSizes {
 public:
  template <std::integral T>
  requires(!std::same_as<T, bool>) AdaptiveSizes(T all) : values_{int64_t(all)} {}
  // {3, std::nullopt}. Not a std::initializer_list: GCC would take {.output_size = 2} for one.
  template <class... T>
  requires(sizeof...(T) > 1 &&
           ((std::convertible_to<T, std::optional<int64_t>> && !std::floating_point<T> && !std::same_as<T, bool>)&&...))
      AdaptiveSizes(T... each)
      : values_{std::optional<int64_t>(each)...} {}
  AdaptiveSizes(OutputSize each) : values_(std::move(each)) {}
  const OutputSize& values() const { return values_; }

 private:
  OutputSize values_;
};
// A size that is left out has no number.
template <>
struct OptionMember<AdaptiveSizes> {
  static constexpr OptionKind kKind = OptionKind::sizes;
  static OptionValue get(const AdaptiveSizes& member);
};
class AdaptivePoolNd : public FunctionLayer {
 public:
  static const Arguments<AdaptiveSizes>& arguments();

 protected:
  using Op = Tensor (*)(const Tensor& x, const OutputSize& output_size);
  AdaptivePoolNd(const char* type, int dims, Op op, const AdaptiveSizes& output_size);
  OutputSize sizes_;
};
template <int n>
class AdaptiveAvgPool : public AdaptivePoolNd, public OfDims<"AdaptiveAvgPool", n> {
 public:
  using OfDims<"AdaptiveAvgPool", n>::kName;
  explicit AdaptiveAvgPool(const AdaptiveSizes& output_size)
      : AdaptivePoolNd(kName, n,
                       n == 1   ? adaptive_avg_pool1d
                       : n == 2 ? adaptive_avg_pool2d
                                : adaptive_avg_pool3d,
                       output_size) {}
};
using AdaptiveAvgPool1d = AdaptiveAvgPool<1>;
using AdaptiveAvgPool2d = AdaptiveAvgPool<2>;
using AdaptiveAvgPool3d = AdaptiveAvgPool<3>;
// The indices of forward_with_indices are those of MaxPool.
template <int n>
class AdaptiveMaxPool : public AdaptivePoolNd, public OfDims<"AdaptiveMaxPool", n> {
 public:
  using OfDims<"AdaptiveMaxPool", n>::kName;
  explicit AdaptiveMaxPool(const AdaptiveSizes& output_size)
      : AdaptivePoolNd(kName, n,
                       n == 1   ? adaptive_max_pool1d
                       : n == 2 ? adaptive_max_pool2d
                                : adaptive_max_pool3d,
                       output_size) {}
  TensorAndIndices forward_with_indices(const Tensor& x) const {
    const auto pool = n == 1   ? adaptive_max_pool1d_with_indices
                      : n == 2 ? adaptive_max_pool2d_with_indices
                               : adaptive_max_pool3d_with_indices;
    return pool(x, sizes_);
  }
};
using AdaptiveMaxPool1d = AdaptiveMaxPool<1>;
using AdaptiveMaxPool2d = AdaptiveMaxPool<2>;
using AdaptiveMaxPool3d = AdaptiveMaxPool<3>;

}  // namespace halfstep
