// SPDX-License-Identifier: Apache-2.0
#include "layers/feedforward/pooling.h"

namespace halfstep {
namespace {

struct PoolWindow {
  Dims kernel, stride, padding;
};
// Checks the arguments and returns them with one number for each dimension.
PoolWindow window_of(const char* type, int dims, const Sizes& kernel_size, const Sizes& stride, const Sizes& padding) {
  PoolWindow out;
  check_arguments(type, PoolArguments::arguments(), kernel_size);
  out.kernel = kernel_size.each(dims, type, "kernel_size");
  out.stride = stride.empty() ? out.kernel : stride.each(dims, type, "stride");
  out.padding = padding.each(dims, type, "padding");
  for (int d = 0; d < dims; ++d) {
    check<ValueError>(2 * out.padding[d] <= out.kernel[d], type, "padding must be at most half of kernel_size, got ", out.padding,
                      " and ", out.kernel);
  }
  return out;
}

// Prints a pooling, whose stride is the kernel's size if it is left out.
template <class O>
std::string pool_text(const char* type, const Sizes& kernel_size, O shown, int dims = 0) {
  if (shown.stride.empty()) shown.stride = kernel_size;
  Repr out(type);
  if (dims > 0)
    out.arg("kernel_size", kernel_size.each(dims, type, "kernel_size"));
  else
    out.arg("kernel_size", kernel_size);
  return out.options(shown, dims).str();
}

MaxPoolOptions max_options(const char* type, int dims, const PoolWindow& w, const MaxPoolLayerOptions& o) {
  return {w.stride, w.padding, o.dilation.each(dims, type, "dilation"), o.ceil_mode};
}

FunctionLayer max_pool(const char* type, int dims, const Sizes& kernel_size, const MaxPoolLayerOptions& o) {
  check_options(type, o);
  const PoolWindow w = window_of(type, dims, kernel_size, o.stride, o.padding);
  const MaxPoolOptions options = max_options(type, dims, w, o);
  const auto pool = dims == 1 ? max_pool1d : dims == 2 ? max_pool2d : max_pool3d;
  return {pool_text(type, kernel_size, o), [=](const Tensor& x) { return pool(x, w.kernel, options); }};
}

FractionalMaxPoolOptions fractional_options(const char* type, int dims, const FractionalMaxPoolLayerOptions& o) {
  check<ValueError>(o.output_size.empty() != o.output_ratio.empty(), type, "takes exactly one of output_size and output_ratio");
  check_options(type, o);
  return {.output_size = o.output_size.empty() ? Dims() : o.output_size.each(dims, type, "output_size"),
          .output_ratio = o.output_ratio,
          .generator = o.generator};
}

FunctionLayer fractional_max_pool(const char* type, int dims, const Sizes& kernel_size, const FractionalMaxPoolLayerOptions& o) {
  const auto pool = dims == 2 ? fractional_max_pool2d : fractional_max_pool3d;
  check_arguments(type, PoolArguments::arguments(), kernel_size);
  const Dims kernel = kernel_size.each(dims, type, "kernel_size");
  return {Repr(type).str(),
          [pool, kernel, options = fractional_options(type, dims, o)](const Tensor& x) { return pool(x, kernel, options); }};
}

FunctionLayer avg_pool(const char* type, int dims, const Sizes& kernel_size, const AvgPoolLayerOptions& o) {
  check_options(type, o);
  const PoolWindow w = window_of(type, dims, kernel_size, o.stride, o.padding);
  check<ValueError>(!o.divisor_override || dims > 1, type, "has no divisor_override");
  const AvgPoolOptions options{w.stride, w.padding, o.ceil_mode, o.count_include_pad, o.divisor_override};
  const auto pool = dims == 1 ? avg_pool1d : dims == 2 ? avg_pool2d : avg_pool3d;
  // PyTorch prints arguments of one dimension as tuples.
  return {pool_text(type, kernel_size, o, dims == 1 ? 1 : 0), [=](const Tensor& x) { return pool(x, w.kernel, options); }};
}

FunctionLayer lp_pool(const char* type, int dims, double norm_type, const Sizes& kernel_size, const LPPoolLayerOptions& o) {
  check_options(type, o);
  check_arguments(type, LPPoolNd::arguments(), norm_type, kernel_size);
  const PoolWindow w = window_of(type, dims, kernel_size, o.stride, 0);
  const bool ceil_mode = o.ceil_mode;
  const auto pool = dims == 1 ? lp_pool1d : dims == 2 ? lp_pool2d : lp_pool3d;
  return {Repr(type).arg("norm_type", norm_type).arg("kernel_size", kernel_size).options(o).str(),
          [=](const Tensor& x) { return pool(x, norm_type, w.kernel, w.stride, ceil_mode); }};
}

std::string adaptive_text(const char* type, int dims, const AdaptiveSizes& output_size) {
  const OutputSize& sizes = output_size.values();
  check<ValueError>(sizes.size() == 1 || int(sizes.size()) == dims, type, "output_size must be one number or ", dims, ", got ",
                    sizes.size(), " numbers");
  check_arguments(type, AdaptivePoolNd::arguments(), output_size);
  std::string text;
  for (const auto& size : sizes) text += (text.empty() ? "" : ", ") + Repr::python(size);
  return Repr(type).arg("output_size", sizes.size() > 1 ? "(" + text + ")" : text).str();
}

template <class O>
Option<O> pool_stride_of() {
  return option("stride", &O::stride, "step of the window; left out: kernel_size").at_least(1);
}
template <class O>
Option<O> padding_of(const char* doc) {
  return option("padding", &O::padding, doc).at_least(0);
}
template <class O>
Option<O> ceil_mode_of() {
  return option("ceil_mode", &O::ceil_mode, "include windows that extend beyond the end");
}

}  // namespace

HALFSTEP_ARGUMENTS(PoolArguments, argument("kernel_size", "of the window").at_least(1))
HALFSTEP_ARGUMENTS(LPPoolNd, argument("norm_type", "exponent").above(0), argument("kernel_size", "of the window").at_least(1))
HALFSTEP_ARGUMENTS(AdaptivePoolNd,
                   argument("output_size", "one number, or one for each dimension; null: the size of the input").at_least(0))
OptionValue OptionMember<AdaptiveSizes>::get(const AdaptiveSizes& member) {
  Dims given;
  for (const std::optional<int64_t>& size : member.values())
    if (size) given.push_back(*size);
  return given.empty() ? OptionValue() : OptionValue(Sizes(given));
}

HALFSTEP_OPTIONS(MaxPoolLayerOptions, pool_stride_of<O>(), padding_of<O>("around the input, as -inf; at most half of kernel_size"),
                 option("dilation", &O::dilation, "step within the window").at_least(1), ceil_mode_of<O>())
HALFSTEP_OPTIONS(MaxUnpoolLayerOptions, pool_stride_of<O>(), padding_of<O>("of the pooling that is undone"))
HALFSTEP_OPTIONS(AvgPoolLayerOptions, pool_stride_of<O>(), padding_of<O>("zeros around the input; at most half of kernel_size"),
                 ceil_mode_of<O>().unseen(),
                 option("count_include_pad", &O::count_include_pad, "divide by the whole window, padding included").unseen(),
                 option("divisor_override", &O::divisor_override, "divide by this instead").at_least(1).unseen())
HALFSTEP_OPTIONS(LPPoolLayerOptions, pool_stride_of<O>(), ceil_mode_of<O>())
HALFSTEP_OPTIONS(FractionalMaxPoolLayerOptions, option("output_size", &O::output_size, "of the output").at_least(1),
                 option("output_ratio", &O::output_ratio, "share of the input's size, instead of output_size").above(0).under(1))

MaxPoolNd::MaxPoolNd(const char* type, int dims, const Sizes& kernel_size, const MaxPoolLayerOptions& options)
    : FunctionLayer(max_pool(type, dims, kernel_size, options)) {
  const auto w = window_of(type, dims, kernel_size, options.stride, options.padding);
  const auto pool = dims == 1 ? max_pool1d_with_indices : dims == 2 ? max_pool2d_with_indices : max_pool3d_with_indices;
  with_indices_ = [pool, kernel = w.kernel, o = max_options(type, dims, w, options)](const Tensor& x) {
    return pool(x, kernel, o);
  };
}

MaxUnpoolNd::MaxUnpoolNd(const char* type, int dims, const Sizes& kernel_size, const MaxUnpoolLayerOptions& o)
    : type_(type), dims_(dims) {
  check_options(type, o);
  const auto w = window_of(type, dims, kernel_size, o.stride, o.padding);
  kernel_ = w.kernel, stride_ = w.stride, padding_ = w.padding;
}

Tensor MaxUnpoolNd::forward(const Tensor& x, const Tensor& indices, const Dims& output_size) {
  check_rank(type_, x, dims_ + 1, dims_ + 2);
  const auto unpool = dims_ == 1 ? max_unpool1d : dims_ == 2 ? max_unpool2d : max_unpool3d;
  if (output_size.empty()) return unpool(x, indices, kernel_, {stride_, padding_, {}});
  const Dims size = spatial_part(type_, "output_size", output_size, x, dims_);
  for (int d = 0; d < dims_; ++d) {
    const int64_t usual = (x.size(d - dims_) - 1) * stride_[d] - 2 * padding_[d] + kernel_[d];
    check<ShapeError>(size[d] > usual - stride_[d] && size[d] < usual + stride_[d], type_, "output_size must lie between ",
                      usual - stride_[d], " and ", usual + stride_[d], " in spatial dimension ", d, ", got ", size);
  }
  return unpool(x, indices, kernel_, {stride_, padding_, size});
}

std::string MaxUnpoolNd::describe() const {
  const MaxUnpoolLayerOptions shown{.stride = stride_, .padding = padding_};
  return Repr(type_).arg("kernel_size", kernel_).options(shown).str();
}

FractionalMaxPoolNd::FractionalMaxPoolNd(const char* type, int dims, const Sizes& kernel_size,
                                         const FractionalMaxPoolLayerOptions& o)
    : FunctionLayer(fractional_max_pool(type, dims, kernel_size, o)) {
  const auto pool = dims == 2 ? fractional_max_pool2d_with_indices : fractional_max_pool3d_with_indices;
  const Dims kernel = kernel_size.each(dims, type, "kernel_size");
  with_indices_ = [pool, kernel, options = fractional_options(type, dims, o)](const Tensor& x) { return pool(x, kernel, options); };
}

AvgPoolNd::AvgPoolNd(const char* type, int dims, const Sizes& kernel_size, const AvgPoolLayerOptions& options)
    : FunctionLayer(avg_pool(type, dims, kernel_size, options)) {}

LPPoolNd::LPPoolNd(const char* type, int dims, double norm_type, const Sizes& kernel_size, const LPPoolLayerOptions& options)
    : FunctionLayer(lp_pool(type, dims, norm_type, kernel_size, options)) {}

AdaptivePoolNd::AdaptivePoolNd(const char* type, int dims, Op op, const AdaptiveSizes& output_size)
    : FunctionLayer(adaptive_text(type, dims, output_size),
                    [=, sizes = output_size.values()](const Tensor& x) { return op(x, sizes); }),
      sizes_(output_size.values()) {}

}  // namespace halfstep
