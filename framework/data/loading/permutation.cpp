// SPDX-License-Identifier: Apache-2.0
#include "framework/data/loading/permutation.h"

#include <numeric>
#include <utility>

#include "framework/base/check.h"
#include "framework/base/generator.h"
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

std::vector<int64_t> loader_permutation_of_pytorch(int64_t n, uint64_t seed, uint64_t epoch) {
  constexpr int64_t kLeastWith64Bits = 0xffffffffu / 20;  // from this size on PyTorch draws 64 bits for each sample
  check<ValueError>(n >= 0 && n < kLeastWith64Bits, "permutation", "n must be in [0, 214748364) for mt19937, got ", n);
  Twister generator(seed);
  // A pass draws a seed for workers, its order, and at its end one more order, which is not used.
  const uint64_t seed_draws = 2, pass_draws = seed_draws + 2 * uint64_t(n > 0 ? n - 1 : 0);
  generator.discard(epoch * pass_draws + seed_draws);
  return generator.permutation(n);
}

}  // namespace halfstep
