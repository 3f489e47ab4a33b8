// Softmax and log-softmax, shifted by the row's maximum.
#include <vector>

#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/rows.h"

namespace halfstep::cpu {
namespace {

template <class C>
HS_CLONES void times(C* x, C factor, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}
template <class C>
HS_CLONES void minus(const C* x, C shift, C rest, C* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = (x[i] - shift) - rest;
}
template <class C>
HS_CLONES void products(const C* a, const C* b, C* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] * b[i];
}
template <class C>
HS_CLONES void soft_gradient(const C* g, const C* y, C dot, C* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = y[i] * (g[i] - dot);
}
template <class C>
HS_CLONES void log_gradient(const C* g, const C* y, C total, C* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = g[i] - m::exp(y[i]) * total;
}

template <class C>
void forward_row(const C* x, C* out, C* work, int64_t n, bool log) {
  const C top = C(reduce_row<C>(Reduce::max, x, n));
  C* e = log ? work : out;
  exp_row(x, top, e, n);
  const double total = reduce_row<C>(Reduce::sum, e, n);
  if (log)
    minus(x, top, C(std::log(total)), out, n);
  else
    times(out, C(1 / total), n);
}

template <class C>
void backward_row(const C* g, const C* y, C* out, C* work, int64_t n, bool log) {
  if (log) return log_gradient(g, y, C(reduce_row<C>(Reduce::sum, g, n)), out, n);
  products(g, y, work, n);
  soft_gradient(g, y, C(reduce_row<C>(Reduce::sum, work, n)), out, n);
}

// f(in..., out, work, n) on every row along `dim`.
template <class C, class F>
void for_rows(std::initializer_list<const TensorView*> inputs, const TensorView& out, int dim, const F& f) {
  const TensorView* const* in = inputs.begin();
  const int count = int(inputs.size());
  const Space rows(without(out.shape, dim), {&out.strides, &in[0]->strides, &in[count - 1]->strides});
  const int64_t n = row_length(out, dim);
  if (rows.numel == 0 || n == 0) return;
  const int64_t step = row_stride(out, dim);
  const bool direct = out.dtype == dtype_of<C> && step == 1;
  parallel_for(rows.numel, 1, rows.numel * n < kParallel / 8, [&](int64_t begin, int64_t end) {
    std::vector<C> memory(size_t(4 * n));
    C* const buffer = memory.data();
    for (int64_t r = begin; r < end; ++r) {
      const C* source[2];
      for (int k = 0; k < count; ++k) {
        source[k] = read_row<C>(*in[k], Cursor(rows, k + 1, r).offset(), row_stride(*in[k], dim), n, buffer + (k + 2) * n);
      }
      const int64_t to = Cursor(rows, 0, r).offset();
      C* target = direct ? out.as<C>() + to : buffer;
      f(source, target, buffer + n, n);
      if (!direct) store<C>(out.dtype, target, at(out, to), step, n);
    }
  });
}

}  // namespace

void softmax(const TensorView& x, const TensorView& out, int dim, bool log) {
  with_compute(wider(compute_of(x.dtype), compute_of(out.dtype)), [&](auto tag) {
    using C = decltype(tag);
    if constexpr (!std::is_same_v<C, int64_t>) {
      for_rows<C>({&x}, out, dim, [log](const C* const* in, C* to, C* work, int64_t n) { forward_row(in[0], to, work, n, log); });
    }
  });
}

void softmax_backward(const TensorView& grad, const TensorView& y, const TensorView& out, int dim, bool log) {
  with_compute(wider(wider(compute_of(grad.dtype), compute_of(y.dtype)), compute_of(out.dtype)), [&](auto tag) {
    using C = decltype(tag);
    if constexpr (!std::is_same_v<C, int64_t>) {
      for_rows<C>({&grad, &y}, out, dim,
                  [log](const C* const* in, C* to, C* work, int64_t n) { backward_row(in[0], in[1], to, work, n, log); });
    }
  });
}

}  // namespace halfstep::cpu
