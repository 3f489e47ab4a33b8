// SPDX-License-Identifier: Apache-2.0
// Squared error of a and b, n elements each: loss = sum (a - b)^2, da = 2 (a - b) g, db = -da; the mean divides all by n.
#include <algorithm>
#include <vector>

#include "framework/backend/cpu/elementwise/loops.h"
#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/reduce/reduce_kernels.h"

namespace halfstep::cpu {
namespace {

constexpr int64_t kSegment = 32 * kBlock;

template <class C>
HS_CLONES void squared_difference(const C* a, const C* b, C* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = (a[i] - b[i]) * (a[i] - b[i]);
}

template <class C>
HS_CLONES void scaled_difference(const C* const* in, C* out, int64_t n, const void* context) {
  const C factor = *static_cast<const C*>(context);
  const C *a = in[0], *b = in[1];
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = (a[i] - b[i]) * factor;
}

template <class C>
double sum_of_squares(const TensorView& a, const TensorView& b) {
  const Space s(a.shape, {&a.strides, &b.strides});
  const int64_t segments = (s.numel + kSegment - 1) / kSegment;
  std::vector<double> partial(static_cast<size_t>(segments));
  parallel_for(segments, 1, s.numel, [&](int64_t begin, int64_t end) {
    alignas(64) C left[kBlock], right[kBlock];
    for (int64_t task = begin; task < end; ++task) {
      for (int64_t i = task * kSegment; i < std::min(s.numel, (task + 1) * kSegment); i += kBlock) {
        const int64_t n = std::min(kBlock, s.numel - i);
        squared_difference(fetch<C>(s, 0, a, i, n, left), fetch<C>(s, 1, b, i, n, right), left, n);
        partial[size_t(task)] += double(reduce_row<C>(Reduce::sum, left, n));
      }
    }
  });
  double sum = 0;
  for (double p : partial) sum += p;
  return sum;
}

}  // namespace

void mse(const TensorView& a, const TensorView& b, Reduction reduction, const TensorView& loss, const LossGradient& gradient) {
  const bool wide = a.dtype == DType::f64 || b.dtype == DType::f64;
  const double sum = wide ? sum_of_squares<double>(a, b) : sum_of_squares<float>(a, b);
  store_one<double>(loss.dtype, reduction == Reduction::mean ? sum / double(a.numel()) : sum, loss.data);
  if (gradient.out) mse_backward(a, b, gradient.grad, reduction, 1, gradient.out);
}

void mse_backward(const TensorView& a, const TensorView& b, const TensorView& grad, Reduction reduction, double sign,
                  const TensorView& out) {
  if (out.numel() == 0) return;
  const double g = load_one<double>(grad.dtype, grad.data);
  const double factor = sign * 2 * g / (reduction == Reduction::mean ? double(a.numel()) : 1);
  const TensorView in[] = {a, b};
  if (a.dtype == DType::f64 || b.dtype == DType::f64 || out.dtype == DType::f64) {
    return map<double>(out, in, scaled_difference<double>, &factor);
  }
  const float single = float(factor);
  map<float>(out, in, scaled_difference<float>, &single);
}

}  // namespace halfstep::cpu
