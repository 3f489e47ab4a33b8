// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), host and device.
// Element i of a draw that starts at (seed, offset) takes lane i % 4 of block offset + i / 4.
#pragma once

#include <math.h>
#include <stdint.h>

#include "framework/base/host_device.h"

namespace halfstep::math {

struct Random4 {
  uint32_t v[4];
};

// Returns block `block` of the stream of `seed`: four independent 32-bit numbers after ten rounds. The constants are the paper's.
HS_HD Random4 philox(uint64_t seed, uint64_t block) {
  uint32_t c0 = uint32_t(block), c1 = uint32_t(block >> 32), c2 = 0, c3 = 0;
  uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t(0xD2511F53u) * c0, p1 = uint64_t(0xCD9E8D57u) * c2;
    c0 = uint32_t(p1 >> 32) ^ c1 ^ k0;
    c1 = uint32_t(p1);
    c2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
    c3 = uint32_t(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// Returns element i of a draw.
HS_HD uint32_t random_bits(uint64_t seed, uint64_t offset, uint64_t i) { return philox(seed, offset + i / 4).v[i % 4]; }

// Returns a multiple of 2^-24 in [0, 1), exact in float.
HS_HD float uniform(uint32_t bits) { return float(bits >> 8) * 0x1p-24f; }

// Makes the seed of a second stream, for draws of more than 32 bits.
inline constexpr uint64_t kSecondKey = 0x9E3779B97F4A7C15u;
// Returns a multiple of 2^-53 in [0, 1), with uniform(bits) in its first 24 bits; `more` are the second stream's.
HS_HD double uniform64(uint32_t bits, uint32_t more) { return double(uint64_t(bits >> 8) << 29 | more >> 3) * 0x1p-53; }

// Returns a standard normal number by Box-Muller; lanes (0,1) and (2,3) of a block are pairs.
HS_HD float normal(const Random4& r, int lane) {
  const uint32_t a = r.v[lane & 2], b = r.v[(lane & 2) + 1];
  const float u = (float(a >> 8) + 1.0f) * 0x1p-24f;  // (0, 1]
  const float angle = 6.2831853071795864f * uniform(b);
  const float radius = sqrtf(-2.0f * logf(u));
  return radius * ((lane & 1) ? sinf(angle) : cosf(angle));
}

}  // namespace halfstep::math
