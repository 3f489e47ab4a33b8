// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/kernels/elementwise/divide.cuh"

namespace halfstep::cuda {

// A divisor of many numbers in a kernel: quotient(a, d) = a / d for a >= 0. In 32 bits this is a multiplication and a shift.
template <class I>
struct Divisor {
  I number = 1;

  Divisor() = default;
  Divisor(I n) : number(n) {}
  __host__ __device__ operator I() const { return number; }
};
__device__ inline int64_t quotient(int64_t a, Divisor<int64_t> d) { return quotient(a, d.number); }

// factor is the first integer above 2^(31 + shift) / number, where 2^shift is the least power of two not below the number: for
// dividends below 2^31 the product's error is too small to reach the next integer.
template <>
struct Divisor<int32_t> {
  int32_t number;
  uint32_t factor;
  int shift = 0;

  Divisor() : Divisor(1) {}
  Divisor(int32_t n) : number(n) {
    while (int64_t(1) << shift < n) ++shift;
    factor = uint32_t((uint64_t(1) << (31 + shift)) / uint32_t(n) + 1);
  }
  __host__ __device__ operator int32_t() const { return number; }
};
__device__ inline int32_t quotient(int32_t a, Divisor<int32_t> d) {
  return int32_t(uint32_t(uint64_t(2 * uint32_t(a)) * d.factor >> 32) >> d.shift);
}

}  // namespace halfstep::cuda
