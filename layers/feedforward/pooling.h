// SPDX-License-Identifier: Apache-2.0
// Pooling. Inputs are [N, C, in...] or [C, in...]; framework/ops/window/pooling.h has the formulas. Arguments for dimensions are
// one number or one each. Throws ValueError for a kernel or stride below 1, and for padding of more than half the kernel.
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

struct MaxPoolLayerOptions {
  ByName by_name = ByName();
  Sizes stride = {};  // the kernel's size
  Sizes padding = 0;
  Sizes dilation = 1;
  bool ceil_mode = false;
};
struct MaxUnpoolLayerOptions {
  ByName by_name = ByName();
  Sizes stride = {};  // the kernel's size
  Sizes padding = 0;
};
struct AvgPoolLayerOptions {
  ByName by_name = ByName();
  Sizes stride = {};  // the kernel's size
  Sizes padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;
  std::optional<int64_t> divisor_override = {};  // not of AvgPool1d
};
struct LPPoolLayerOptions {
  ByName by_name = ByName();
  Sizes stride = {};  // the kernel's size
  bool ceil_mode = false;
};
// All arguments by name: MaxPool2d({.kernel_size = 3, .stride = 2}).
struct MaxPoolArguments {
  ByName by_name = ByName();
  Required<Sizes> kernel_size;
  Sizes stride = {}, padding = 0, dilation = 1;
  bool ceil_mode = false;
  MaxPoolLayerOptions rest() const { return {.stride = stride, .padding = padding, .dilation = dilation, .ceil_mode = ceil_mode}; }
};
struct AvgPoolArguments {
  ByName by_name = ByName();
  Required<Sizes> kernel_size;
  Sizes stride = {}, padding = 0;
  bool ceil_mode = false, count_include_pad = true;
  std::optional<int64_t> divisor_override = {};
  AvgPoolLayerOptions rest() const {
    return {.stride = stride,
            .padding = padding,
            .ceil_mode = ceil_mode,
            .count_include_pad = count_include_pad,
            .divisor_override = divisor_override};
  }
};

using TensorAndIndices = std::pair<Tensor, Tensor>;

class MaxPoolNd : public FunctionLayer {
 public:
  // And where in the input's plane each largest element lay, row-major, as MaxUnpool takes it: PyTorch's return_indices.
  TensorAndIndices forward_with_indices(const Tensor& x) const { return with_indices_(x); }

 protected:
  MaxPoolNd(const char* type, int dims, const Sizes& kernel_size, const MaxPoolLayerOptions& options);
  static MaxPoolLayerOptions with(MaxPoolLayerOptions rest, const Sizes& stride, const Sizes& padding = {});

 private:
  std::function<TensorAndIndices(const Tensor&)> with_indices_;
};
class MaxPool1d : public MaxPoolNd {
 public:
  explicit MaxPool1d(const Sizes& kernel_size, const MaxPoolLayerOptions& o = {}) : MaxPoolNd("MaxPool1d", 1, kernel_size, o) {}
  explicit MaxPool1d(const MaxPoolArguments& a) : MaxPool1d(*a.kernel_size, a.rest()) {}
  MaxPool1d(const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride, const MaxPoolLayerOptions& rest = {})
      : MaxPool1d(kernel_size, with(rest, stride)) {}
  MaxPool1d(const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride, const std::convertible_to<Sizes> auto& padding,
            const MaxPoolLayerOptions& rest = {})
      : MaxPool1d(kernel_size, with(rest, stride, padding)) {}
};
class MaxPool2d : public MaxPoolNd {
 public:
  explicit MaxPool2d(const Sizes& kernel_size, const MaxPoolLayerOptions& o = {}) : MaxPoolNd("MaxPool2d", 2, kernel_size, o) {}
  explicit MaxPool2d(const MaxPoolArguments& a) : MaxPool2d(*a.kernel_size, a.rest()) {}
  MaxPool2d(const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride, const MaxPoolLayerOptions& rest = {})
      : MaxPool2d(kernel_size, with(rest, stride)) {}
  MaxPool2d(const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride, const std::convertible_to<Sizes> auto& padding,
            const MaxPoolLayerOptions& rest = {})
      : MaxPool2d(kernel_size, with(rest, stride, padding)) {}
};
class MaxPool3d : public MaxPoolNd {
 public:
  explicit MaxPool3d(const Sizes& kernel_size, const MaxPoolLayerOptions& o = {}) : MaxPoolNd("MaxPool3d", 3, kernel_size, o) {}
  explicit MaxPool3d(const MaxPoolArguments& a) : MaxPool3d(*a.kernel_size, a.rest()) {}
  MaxPool3d(const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride, const MaxPoolLayerOptions& rest = {})
      : MaxPool3d(kernel_size, with(rest, stride)) {}
  MaxPool3d(const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride, const std::convertible_to<Sizes> auto& padding,
            const MaxPoolLayerOptions& rest = {})
      : MaxPool3d(kernel_size, with(rest, stride, padding)) {}
};

