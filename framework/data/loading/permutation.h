// SPDX-License-Identifier: Apache-2.0
// Seeded orders of samples.
#pragma once

#include <cstdint>
#include <vector>

namespace halfstep {

// Returns a random order of 0..n-1, uniform over all orders (Fisher-Yates on Philox), a pure function of the arguments. `stream`
// separates the orders of one seed, e.g. by epoch. n < 2^32.
std::vector<int64_t> permutation(int64_t n, uint64_t seed, uint64_t stream = 0);

// Returns the order of an epoch as PyTorch's DataLoader(..., shuffle=True, generator=torch.Generator().manual_seed(seed)) has it in
// its pass number `epoch`, from 0. Takes longer for later epochs: about 3 ns for each number of those before.
std::vector<int64_t> loader_permutation_of_pytorch(int64_t n, uint64_t seed, uint64_t epoch);

}  // namespace halfstep
