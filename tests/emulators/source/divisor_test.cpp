// SPDX-License-Identifier: Apache-2.0
// Division by a product and a shift, where it would go wrong first: around multiples, for divisors around powers of two.
#include "cuda/kernels/divisor.cuh"

#include <doctest/doctest.h>

using namespace halfstep;

TEST_CASE("a divisor divides all numbers of 31 bits") {
  constexpr int64_t kMost = 0x7fffffff;
  int64_t wrong = 0;
  const auto try_divisor = [&](int64_t number) {
    if (number < 1 || number > kMost) return;
    const cuda::Divisor<int32_t> d{int32_t(number)};
    const int64_t last = kMost / number;
    for (int64_t multiple : {int64_t(0), int64_t(1), int64_t(2), int64_t(1000), last / 2, last - 1, last, last + 1}) {
      for (int64_t i : {multiple * number - 1, multiple * number, multiple * number + 1, kMost})
        if (i >= 0 && i <= kMost) wrong += cuda::quotient(int32_t(i), d) != i / number;
    }
  };
  for (int bit = 0; bit < 31; ++bit)
    for (int64_t off = -3; off <= 3; ++off) try_divisor((int64_t(1) << bit) + off);
  for (int64_t number = 1; number <= kMost; number += number / 50 + 1) try_divisor(number);
  CHECK(wrong == 0);
}
