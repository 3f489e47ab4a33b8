// SPDX-License-Identifier: Apache-2.0
// Mean and variance of blocks of values, and their merging.
#pragma once

#include <cstdint>
#include <cstring>

namespace halfstep::cpu {

struct Moments {
  double mean = 0, squares = 0;  // squares: sum (x - mean)^2
  int64_t count = 0;

  void join(const Moments& o);  // adds the values of another block
};

// Computes sum (x - center) and sum (x - center)^2 of a block in the cache, in C, to which T is widened.
template <class C, class T>
void sums_about(const T* x, C center, int64_t n, double& sum, double& squares);

// Computes the moments of a block in two passes.
template <class C, class T>
Moments moments_of(const T* x, int64_t n);

// Adds up 64 bytes of lanes, halves first.
template <class C>
[[gnu::always_inline]] inline C sum_lanes(const C* lanes) {
  constexpr int kWidth = 64 / int(sizeof(C));
  typedef C Bytes32 __attribute__((vector_size(32)));
  typedef C Bytes16 __attribute__((vector_size(16)));
  Bytes32 halves[2];
  std::memcpy(halves, lanes, sizeof halves);
  halves[0] += halves[1];
  Bytes16 quarters[2];
  std::memcpy(quarters, halves, sizeof quarters);
  quarters[0] += quarters[1];
  C sum = 0;
  for (int k = 0; k < kWidth / 4; ++k) sum += quarters[0][k];
  return sum;
}

}  // namespace halfstep::cpu
