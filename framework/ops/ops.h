// SPDX-License-Identifier: Apache-2.0
// Every public op, here and in the headers below. Names, arguments, defaults and broadcasting are PyTorch's; docs/ops.md lists
// policies and formulas. All are differentiable any number of times unless noted. Shape errors are thrown before anything is
// recorded.
#pragma once

#include <type_traits>

#include "framework/backend/backend.h"
#include "framework/base/generator.h"
#include "framework/ops/core/loss_reduction.h"
#include "framework/tensor/results.h"
#include "framework/tensor/tensor.h"

// Families with separate headers.
#include "framework/ops/elementwise/activations.h"
#include "framework/ops/elementwise/bitwise.h"
#include "framework/ops/elementwise/where.h"
#include "framework/ops/index/index_ops.h"
#include "framework/ops/index/masks.h"
#include "framework/ops/index/search.h"
#include "framework/ops/index/slicing.h"
#include "framework/ops/linalg/attention.h"
#include "framework/ops/linalg/contractions.h"
#include "framework/ops/linalg/decompositions.h"
#include "framework/ops/linalg/distances.h"
#include "framework/ops/linalg/inverse.h"
#include "framework/ops/linalg/vectors.h"
#include "framework/ops/loss/ctc_loss.h"
#include "framework/ops/loss/margin_losses.h"
#include "framework/ops/loss/pointwise_losses.h"
#include "framework/ops/recurrent/recurrent.h"
#include "framework/ops/reduce/moments.h"
#include "framework/ops/reduce/normalization.h"
#include "framework/ops/reduce/scans.h"
#include "framework/ops/reduce/sorting.h"
#include "framework/ops/shape/create.h"
#include "framework/ops/shape/literal.h"
#include "framework/ops/shape/rearrange.h"
#include "framework/ops/shape/stacks.h"
#include "framework/ops/window/convolution.h"
#include "framework/ops/window/fractional_pool.h"
#include "framework/ops/window/grid_sample.h"
#include "framework/ops/window/padding.h"
#include "framework/ops/window/pixel_shuffle.h"
#include "framework/ops/window/pooling.h"
#include "framework/ops/window/resample.h"

