// SPDX-License-Identifier: Apache-2.0
// Seeded orders of samples.
#pragma once

#include <cstdint>
#include <vector>

namespace halfstep {

// Returns a random order of 0..n-1, uniform over all orders (Fisher-Yates on Philox), a pure function of the arguments. `stream`
// separates the orders of one seed, e.g. by epoch. n < 2^32.
std::vector<int64_t> permutation(int64_t n, uint64_t seed, uint64_t stream = 0);

}  // namespace halfstep
