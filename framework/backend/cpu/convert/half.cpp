// SPDX-License-Identifier: Apache-2.0
// Converts arrays between f16 or bf16 and float. The compiler does not vectorise the f16 rules, so instructions of F16C, AVX-512
// and NEON are called by name, those of x86-64 chosen at the first use; without them the code of dtype.h runs. bf16 is bit
// arithmetic, which does vectorise.
#include "framework/backend/cpu/convert/convert.h"
#include "framework/backend/cpu/parallel.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)  // Clang 14 cannot ask the CPU for F16C
#include <immintrin.h>
#define HS_X86_HALF 1
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace halfstep::cpu {
namespace {

void widen_plain(const f16* in, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = float(in[i]);
}
void narrow_plain(const float* in, f16* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = f16(in[i]);
}

#ifdef HS_X86_HALF
__attribute__((target("avx2,f16c"))) void widen_f16c(const f16* in, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i));
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(h));
  }
  for (; i < n; ++i) out[i] = float(in[i]);
}
__attribute__((target("avx2,f16c"))) void narrow_f16c(const float* in, f16* out, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), h);
  }
  for (; i < n; ++i) out[i] = f16(in[i]);
}
__attribute__((target("avx512f"))) void widen_avx512(const f16* in, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i));
    _mm512_storeu_ps(out + i, _mm512_maskz_cvtph_ps(0xffff, h));
  }
  for (; i < n; ++i) out[i] = float(in[i]);
}
__attribute__((target("avx512f"))) void narrow_avx512(const float* in, f16* out, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i h = _mm512_maskz_cvtps_ph(0xffff, _mm512_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), h);
  }
  for (; i < n; ++i) out[i] = f16(in[i]);
}
#elif defined(__aarch64__)
void widen_neon(const f16* in, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const float16x8_t h = vreinterpretq_f16_u16(vld1q_u16(reinterpret_cast<const uint16_t*>(in + i)));
    vst1q_f32(out + i, vcvt_f32_f16(vget_low_f16(h)));
    vst1q_f32(out + i + 4, vcvt_high_f32_f16(h));
  }
  for (; i < n; ++i) out[i] = float(in[i]);
}
void narrow_neon(const float* in, f16* out, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const float16x8_t h = vcvt_high_f16_f32(vcvt_f16_f32(vld1q_f32(in + i)), vld1q_f32(in + i + 4));
    vst1q_u16(reinterpret_cast<uint16_t*>(out + i), vreinterpretq_u16_f16(h));
  }
  for (; i < n; ++i) out[i] = f16(in[i]);
}
#endif

struct HalfCode {
  void (*widen)(const f16*, float*, int64_t) = widen_plain;
  void (*narrow)(const float*, f16*, int64_t) = narrow_plain;
};

const HalfCode& half_code() {
  static const HalfCode code = [] {
#ifdef HS_X86_HALF
    if (__builtin_cpu_supports("avx512f")) return HalfCode{widen_avx512, narrow_avx512};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) return HalfCode{widen_f16c, narrow_f16c};
#elif defined(__aarch64__)
    return HalfCode{widen_neon, narrow_neon};
#endif
    return HalfCode{};
  }();
  return code;
}

// Prefetches the next n elements: kernels read a block, compute on it, and would then wait for the next one.
HS_CLONES void widen_bits(const uint16_t* in, uint32_t* out, int64_t n) {
  constexpr int64_t kPiece = 256;
  for (int64_t from = 0; from < n; from += kPiece) {
    const int64_t end = from + kPiece < n ? from + kPiece : n;
    for (int64_t i = from; i < end; i += 32) __builtin_prefetch(in + n + i);
    HS_INDEPENDENT
    for (int64_t i = from; i < end; ++i) out[i] = uint32_t(in[i]) << 16;
  }
}

HS_CLONES void narrow_bits(const uint32_t* in, uint16_t* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t u = in[i];
    const uint32_t nan = (u >> 16) | 0x40u, rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    out[i] = uint16_t((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
  }
}

}  // namespace

void widen(const f16* in, float* out, int64_t n) { half_code().widen(in, out, n); }
void narrow(const float* in, f16* out, int64_t n) { half_code().narrow(in, out, n); }
void widen(const bf16* in, float* out, int64_t n) {
  widen_bits(reinterpret_cast<const uint16_t*>(in), reinterpret_cast<uint32_t*>(out), n);
}
void narrow(const float* in, bf16* out, int64_t n) {
  narrow_bits(reinterpret_cast<const uint32_t*>(in), reinterpret_cast<uint16_t*>(out), n);
}

}  // namespace halfstep::cpu
