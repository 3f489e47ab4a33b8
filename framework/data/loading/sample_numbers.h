// SPDX-License-Identifier: Apache-2.0
// Random numbers of one sample of a data set: a function of (seed, split, index) and the number of earlier draws.
#pragma once

#include <cstdint>

#include "framework/data/sets/dataset.h"
#include "framework/math/random.h"

namespace halfstep {

class SampleNumbers {
 public:
  SampleNumbers(uint64_t seed, Split split, int64_t index)
      : seed_(seed), block_(((uint64_t(index) << 1) | uint64_t(split)) << kBlockBits) {}
  // Returns a number in [lo, hi).
  float uniform(float lo, float hi) { return lo + (hi - lo) * math::uniform(math::random_bits(seed_, block_, next_++)); }
  // Returns a number of N(0, 1). It takes a whole block of Philox: 4 numbers.
  float normal() {
    next_ = (next_ + 3) / 4 * 4;
    const float x = math::normal(math::philox(seed_, block_ + next_ / 4), 0);
    next_ += 4;
    return x;
  }
  // Returns a number in [0, n), n <= 2^24.
  int64_t below(int64_t n) {
    const auto i = int64_t(uniform(0, float(n)));
    return i < n ? i : n - 1;
  }

 private:
  static constexpr int kBlockBits = 12;  // a sample has 2^12 blocks of Philox, of 4 numbers each
  uint64_t seed_, block_, next_ = 0;
};

}  // namespace halfstep
