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
      : seed_(seed), block_(((uint64_t(index) << 1) | uint64_t(split)) << 12) {}
  float uniform(float lo, float hi) { return lo + (hi - lo) * math::uniform(math::random_bits(seed_, block_, next_++)); }
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
  uint64_t seed_, block_, next_ = 0;
};

}  // namespace halfstep