// Undoes a pooling: zeros, with x where its indices say. output_size: of the spatial dimensions or of all, less than a stride away
// from (in - 1) stride - 2 padding + kernel, which it is where left out; poolings give the same size for several. Else ShapeError.
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
  static MaxUnpoolLayerOptions with(MaxUnpoolLayerOptions rest, const Sizes& stride, const Sizes& padding = {});

 private:
  const char* type_;
  int dims_;
  Dims kernel_, stride_, padding_;
};
class MaxUnpool1d : public MaxUnpoolNd {
 public:
  explicit MaxUnpool1d(const Sizes& kernel, const MaxUnpoolLayerOptions& o = {}) : MaxUnpoolNd("MaxUnpool1d", 1, kernel, o) {}
  MaxUnpool1d(const Sizes& kernel, const std::convertible_to<Sizes> auto& stride, const MaxUnpoolLayerOptions& rest = {})
      : MaxUnpool1d(kernel, with(rest, stride)) {}
  MaxUnpool1d(const Sizes& kernel, const std::convertible_to<Sizes> auto& stride, const std::convertible_to<Sizes> auto& padding,
              const MaxUnpoolLayerOptions& rest = {})
      : MaxUnpool1d(kernel, with(rest, stride, padding)) {}
};
class MaxUnpool2d : public MaxUnpoolNd {
 public:
  explicit MaxUnpool2d(const Sizes& kernel, const MaxUnpoolLayerOptions& o = {}) : MaxUnpoolNd("MaxUnpool2d", 2, kernel, o) {}
  MaxUnpool2d(const Sizes& kernel, const std::convertible_to<Sizes> auto& stride, const MaxUnpoolLayerOptions& rest = {})
      : MaxUnpool2d(kernel, with(rest, stride)) {}
  MaxUnpool2d(const Sizes& kernel, const std::convertible_to<Sizes> auto& stride, const std::convertible_to<Sizes> auto& padding,
              const MaxUnpoolLayerOptions& rest = {})
      : MaxUnpool2d(kernel, with(rest, stride, padding)) {}
};
class MaxUnpool3d : public MaxUnpoolNd {
 public:
  explicit MaxUnpool3d(const Sizes& kernel, const MaxUnpoolLayerOptions& o = {}) : MaxUnpoolNd("MaxUnpool3d", 3, kernel, o) {}
  MaxUnpool3d(const Sizes& kernel, const std::convertible_to<Sizes> auto& stride, const MaxUnpoolLayerOptions& rest = {})
      : MaxUnpool3d(kernel, with(rest, stride)) {}
  MaxUnpool3d(const Sizes& kernel, const std::convertible_to<Sizes> auto& stride, const std::convertible_to<Sizes> auto& padding,
              const MaxUnpoolLayerOptions& rest = {})
      : MaxUnpool3d(kernel, with(rest, stride, padding)) {}
};

