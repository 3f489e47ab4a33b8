// Products of one row with one column: libraries take them for matrices and pack what is read only once.
#include <cstring>

#include "framework/backend/cpu/gemm.h"
#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/reduce_kernels.h"
#include "framework/backend/cpu/rows.h"

namespace halfstep::cpu {
namespace {

// A fixed number of lanes: the sum does not depend on the instruction set.
template <class C>
HS_CLONES C dot_block(const C* a, const C* b, int64_t n) {
  typedef C Lanes __attribute__((vector_size(64)));
  constexpr int64_t width = 64 / int64_t(sizeof(C));
  Lanes sums[4] = {}, x, y;
  int64_t i = 0;
  for (; i + 4 * width <= n; i += 4 * width) {
    for (int k = 0; k < 4; ++k) {
      std::memcpy(&x, a + i + k * width, 64);
      std::memcpy(&y, b + i + k * width, 64);
      sums[k] += x * y;
    }
  }
  Lanes sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  for (; i < n; ++i) sum[i % width] += a[i] * b[i];
  for (int64_t half = width / 2; half > 0; half /= 2) {
    for (int64_t k = 0; k < half; ++k) sum[k] += sum[k + half];
  }
  return sum[0];
}

template <class C>
void dots(const TensorView& a, const TensorView& b, const TensorView& c) {
  const bool batched = a.shape.size() == 3;
  const int64_t batch = batched ? a.shape[0] : 1, n = a.shape[a.shape.size() - 1];
  const int64_t a_batch = batched ? a.strides[0] : 0, b_batch = batched ? b.strides[0] : 0;
  const int64_t a_step = a.strides[a.shape.size() - 1], b_step = b.strides[b.shape.size() - 2];
  const int64_t grain = std::max<int64_t>(1, 8 * kBlock / std::max<int64_t>(n, 1));
  parallel_for(batch, grain, batch * n, [&](int64_t begin, int64_t end) {
    alignas(64) C left[kBlock], right[kBlock];
    for (int64_t row = begin; row < end; ++row) {
      double sum = 0;
      for (int64_t i = 0; i < n; i += kBlock) {
        const int64_t count = std::min(kBlock, n - i);
        sum += double(dot_block(read_row<C>(a, row * a_batch + i * a_step, a_step, count, left),
                                read_row<C>(b, row * b_batch + i * b_step, b_step, count, right), count));
      }
      store_one<double>(c.dtype, sum, at(c, row));
    }
  });
}

}  // namespace

void multiply_rows(const TensorView& a, const TensorView& b, const TensorView& c) {
  if (a.dtype == DType::f64)
    dots<double>(a, b, c);
  else
    dots<float>(a, b, c);
}

}  // namespace halfstep::cpu
