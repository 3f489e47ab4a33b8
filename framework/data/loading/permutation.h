// SPDX-License-Identifier: Apache-2.0
// Seeded orders of samples.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace halfstep {

// Returns a random order of 0..n-1, uniform over all orders (Fisher-Yates on Philox), a pure function of the arguments. `stream`
// separates the orders of one seed, e.g. by epoch. n < 2^32.
std::vector<int64_t> permutation(int64_t n, uint64_t seed, uint64_t stream = 0);

// Returns the part [begin, end) of a seeded split of n samples, ascending: permutation(n, seed)[floor(begin n), floor(end n)).
// Disjoint parts share no sample. Throws ValueError unless 0 <= begin <= end <= 1.
std::vector<int64_t> split_part(int64_t n, double begin, double end, uint64_t seed);
// Return the order that split_part cuts, and a part of any order, cut in the same way.
std::vector<int64_t> split_order(int64_t n, uint64_t seed);
std::vector<int64_t> part_of(std::span<const int64_t> order, double begin, double end);
// Returns a seeded order of samples with these classes in which every stretch has each class in its share: for a class with m of n
// samples, a stretch of s has s m / n samples, off by at most 1. part_of cuts it into stratified splits and folds.
std::vector<int64_t> stratified_order(std::span<const int64_t> labels, uint64_t seed);

}  // namespace halfstep