class AvgPoolNd : public FunctionLayer {
 protected:
  AvgPoolNd(const char* type, int dims, const Sizes& kernel_size, const AvgPoolLayerOptions& options);
  static AvgPoolLayerOptions with(AvgPoolLayerOptions rest, const Sizes& stride, const Sizes& padding = {});
};
class AvgPool1d : public AvgPoolNd {
 public:
  explicit AvgPool1d(const Sizes& kernel_size, const AvgPoolLayerOptions& o = {}) : AvgPoolNd("AvgPool1d", 1, kernel_size, o) {}
  explicit AvgPool1d(const AvgPoolArguments& a) : AvgPool1d(*a.kernel_size, a.rest()) {}
  AvgPool1d(const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride, const AvgPoolLayerOptions& rest = {})
      : AvgPool1d(kernel_size, with(rest, stride)) {}
  AvgPool1d(const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride, const std::convertible_to<Sizes> auto& padding,
            const AvgPoolLayerOptions& rest = {})
      : AvgPool1d(kernel_size, with(rest, stride, padding)) {}
};
class AvgPool2d : public AvgPoolNd {
 public:
  explicit AvgPool2d(const Sizes& kernel_size, const AvgPoolLayerOptions& o = {}) : AvgPoolNd("AvgPool2d", 2, kernel_size, o) {}
  explicit AvgPool2d(const AvgPoolArguments& a) : AvgPool2d(*a.kernel_size, a.rest()) {}
  AvgPool2d(const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride, const AvgPoolLayerOptions& rest = {})
      : AvgPool2d(kernel_size, with(rest, stride)) {}
  AvgPool2d(const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride, const std::convertible_to<Sizes> auto& padding,
            const AvgPoolLayerOptions& rest = {})
      : AvgPool2d(kernel_size, with(rest, stride, padding)) {}
};
class AvgPool3d : public AvgPoolNd {
 public:
  explicit AvgPool3d(const Sizes& kernel_size, const AvgPoolLayerOptions& o = {}) : AvgPoolNd("AvgPool3d", 3, kernel_size, o) {}
  explicit AvgPool3d(const AvgPoolArguments& a) : AvgPool3d(*a.kernel_size, a.rest()) {}
  AvgPool3d(const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride, const AvgPoolLayerOptions& rest = {})
      : AvgPool3d(kernel_size, with(rest, stride)) {}
  AvgPool3d(const Sizes& kernel_size, const std::convertible_to<Sizes> auto& stride, const std::convertible_to<Sizes> auto& padding,
            const AvgPoolLayerOptions& rest = {})
      : AvgPool3d(kernel_size, with(rest, stride, padding)) {}
};

class LPPoolNd : public FunctionLayer {
 protected:
  LPPoolNd(const char* type, int dims, double norm_type, const Sizes& kernel_size, const LPPoolLayerOptions& options);
  static LPPoolLayerOptions with(LPPoolLayerOptions rest, const Sizes& stride);
};
class LPPool1d : public LPPoolNd {
 public:
  LPPool1d(double norm_type, const Sizes& kernel, const LPPoolLayerOptions& o = {})
      : LPPoolNd("LPPool1d", 1, norm_type, kernel, o) {}
  LPPool1d(double norm_type, const Sizes& kernel, const std::convertible_to<Sizes> auto& stride,
           const LPPoolLayerOptions& rest = {})
      : LPPool1d(norm_type, kernel, with(rest, stride)) {}
};
class LPPool2d : public LPPoolNd {
 public:
  LPPool2d(double norm_type, const Sizes& kernel, const LPPoolLayerOptions& o = {})
      : LPPoolNd("LPPool2d", 2, norm_type, kernel, o) {}
  LPPool2d(double norm_type, const Sizes& kernel, const std::convertible_to<Sizes> auto& stride,
           const LPPoolLayerOptions& rest = {})
      : LPPool2d(norm_type, kernel, with(rest, stride)) {}
};
class LPPool3d : public LPPoolNd {
 public:
  LPPool3d(double norm_type, const Sizes& kernel, const LPPoolLayerOptions& o = {})
      : LPPoolNd("LPPool3d", 3, norm_type, kernel, o) {}
  LPPool3d(double norm_type, const Sizes& kernel, const std::convertible_to<Sizes> auto& stride,
           const LPPoolLayerOptions& rest = {})
      : LPPool3d(norm_type, kernel, with(rest, stride)) {}
};

// Exactly one of the first two; of the ratio: sizes become floor(in * output_ratio).
struct FractionalMaxPoolLayerOptions {
  ByName by_name = ByName();
  Sizes output_size = {};
  ScaleFactors output_ratio = {};
  Generator* generator = nullptr;  // of the windows' places, drawn at each call, in evaluation, too; null: the default one
};
class FractionalMaxPoolNd : public FunctionLayer {
 public:
  TensorAndIndices forward_with_indices(const Tensor& x) const { return with_indices_(x); }

 protected:
  FractionalMaxPoolNd(const char* type, int dims, const Sizes& kernel_size, const FractionalMaxPoolLayerOptions& options);

