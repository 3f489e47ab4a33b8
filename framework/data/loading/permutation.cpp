// SPDX-License-Identifier: Apache-2.0
#include "framework/data/loading/permutation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "framework/base/check.h"
#include "framework/math/random.h"

namespace halfstep {
namespace {

// Separates these draws from those of a Generator with the same seed.
constexpr uint64_t kOrderSalt = 0x6f72646572000000u;

}  // namespace

std::vector<int64_t> permutation(int64_t n, uint64_t seed, uint64_t stream) {
  check<ValueError>(n >= 0 && n < (int64_t(1) << 32), "permutation", "n must be in [0, 2^32), got ", n);
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t(0));
  for (int64_t i = n - 1; i > 0; --i) {
    const math::Random4 r = math::philox(seed ^ kOrderSalt, stream << 32 | uint64_t(i));
    // Computes floor(u (i + 1)) for a 64-bit fraction u, in two 32-bit halves: i + 1 has at most 32 bits.
    const uint64_t low = (uint64_t(r.v[0]) * uint64_t(i + 1)) >> 32;
    const uint64_t j = (uint64_t(r.v[1]) * uint64_t(i + 1) + low) >> 32;
    std::swap(order[size_t(i)], order[size_t(j)]);
  }
  return order;
}

std::vector<int64_t> split_part(int64_t n, double begin, double end, uint64_t seed) {
  return part_of(split_order(n, seed), begin, end);
}

std::vector<int64_t> split_order(int64_t n, uint64_t seed) { return permutation(n, seed, ~uint64_t(0) >> 32); }

std::vector<int64_t> part_of(std::span<const int64_t> order, double begin, double end) {
  check<ValueError>(0 <= begin && begin <= end && end <= 1, "split", "a part must be [a, b) with 0 <= a <= b <= 1, got [", begin,
                    ", ", end, ')');
  const auto n = int64_t(order.size());
  // Rounds so that 0.3 of 10 is 3, although 0.3 * 10 may be slightly less.
  const auto position = [n](double f) { return std::min(n, int64_t(std::floor(f * double(n) + 1e-9 * double(n)))); };
  std::vector<int64_t> part(order.begin() + position(begin), order.begin() + position(end));
  std::sort(part.begin(), part.end());
  return part;
}

std::vector<int64_t> stratified_order(std::span<const int64_t> labels, uint64_t seed) {
  std::map<int64_t, std::vector<int64_t>> members;  // of each class, in the seeded order
  for (const int64_t i : split_order(int64_t(labels.size()), seed)) members[labels[size_t(i)]].push_back(i);
  std::vector<std::pair<double, int64_t>> places;  // in [0, 1), evenly spaced for each class
  for (const auto& [label, those] : members) {
    for (size_t j = 0; j < those.size(); ++j) places.emplace_back((double(j) + 0.5) / double(those.size()), those[j]);
  }
  std::sort(places.begin(), places.end());
  std::vector<int64_t> out;
  for (const auto& [place, i] : places) out.push_back(i);
  return out;
}

}  // namespace halfstep
