// SPDX-License-Identifier: Apache-2.0
#include "framework/io/files/sha256_blocks.h"

#include <bit>

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>
#define HS_SHA_INSTRUCTIONS
#elif defined(__aarch64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)  // Clang 14 takes no such target
#include <arm_neon.h>
#include <sys/auxv.h>
#define HS_SHA_INSTRUCTIONS
#endif

namespace halfstep {
namespace {

// The first 32 fractional bits of the cube roots of the first 64 primes.
alignas(16) constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

#if defined(HS_SHA_INSTRUCTIONS) && defined(__aarch64__)
bool has_sha_instructions() {
  constexpr unsigned long kSha2 = 1ul << 6;  // HWCAP_SHA2
  return getauxval(AT_HWCAP) & kSha2;
}

// Computes four rounds at a time.
__attribute__((target("+crypto"))) void sha256_blocks_fast(Sha256State& state, const uint8_t* p, size_t count) {
  uint32x4_t abcd = vld1q_u32(&state[0]), efgh = vld1q_u32(&state[4]);
  for (; count > 0; --count, p += 64) {
    const uint32x4_t abcd_before = abcd, efgh_before = efgh;
    uint32x4_t w[4];  // the last 16 words of the message schedule
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      uint32x4_t& next = w[i % 4];
      next = i < 4 ? vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(p + 16 * i)))
                   : vsha256su1q_u32(vsha256su0q_u32(next, w[(i + 1) % 4]), w[(i + 2) % 4], w[(i + 3) % 4]);
      const uint32x4_t words = vaddq_u32(next, vld1q_u32(kRound + 4 * i)), before = abcd;
      abcd = vsha256hq_u32(abcd, efgh, words);
      efgh = vsha256h2q_u32(efgh, before, words);
    }
    abcd = vaddq_u32(abcd, abcd_before);
    efgh = vaddq_u32(efgh, efgh_before);
  }
  vst1q_u32(&state[0], abcd);
  vst1q_u32(&state[4], efgh);
}
#elif defined(HS_SHA_INSTRUCTIONS)
bool has_sha_instructions() {
  constexpr unsigned kSha = 1u << 29, kSse41 = 1u << 19;
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & kSse41)) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & kSha);
}

// The instructions take the state as two vectors, (a, b, e, f) and (c, d, g, h), and compute two rounds each.
__attribute__((target("sha,sse4.1"))) void sha256_blocks_fast(Sha256State& state, const uint8_t* p, size_t count) {
  const auto load = [](const void* from) __attribute__((target("sha,sse4.1"), always_inline)) {
    return _mm_loadu_si128(static_cast<const __m128i*>(from));
  };
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const __m128i badc = _mm_shuffle_epi32(load(&state[0]), 0xb1), hgfe = _mm_shuffle_epi32(load(&state[4]), 0x1b);
  __m128i abef = _mm_alignr_epi8(badc, hgfe, 8), cdgh = _mm_blend_epi16(hgfe, badc, 0xf0);
  for (; count > 0; --count, p += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];  // the last 16 words of the message schedule
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      __m128i& next = w[i % 4];
      if (i < 4) {
        next = _mm_shuffle_epi8(load(p + 16 * i), big_endian);
      } else {
        const __m128i last = w[(i + 3) % 4], seven_back = _mm_alignr_epi8(last, w[(i + 2) % 4], 4);
        next = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(next, w[(i + 1) % 4]), seven_back), last);
      }
      const __m128i words = _mm_add_epi32(next, load(kRound + 4 * i));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, words);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(words, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(&state[0]), _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(&state[4]), _mm_alignr_epi8(dchg, feba, 8));
}
#endif

}  // namespace

void sha256_blocks(Sha256State& state, const uint8_t* blocks, size_t count) {
#ifdef HS_SHA_INSTRUCTIONS
  static const bool fast = has_sha_instructions();
  if (fast) return sha256_blocks_fast(state, blocks, count);
#endif
  sha256_blocks_portable(state, blocks, count);
}

void sha256_blocks_portable(Sha256State& state, const uint8_t* p, size_t count) {
  for (; count > 0; --count, p += 64) {
    uint32_t w[64];
    for (int i = 0; i < 16; ++i) {
      w[i] = uint32_t(p[4 * i]) << 24 | uint32_t(p[4 * i + 1]) << 16 | uint32_t(p[4 * i + 2]) << 8 | p[4 * i + 3];
    }
    for (int i = 16; i < 64; ++i) {
      const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
      const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (int i = 0; i < 64; ++i) {
      const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
      const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const uint32_t now[8] = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; ++i) state[i] += now[i];
  }
}

}  // namespace halfstep