 private:
  std::function<TensorAndIndices(const Tensor&)> with_indices_;
};
class FractionalMaxPool2d : public FractionalMaxPoolNd {
 public:
  FractionalMaxPool2d(const Sizes& kernel_size, const FractionalMaxPoolLayerOptions& o)
      : FractionalMaxPoolNd("FractionalMaxPool2d", 2, kernel_size, o) {}
};
class FractionalMaxPool3d : public FractionalMaxPoolNd {
 public:
  FractionalMaxPool3d(const Sizes& kernel_size, const FractionalMaxPoolLayerOptions& o)
      : FractionalMaxPoolNd("FractionalMaxPool3d", 3, kernel_size, o) {}
};

// The sizes that an adaptive pooling makes: one number for all, or one each, where an unset one stays the input's.
class AdaptiveSizes {
 public:
  template <std::integral T>
  requires(!std::same_as<T, bool>) AdaptiveSizes(T all) : values_{int64_t(all)} {}
  // {3, std::nullopt}. Not of a std::initializer_list: GCC would take {.output_size = 2} for one.
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
struct AdaptivePoolArguments {
  ByName by_name = ByName();
  AdaptiveSizes output_size;
};
class AdaptivePoolNd : public FunctionLayer {
 protected:
  using Op = Tensor (*)(const Tensor& x, const OutputSize& output_size);
  AdaptivePoolNd(const char* type, int dims, Op op, const AdaptiveSizes& output_size);
  OutputSize sizes_;
};
class AdaptiveAvgPool1d : public AdaptivePoolNd {
 public:
  explicit AdaptiveAvgPool1d(const AdaptiveSizes& s) : AdaptivePoolNd("AdaptiveAvgPool1d", 1, adaptive_avg_pool1d, s) {}
  explicit AdaptiveAvgPool1d(const AdaptivePoolArguments& a) : AdaptiveAvgPool1d(a.output_size) {}
};
class AdaptiveAvgPool2d : public AdaptivePoolNd {
 public:
  explicit AdaptiveAvgPool2d(const AdaptiveSizes& s) : AdaptivePoolNd("AdaptiveAvgPool2d", 2, adaptive_avg_pool2d, s) {}
  explicit AdaptiveAvgPool2d(const AdaptivePoolArguments& a) : AdaptiveAvgPool2d(a.output_size) {}
};
class AdaptiveAvgPool3d : public AdaptivePoolNd {
 public:
  explicit AdaptiveAvgPool3d(const AdaptiveSizes& s) : AdaptivePoolNd("AdaptiveAvgPool3d", 3, adaptive_avg_pool3d, s) {}
  explicit AdaptiveAvgPool3d(const AdaptivePoolArguments& a) : AdaptiveAvgPool3d(a.output_size) {}
};
// The indices of forward_with_indices: as those of MaxPool.
class AdaptiveMaxPool1d : public AdaptivePoolNd {
 public:
  explicit AdaptiveMaxPool1d(const AdaptiveSizes& s) : AdaptivePoolNd("AdaptiveMaxPool1d", 1, adaptive_max_pool1d, s) {}
  explicit AdaptiveMaxPool1d(const AdaptivePoolArguments& a) : AdaptiveMaxPool1d(a.output_size) {}
  TensorAndIndices forward_with_indices(const Tensor& x) const { return adaptive_max_pool1d_with_indices(x, sizes_); }
};
class AdaptiveMaxPool2d : public AdaptivePoolNd {
 public:
  explicit AdaptiveMaxPool2d(const AdaptiveSizes& s) : AdaptivePoolNd("AdaptiveMaxPool2d", 2, adaptive_max_pool2d, s) {}
  explicit AdaptiveMaxPool2d(const AdaptivePoolArguments& a) : AdaptiveMaxPool2d(a.output_size) {}
  TensorAndIndices forward_with_indices(const Tensor& x) const { return adaptive_max_pool2d_with_indices(x, sizes_); }
};
class AdaptiveMaxPool3d : public AdaptivePoolNd {
 public:
  explicit AdaptiveMaxPool3d(const AdaptiveSizes& s) : AdaptivePoolNd("AdaptiveMaxPool3d", 3, adaptive_max_pool3d, s) {}
  explicit AdaptiveMaxPool3d(const AdaptivePoolArguments& a) : AdaptiveMaxPool3d(a.output_size) {}
  TensorAndIndices forward_with_indices(const Tensor& x) const { return adaptive_max_pool3d_with_indices(x, sizes_); }
};

}  // namespace halfstep
