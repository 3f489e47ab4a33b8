// SPDX-License-Identifier: Apache-2.0
// PyTorch's other spellings of ops in Python or C++. Each calls the op that it names, with its shapes and errors.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "framework/autograd/grad_mode.h"
#include "framework/ops/core/promotion.h"
#include "framework/ops/ops.h"

namespace halfstep {

// ---- a dtype instead of options: zeros({2, 3}, kInt64), arange(4, kFloat32)
#define HS_OF_SHAPE(name)                                          \
  template <std::same_as<DType> T>                                 \
  Tensor name(const Shape& shape, T dtype) {                       \
    return name(shape, TensorOptions{.dtype = dtype});             \
  }
HS_OF_SHAPE(empty)
HS_OF_SHAPE(zeros)
HS_OF_SHAPE(ones)
HS_OF_SHAPE(rand)
HS_OF_SHAPE(randn)
#undef HS_OF_SHAPE
template <class Value, std::same_as<DType> T>
  requires std::is_arithmetic_v<Value>
Tensor full(const Shape& shape, Value value, T dtype) {
  return full(shape, value, NumberOptions{.dtype = dtype});
}
template <PlainNumber End, std::same_as<DType> T>
Tensor arange(End end, T dtype) {
  return arange(end, NumberOptions{.dtype = dtype});
}
template <PlainNumber Start, PlainNumber End, std::same_as<DType> T>
Tensor arange(Start start, End end, T dtype) {
  return arange(start, end, NumberOptions{.dtype = dtype});
}
template <std::same_as<DType> T>
Tensor tensor(const TensorLiteral& values, T dtype) {
  return tensor(values, NumberOptions{.dtype = dtype});
}
template <SizeNumber... Sizes>
  requires(sizeof...(Sizes) > 1)
Tensor empty(Sizes... sizes) {
  return empty(Shape{int64_t(sizes)...});
}
inline Tensor scalar_tensor(double value, const TensorOptions& options = {}) { return scalar(value, options); }
// Options that default to x's dtype and device: zeros_like(x, {.dtype = DType::i64}).
struct LikeOptions {
  std::optional<DType> dtype = {};
  std::optional<Device> device = {};
  bool requires_grad = false;
  TensorOptions beside(const Tensor& x) const {
    return {dtype.value_or(x.dtype()), device.value_or(x.device()), requires_grad, x.format()};
  }
};
inline Tensor empty_like(const Tensor& x, const LikeOptions& options) { return empty(x.shape(), options.beside(x)); }
inline Tensor zeros_like(const Tensor& x, const LikeOptions& options) { return zeros(x.shape(), options.beside(x)); }
inline Tensor ones_like(const Tensor& x, const LikeOptions& options) { return ones(x.shape(), options.beside(x)); }

// ---- arithmetic
#define HS_NUMBER_FIRST(op, turned)             \
  template <class N>                            \
    requires std::is_arithmetic_v<N>            \
  Tensor operator op(N a, const Tensor& b) {    \
    return b turned a;                          \
  }
HS_NUMBER_FIRST(<, >)
HS_NUMBER_FIRST(<=, >=)
HS_NUMBER_FIRST(>, <)
HS_NUMBER_FIRST(>=, <=)
#undef HS_NUMBER_FIRST
inline Tensor max(const Tensor& a, const Tensor& b) { return maximum(a, b); }
inline Tensor min(const Tensor& a, const Tensor& b) { return minimum(a, b); }
inline Tensor true_divide(const Tensor& a, const Tensor& b) { return div(a, b); }
template <class N>
  requires std::is_arithmetic_v<N>
Tensor true_divide(const Tensor& a, N b) {
  return div(a, b);
}
template <class N>
  requires std::is_arithmetic_v<N>
Tensor div(const Tensor& a, N b, std::string_view mode) {
  check<ValueError>(mode == "floor" || mode == "trunc", "div", "rounding_mode must be trunc or floor, got '", mode, "'");
  return div(a, b, mode == "floor" ? RoundingMode::floor : RoundingMode::trunc);
}
inline Tensors operator+(Tensors a, const Tensors& b) {  // like Python's lists: net.parameters() + head.parameters()
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
// Takes the indexing "ij" or "xy", which would otherwise convert to true. Throws ValueError for anything else.
template <size_t n>
Tensors meshgrid(const Tensors& xs, const char (&indexing)[n]) {
  const std::string_view text = indexing;
  check<ValueError>(text == "ij" || text == "xy", "meshgrid", "indexing must be ij or xy, got '", text, "'");
  return meshgrid(xs, text == "xy");
}
inline Tensor concat(const Tensors& xs, int64_t dim = 0) { return cat(xs, dim); }
inline Tensor row_stack(const Tensors& xs) { return vstack(xs); }
inline Tensor moveaxis(const Tensor& x, int64_t source, int64_t destination) { return movedim(x, source, destination); }
inline Tensor swapdims(const Tensor& x, int64_t a, int64_t b) { return transpose(x, a, b); }
inline Tensor fliplr(const Tensor& x) { return flip(x, 1); }
inline Tensor flipud(const Tensor& x) { return flip(x, 0); }
inline Tensor argwhere(const Tensor& x) { return nonzero(x); }
inline DType promote_types(DType a, DType b) { return promote(a, b); }
inline DType result_type(const Tensor& a, const Tensor& b) { return result_type(Tensors{a, b}); }
inline Tensor tensordot(const Tensor& a, const Tensor& b, const std::pair<std::vector<int64_t>, std::vector<int64_t>>& dims) {
  return tensordot(a, b, dims.first, dims.second);
}
// Deleted: unique(x) already returns all parts. unique(x, true) would mean dimension 1.
template <std::same_as<bool> Sorted, class... Rest>
Unique unique(const Tensor&, Sorted, Rest...) = delete;

// Returns a function that applies f to each slice of its arguments along dimension 0, and stacks the results: vmap(f)(x, y). f
// takes tensors and returns a tensor. It is called once per slice, so this is no faster than a loop. Throws ShapeError for
// different numbers of slices and for none.
template <class F>
auto vmap(F f) {
  return [f = std::move(f)](const std::derived_from<Tensor> auto& first, const std::derived_from<Tensor> auto&... more) {
    const Tensors all{first, more...};
    for (const Tensor& t : all) {
      check<ShapeError>(t.dim() > 0 && t.size(0) == all[0].size(0) && t.size(0) > 0, "vmap",
                        "all arguments must have one number of slices, above 0, got ", t.shape(), " beside ", all[0].shape());
    }
    Tensors out;
    for (int64_t i = 0; i < first.size(0); ++i) out.push_back(f(first.select(0, i), more.select(0, i)...));
    return stack(out);
  };
}

inline bool is_grad_enabled() { return grad_enabled(); }
inline int get_num_threads() { return num_threads(); }

namespace cuda {

inline bool is_available() { return has_backend(Device::Type::cuda); }

}  // namespace cuda

namespace linalg {

using halfstep::cross, halfstep::multi_dot;
inline Tensor vecdot(const Tensor& x, const Tensor& y, int64_t dim = -1) { return linalg_vecdot(x, y, dim); }
// Return the norm of all elements as one vector, and over dimensions.
inline Tensor norm(const Tensor& x) { return halfstep::norm(x); }
inline Tensor vector_norm(const Tensor& x, double ord = 2, const Dims& dim = {}, bool keepdim = false,
                          std::optional<DType> dtype = {}) {
  return halfstep::norm(x, ord, dim, keepdim, dtype);
}
// Returns the Frobenius norm of matrices [..., M, N] -> [...].
inline Tensor matrix_norm(const Tensor& x) { return halfstep::norm(x, 2, {-2, -1}); }

}  // namespace linalg

// ---- functions of layers, with arguments by name
// approximate: "none" or "tanh" (gelu_tanh). Throws ValueError for anything else.
inline Tensor gelu(const Tensor& x, std::string_view approximate) {
  check<ValueError>(approximate == "none" || approximate == "tanh", "gelu", "approximate must be none or tanh, got '", approximate,
                    "'");
  return approximate == "tanh" ? gelu_tanh(x) : gelu(x);
}
struct NormalizeArguments {
  double p = 2;
  Dims dim{1};
  double eps = 1e-12;
};
inline Tensor normalize(const Tensor& x, const NormalizeArguments& options) {
  return normalize(x, options.p, options.dim, options.eps);
}
struct DropoutArguments {
  double p = 0.5;
  bool training = true;
};
inline Tensor dropout(const Tensor& x, const DropoutArguments& options) { return dropout(x, options.p, options.training); }
// Takes class weights as in Python: cross_entropy(x, target, weight).
template <std::derived_from<Tensor> Weight>
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const Weight& weight) {
  return cross_entropy(logits, target, CrossEntropyOptions{.weight = weight});
}
template <std::derived_from<Tensor> Weight>
Tensor nll_loss(const Tensor& log_probs, const Tensor& target, const Weight& weight) {
  return nll_loss(log_probs, target, NllLossOptions{.weight = weight});
}

// Take the stride as a number, as in Python: max_pool2d(x, 3, 2), conv2d(x, weight, bias, 2, 1); and options without a bias:
// conv2d(x, weight, {.stride = 2}).
#define HS_WINDOWS(dims)                                                                                                          \
  template <SizeNumber Stride>                                                                                                    \
  Tensor max_pool##dims##d(const Tensor& x, const Dims& kernel_size, Stride stride, const Dims& padding = {0}) {                  \
    return max_pool##dims##d(x, kernel_size, MaxPoolOptions{.stride = stride, .padding = padding});                               \
  }                                                                                                                               \
  template <SizeNumber Stride>                                                                                                    \
  Tensor avg_pool##dims##d(const Tensor& x, const Dims& kernel_size, Stride stride, const Dims& padding = {0}) {                  \
    return avg_pool##dims##d(x, kernel_size, AvgPoolOptions{.stride = stride, .padding = padding});                               \
  }                                                                                                                               \
  template <SizeNumber Stride>                                                                                                    \
  Tensor conv##dims##d(const Tensor& x, const Tensor& weight, const Tensor& bias, Stride stride, const ConvPadding& padding = 0,  \
                       const Dims& dilation = {1}, int64_t groups = 1) {                                                          \
    const ConvOptions options{.stride = stride, .padding = padding, .dilation = dilation, .groups = groups};                      \
    return conv##dims##d(x, weight, bias, options);                                                                               \
  }                                                                                                                               \
  template <SizeNumber Stride>                                                                                                    \
  Tensor conv_transpose##dims##d(const Tensor& x, const Tensor& weight, const Tensor& bias, Stride stride,                        \
                                 const Dims& padding = {0}, const Dims& output_padding = {0}, int64_t groups = 1,                 \
                                 const Dims& dilation = {1}) {                                                                    \
    const ConvTransposeOptions options{stride, padding, output_padding, groups, dilation};                                        \
    return conv_transpose##dims##d(x, weight, bias, options);                                                                     \
  }                                                                                                                               \
  template <int = 0>                                                                                                              \
  Tensor conv_transpose##dims##d(const Tensor& x, const Tensor& weight, const ConvTransposeOptions& options) {                    \
    return conv_transpose##dims##d(x, weight, Tensor(), options);                                                                 \
  }                                                                                                                               \
  template <int = 0> /* so that conv2d(x, weight, {}) has no bias */                                                              \
  Tensor conv##dims##d(const Tensor& x, const Tensor& weight, const ConvOptions& options) {                                       \
    return conv##dims##d(x, weight, Tensor(), options);                                                                           \
  }
HS_WINDOWS(1)
HS_WINDOWS(2)
HS_WINDOWS(3)
#undef HS_WINDOWS

}  // namespace halfstep