namespace halfstep {

// ---- creation
Tensor empty(const Shape& shape, const TensorOptions& options = {});
Tensor zeros(const Shape& shape, const TensorOptions& options = {});
Tensor ones(const Shape& shape, const TensorOptions& options = {});
Tensor zeros_like(const Tensor& x);  // these three take x's shape, dtype, device and memory format
Tensor ones_like(const Tensor& x);
Tensor empty_like(const Tensor& x);  // not initialised, as empty()
// Returns start + i step, below end. dtype by default: int64 if all numbers are integers, else float32. Throws ValueError for a
// step that does not lead from start to end.
Tensor arange(Number start, Number end, Number step = 1, const NumberOptions& options = {});
inline Tensor arange(Number start, Number end, const NumberOptions& options) { return arange(start, end, 1, options); }
inline Tensor arange(Number end, const NumberOptions& options = {}) { return arange(0, end, 1, options); }
// Fills all elements with `value`. dtype by default: int64 for an integer, bool for a bool, else float32.
Tensor full(const Shape& shape, Number value, const NumberOptions& options = {});
// Accept sizes without braces: zeros(2, 3) is zeros({2, 3}).
template <SizeNumber... Sizes>
  requires(sizeof...(Sizes) > 1)
Tensor zeros(Sizes... sizes) {
  return zeros(Shape{int64_t(sizes)...});
}
template <SizeNumber... Sizes>
  requires(sizeof...(Sizes) > 1)
Tensor ones(Sizes... sizes) {
  return ones(Shape{int64_t(sizes)...});
}
Tensor eye(int64_t n, const TensorOptions& options = {});
// Makes a tensor of numbers, with nested braces as dimensions: tensor(1.5), tensor({{1.0, 2.0}, {3.0, 4.0}}). dtype by default:
// float32 if a number is floating, int64 if all are integers, bool if all are bool. Throws ShapeError for rows of different sizes.
Tensor tensor(const TensorLiteral& values, const NumberOptions& options = {});
// Makes a tensor of row-major values: tensor({1, 2, 3, 4}, {2, 2}), float32 by default. An empty shape list means [values.size()].
Tensor tensor(const std::vector<double>& values, const Shape& shape, const TensorOptions& options = {});
template <class T>
Tensor from_vector(const std::vector<T>& values, const Shape& shape, Device device = default_device());  // copies; dtype_of<T>
template <class T>
Tensor tensor(const std::vector<T>& values, const NumberOptions& options = {}) {  // [values.size()]; dtype_of<T> by default
  const Tensor t = from_vector(values, {int64_t(values.size())}, options.device).to(options.dtype.value_or(dtype_of<T>));
  return options.requires_grad ? t.set_requires_grad() : t;
}
Tensor scalar(Number value, const TensorOptions& options = {});  // 0-dim
// Wraps the caller's memory, which must outlive the tensor; on the host, row-major.
Tensor from_blob(void* data, const Shape& shape, DType dtype = DType::f32);
// Draw random numbers; `generator` defaults to default_generator().
Tensor rand(const Shape& shape, const TensorOptions& options = {}, Generator* generator = nullptr);    // [0, 1)
Tensor randn(const Shape& shape, const TensorOptions& options = {}, Generator* generator = nullptr);   // N(0, 1)
Tensor randint(int64_t lo, int64_t hi, const Shape& shape, const TensorOptions& options = {.dtype = DType::i64},
               Generator* generator = nullptr);
Tensor randint(int64_t hi, const Shape& shape, const TensorOptions& options = {.dtype = DType::i64},
               Generator* generator = nullptr);
Tensor randperm(int64_t n, Generator* generator = nullptr);  // i64
template <SizeNumber... Sizes>
  requires(sizeof...(Sizes) > 1)
Tensor rand(Sizes... sizes) {
  return rand(Shape{int64_t(sizes)...});
}
template <SizeNumber... Sizes>
  requires(sizeof...(Sizes) > 1)
Tensor randn(Sizes... sizes) {
  return randn(Shape{int64_t(sizes)...});
}
// Fill in place, unrecorded.
void uniform_(const Tensor& x, double lo, double hi, Generator* generator = nullptr);
void normal_(const Tensor& x, double mean, double stddev, Generator* generator = nullptr);

// ---- elementwise: one function per row of elementwise.def. Binary ops broadcast and promote; a C++ number keeps the tensor's
// dtype unless it is of a higher category (int tensor with 2.0 gives float32). Rows of kind number throw DTypeError for bool.
#define HS_UNARY(name, ...) Tensor name(const Tensor& x);
#define HS_BINARY(name, ...)                       \
  Tensor name(const Tensor& a, const Tensor& b);   \
  Tensor name(const Tensor& a, Number b);          \
  Tensor name(Number a, const Tensor& b);
#define HS_TEST(name, ...)                         \
  Tensor name(const Tensor& a, const Tensor& b);   \
  Tensor name(const Tensor& a, Number b);
#include "generated/elementwise_names.def"
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator+(const Tensor& a, Number b) { return add(a, b); }
inline Tensor operator+(Number a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator-(const Tensor& a, Number b) { return sub(a, b); }
inline Tensor operator-(Number a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator*(const Tensor& a, Number b) { return mul(a, b); }
inline Tensor operator*(Number a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator/(const Tensor& a, Number b) { return div(a, b); }
inline Tensor operator%(const Tensor& a, const Tensor& b) { return remainder(a, b); }  // with b's sign, as in Python
inline Tensor operator%(const Tensor& a, Number b) { return remainder(a, b); }
Tensor operator/(Number a, const Tensor& b);  // autocast: f32, as reciprocal
inline Tensor operator==(const Tensor& a, const Tensor& b) { return eq(a, b); }
inline Tensor operator!=(const Tensor& a, const Tensor& b) { return ne(a, b); }
inline Tensor operator<(const Tensor& a, const Tensor& b) { return lt(a, b); }
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return le(a, b); }
inline Tensor operator>(const Tensor& a, const Tensor& b) { return gt(a, b); }
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return ge(a, b); }
inline Tensor operator==(const Tensor& a, Number b) { return eq(a, b); }
inline Tensor operator!=(const Tensor& a, Number b) { return ne(a, b); }
inline Tensor operator<(const Tensor& a, Number b) { return lt(a, b); }
inline Tensor operator<=(const Tensor& a, Number b) { return le(a, b); }
inline Tensor operator>(const Tensor& a, Number b) { return gt(a, b); }
inline Tensor operator>=(const Tensor& a, Number b) { return ge(a, b); }
// Rounding of a / b to an integer: towards zero, or down. Integers stay integers, and dividing them by 0 gives 0. The gradient is
// 0.
enum class RoundingMode : uint8_t { trunc, floor };
Tensor div(const Tensor& a, const Tensor& b, RoundingMode mode);
Tensor div(const Tensor& a, Number b, RoundingMode mode);
Tensor add(const Tensor& a, const Tensor& b, double alpha);  // a + alpha b; in 16 bits the product is not rounded before the sum
Tensor sub(const Tensor& a, const Tensor& b, double alpha);
Tensor float_power(const Tensor& a, const Tensor& b);  // a^b in float64, whatever the dtypes
Tensor float_power(const Tensor& a, Number b);
Tensor float_power(Number a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b, std::string_view mode);  // "trunc" or "floor"
// Rounds to `decimals` places after the decimal point, or, if negative, before it: round(x 10^decimals) / 10^decimals. Floating x.
// The gradient is 0.
Tensor round(const Tensor& x, int64_t decimals);
// Return input + value a b, and input + value a / b. They broadcast and promote; addcmul accepts integers with an integer value.
Tensor addcmul(const Tensor& input, const Tensor& a, const Tensor& b, double value = 1);
Tensor addcdiv(const Tensor& input, const Tensor& a, const Tensor& b, double value = 1);
// Returns input + weight (end - input); input and end must have one floating dtype.
Tensor lerp(const Tensor& input, const Tensor& end, const Tensor& weight);
Tensor lerp(const Tensor& input, const Tensor& end, double weight);
// Returns a where the bool tensor cond is true, else b. All broadcast, a and b promote.
Tensor where(const Tensor& cond, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& cond, const Tensor& a, Number b);
Tensor where(const Tensor& cond, Number a, const Tensor& b);
template <class A, class B>  // for two numbers: their dtype, as in full()
  requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B>
Tensor where(const Tensor& cond, A a, B b) {
  const NumberOptions options{.dtype = Number(std::common_type_t<A, B>()).natural_dtype(), .device = cond.device()};
  return where(cond, full({}, a, options), full({}, b, options));
}
Tensor clamp(const Tensor& x, std::optional<Number> lo, std::optional<Number> hi = {});  // min(max(x, lo), hi); unset: no bound
inline Tensor clip(const Tensor& x, std::optional<Number> lo, std::optional<Number> hi = {}) { return clamp(x, lo, hi); }
Tensor isfinite(const Tensor& x);  // bool
Tensor isnan(const Tensor& x);     // bool

// ---- dtype and memory
Tensor to(const Tensor& x, DType dtype);    // returns x itself if nothing changes; so do the next, and contiguous()
Tensor to(const Tensor& x, Device device);
Tensor to(const Tensor& x, MemoryFormat format);
Tensor clone(const Tensor& x);              // dense copy in x's memory format
Tensor clone(const Tensor& x, MemoryFormat format);
Tensor contiguous(const Tensor& x);         // elements in row-major order, without gaps

// ---- views, which share x's memory. Negative dimensions count from the end.
Tensor reshape(const Tensor& x, const Shape& shape);  // one size may be -1; a copy if the strides allow no view
Tensor flatten(const Tensor& x, int64_t start = 0, int64_t end = -1);  // joins dimensions start to end; a copy like reshape
inline Tensor ravel(const Tensor& x) { return flatten(x); }
Tensor transpose(const Tensor& x, int64_t a, int64_t b);  // exchanges dimensions a and b
Tensor permute(const Tensor& x, const Dims& order);       // dimension i of the result is order[i] of x
Tensor squeeze(const Tensor& x, int64_t dim);             // removes the dimension if its size is 1
Tensor unsqueeze(const Tensor& x, int64_t dim);           // inserts a dimension of size 1
Tensor expand(const Tensor& x, const Shape& shape);       // repeats sizes of 1; -1 keeps a size
Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t end, int64_t step = 1);  // x[start:end:step] in Python
Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length);                // x[start:start + length]
Tensor select(const Tensor& x, int64_t dim, int64_t index);                                // x[index], removes the dimension
// Copy tensors one after another along dim, or along a new dimension.
Tensor cat(const Tensors& xs, int64_t dim = 0);     // promotes
Tensor stack(const Tensors& xs, int64_t dim = 0);   // promotes

