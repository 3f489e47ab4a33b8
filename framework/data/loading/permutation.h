// SPDX-License-Identifier: Apache-2.0
// Seeded orders of samples.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace halfstep {

// A random order of 0..n-1, uniform over all orders (Fisher-Yates on Philox): a pure function of the arguments. `stream`
// separates the orders of one seed, e.g. by epoch. n < 2^32.
std::vector<int64_t> permutation(int64_t n, uint64_t seed, uint64_t stream = 0);

// The part [begin, end) of a seeded split of n samples, ascending: permutation(n, seed)[floor(begin n), floor(end n)).
// Parts that share no fraction share no sample. Throws ValueError unless 0 <= begin <= end <= 1.
std::vector<int64_t> split_part(int64_t n, double begin, double end, uint64_t seed);
// The order that split_part cuts, and a part of any order as it cuts it.
std::vector<int64_t> split_order(int64_t n, uint64_t seed);
std::vector<int64_t> part_of(std::span<const int64_t> order, double begin, double end);
// A seeded order of samples with these classes, in which every stretch has each class in its share: of the class with m of n
// samples, a stretch of s has s m / n, off by at most 1. To be cut into stratified splits and folds by part_of.
std::vector<int64_t> stratified_order(std::span<const int64_t> labels, uint64_t seed);

}  // namespace halfstep
