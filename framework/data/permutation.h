// Seeded orders of samples.
#pragma once

#include <cstdint>
#include <vector>

namespace halfstep {

// A random order of 0..n-1, uniform over all orders (Fisher-Yates on Philox): a pure function of the arguments. `stream`
// separates the orders of one seed, e.g. by epoch. n < 2^32.
std::vector<int64_t> permutation(int64_t n, uint64_t seed, uint64_t stream = 0);

// The part [begin, end) of a seeded split of n samples, ascending: permutation(n, seed)[floor(begin n), floor(end n)).
// Parts that share no fraction share no sample. Throws ValueError unless 0 <= begin <= end <= 1.
std::vector<int64_t> split_part(int64_t n, double begin, double end, uint64_t seed);

}  // namespace halfstep