// ---- products (autocast: low)
Tensor mm(const Tensor& a, const Tensor& b);        // [M, K] [K, N] -> [M, N]
Tensor bmm(const Tensor& a, const Tensor& b);       // [B, M, K] [B, K, N] -> [B, M, N]
Tensor matmul(const Tensor& a, const Tensor& b);    // vectors, matrices and broadcast batches
Tensor addmm(const Tensor& input, const Tensor& a, const Tensor& b, double beta = 1, double alpha = 1);  // beta input + alpha a b
// Return beta input + alpha (the sum over the batch of a b), and for each element of the batch beta input + alpha a b. a [B, N,
// M], b [B, M, P]; input broadcasts to [N, P] and [B, N, P], and beta 0 ignores it, including NaN.
Tensor addbmm(const Tensor& input, const Tensor& a, const Tensor& b, double beta = 1, double alpha = 1);
Tensor baddbmm(const Tensor& input, const Tensor& a, const Tensor& b, double beta = 1, double alpha = 1);
// Returns x weight^T + bias. x: [..., in], weight: [out, in], bias: [out] or undefined -> [..., out]. relu: applies ReLU in the
// same pass. With a weight [in] and a bias [] the result has no last dimension.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = Tensor(), bool relu = false);
struct MlpLayer {
  Tensor weight;     // [out, in]
  Tensor bias = {};  // [out] or undefined
  Activation activation = Activation::none;
};
// Computes linear() and the activation, layer after layer, as one op: x [..., in of the first] -> [..., out of the last]. Equals
// the chain of ops in value, with fewer passes over memory, also in backward.
Tensor mlp(const Tensor& x, const std::vector<MlpLayer>& layers);

// ---- reductions over `dims` ({}: all), which keepdim keeps with size 1. dtype: of the result.
Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false, std::optional<DType> dtype = {});   // autocast: f32 out
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false, std::optional<DType> dtype = {});
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);
Tensor amax(const Tensor& x, const Dims& dims = {}, bool keepdim = false);  // equal extremes share the gradient
Tensor amin(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
ValuesIndices max(const Tensor& x, int64_t dim, bool keepdim = false);  // values, indices (of the first maximum)
ValuesIndices min(const Tensor& x, int64_t dim, bool keepdim = false);
// Returns (amin, amax).
MinMax aminmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);
Tensor argmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);  // i64
Tensor argmin(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);
// Return as bool whether any element is nonzero, and whether all are.
Tensor any(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor all(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor sum_to(const Tensor& x, const Shape& shape);  // sums over the dimensions that a broadcast of `shape` to x's repeats

// ---- softmax and losses (autocast: f32 out, f32)
Tensor softmax(const Tensor& x, int64_t dim, std::optional<DType> dtype = {});  // e^x / sum of e^x along dim, and its logarithm
Tensor log_softmax(const Tensor& x, int64_t dim, std::optional<DType> dtype = {});
struct CrossEntropyOptions {
  Tensor weight = {};          // [C] or undefined
  int64_t ignore_index = -100;
  LossReduction reduction = Reduction::mean;
  double label_smoothing = 0;
  static const OptionList<CrossEntropyOptions>& list();
};
// Returns -log_softmax(logits)[target], weighted. logits: [C], [N, C] or [N, C, d1...]; target: class indices i64 [], [N] or [N,
// d1...], or probabilities of logits' shape, with which an ignore_index of 0 or more is a ValueError. The mean of class indices is
// over their weights, which may have any floating dtype. `seed`: as of mse_loss; not used with probabilities or unreduced losses.
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options = {}, const Tensor& seed = {});
struct NllLossOptions {
  Tensor weight = {};
  int64_t ignore_index = -100;
  LossReduction reduction = Reduction::mean;
  static const OptionList<NllLossOptions>& list();
};
// Returns -log_probs[target], with shapes and means like cross_entropy. Throws DTypeError for a weight of another dtype, unless it
// is float32 beside 16 bits.
Tensor nll_loss(const Tensor& log_probs, const Tensor& target, const NllLossOptions& options = {});
// Returns (x - target)^2, reduced. seed: the 0-dim tensor that backward will begin with, if that is decided before; x's gradient is
// then computed in the same pass as the loss. A backward that begins with another tensor, or with a changed seed, computes it anew.
Tensor mse_loss(const Tensor& x, const Tensor& target, LossReduction reduction = Reduction::mean, const Tensor& seed = {});

// ---- indexing. Indices are int64 or int32. index of gather and scatter_add has x's rank. Along dim 1 of three: out[i][j][k] =
// x[i][index[i][j][k]][k].
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index);  // index [n] or []: out[.., i, ..] = x[.., index[i], ..]
// Returns x with src added where gather would read: along dim 1 of three, x[i][index[i][j][k]][k] += src[i][j][k].
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);

// ---- random in a model
// Zeroes with probability p and scales the rest by 1 / (1 - p) when training; else x itself. No mask is stored.
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true, Generator* generator = nullptr);

template <class T>
Tensor from_vector(const std::vector<T>& values, const Shape& shape, Device device) {
  check<ShapeError>(int64_t(values.size()) == numel(shape), "from_vector", "shape ", shape, " needs ", numel(shape),
                    " values, got ", values.size());
  Tensor t = Tensor::empty(shape, {.dtype = dtype_of<T>, .device = device});
  if constexpr (std::is_same_v<T, bool>) {
    std::vector<uint8_t> bytes(values.begin(), values.end());
    backend_for(device).copy_from_host(bytes.data(), t.view().data, bytes.size());
  } else {
    backend_for(device).copy_from_host(values.data(), t.view().data, values.size() * sizeof(T));
  }
  return t;
}

}  // namespace halfstep
