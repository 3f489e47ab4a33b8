// SPDX-License-Identifier: Apache-2.0
// Random numbers by the rules of framework/math/random.h: element i takes lane i % 4 of block offset + i / 4. Dropout: out = x /
// (1 - p) where uniform >= p, else 0; its gradient is the same call on g with the same state.
#include "framework/math/random.h"

#include <algorithm>

#include "framework/backend/cpu/elementwise/loops.h"
#include "framework/backend/cpu/kernels.h"

namespace halfstep::cpu {
namespace {

HS_CLONES void philox_blocks(uint64_t seed, uint64_t first, uint32_t* out, int64_t blocks) {
  HS_INDEPENDENT
  for (int64_t b = 0; b < blocks; ++b) {
    const math::Random4 r = math::philox(seed, first + uint64_t(b));
    out[4 * b] = r.v[0];
    out[4 * b + 1] = r.v[1];
    out[4 * b + 2] = r.v[2];
    out[4 * b + 3] = r.v[3];
  }
}

// Calls f(bits, i, n) for n elements from element i, a multiple of 4, on all threads. `bits` is padded to whole blocks.
template <class F>
void draw(int64_t numel, uint64_t seed, uint64_t offset, const F& f) {
  parallel_for(numel, kBlock, numel * 8, [&](int64_t begin, int64_t end) {
    alignas(64) uint32_t bits[kBlock];
    for (int64_t i = begin; i < end; i += kBlock) {
      const int64_t n = std::min(kBlock, end - i);
      philox_blocks(seed, offset + uint64_t(i / 4), bits, (n + 3) / 4);
      f(bits, i, n);
    }
  });
}

HS_CLONES void keep_or_zero(const uint32_t* bits, const float* x, float p, float scale, float* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const float kept = x[i] * scale;
    out[i] = math::uniform(bits[i]) >= p ? kept : 0.0f;
  }
}

}  // namespace

// Computes lo + (hi - lo) u in double, rounded once to the dtype; a value that rounds up to hi becomes lo, so that [lo, hi) holds
// in every dtype. For float64 u has 53 bits.
void random_uniform(const TensorView& dst, Generator::State state, double lo, double hi) {
  const bool wide = dst.dtype == DType::f64;
  draw(dst.numel(), state.seed, state.offset, [&](const uint32_t* bits, int64_t i, int64_t n) {
    double values[kBlock], rounded[kBlock];
    if (wide) {
      alignas(64) uint32_t more[kBlock];
      philox_blocks(state.seed ^ math::kSecondKey, state.offset + uint64_t(i / 4), more, (n + 3) / 4);
      for (int64_t k = 0; k < n; ++k) values[k] = lo + (hi - lo) * math::uniform64(bits[k], more[k]);
    } else {
      for (int64_t k = 0; k < n; ++k) values[k] = lo + (hi - lo) * double(math::uniform(bits[k]));
    }
    store<double>(dst.dtype, values, at(dst, i), 1, n);
    load<double>(dst.dtype, at(dst, i), 1, rounded, n);
    for (int64_t k = 0; k < n; ++k) {
      if (rounded[k] >= hi && lo < hi) store_one<double>(dst.dtype, lo, at(dst, i + k));
    }
  });
}

void random_normal(const TensorView& dst, Generator::State state, double mean, double stddev) {
  draw(dst.numel(), state.seed, state.offset, [&](const uint32_t* bits, int64_t i, int64_t n) {
    double values[kBlock];
    for (int64_t k = 0; k < n; ++k) {
      math::Random4 r;
      std::copy_n(bits + k / 4 * 4, 4, r.v);
      values[k] = mean + stddev * double(math::normal(r, int(k % 4)));
    }
    store<double>(dst.dtype, values, at(dst, i), 1, n);
  });
}

// Multiplies the range by a random fraction: the probability of each value is exact within range / 2^32 (2^64 for ranges above
// 2^32, which take their upper 32 bits from a second stream).
void random_integers(const TensorView& dst, Generator::State state, int64_t lo, int64_t hi) {
  const uint64_t range = uint64_t(hi) - uint64_t(lo);
  draw(dst.numel(), state.seed, state.offset, [&](const uint32_t* bits, int64_t i, int64_t n) {
    int64_t values[kBlock];
    if (range <= (uint64_t(1) << 32)) {
      for (int64_t k = 0; k < n; ++k) values[k] = int64_t(uint64_t(lo) + (range * bits[k] >> 32));
    } else {
      alignas(64) uint32_t upper[kBlock];
      philox_blocks(state.seed ^ math::kSecondKey, state.offset + uint64_t(i / 4), upper, (n + 3) / 4);
      for (int64_t k = 0; k < n; ++k) {
        const uint64_t fraction = (uint64_t(upper[k]) << 32) | bits[k];
        values[k] = int64_t(uint64_t(lo) + uint64_t((unsigned __int128)(fraction)*range >> 64));
      }
    }
    store<int64_t>(dst.dtype, values, at(dst, i), 1, n);
  });
}

void dropout(const TensorView& x, const TensorView& out, double p, Generator::State state) {
  const Space s(out.shape, {&out.strides, &x.strides});
  const bool wide = x.dtype == DType::f64;
  draw(s.numel, state.seed, state.offset, [&](const uint32_t* bits, int64_t i, int64_t n) {
    if (wide) {
      double buffer[kBlock], values[kBlock];
      const double* in = fetch<double>(s, 1, x, i, n, buffer);
      for (int64_t k = 0; k < n; ++k) values[k] = math::uniform(bits[k]) >= float(p) ? in[k] * (1 / (1 - p)) : 0.0;
      return store<double>(out.dtype, values, at(out, i), 1, n);
    }
    alignas(64) float buffer[kBlock], values[kBlock];
    const bool direct = out.dtype == DType::f32;
    float* to = direct ? out.as<float>() + i : values;
    keep_or_zero(bits, fetch<float>(s, 1, x, i, n, buffer), float(p), float(1 / (1 - p)), to, n);
    if (!direct) store<float>(out.dtype, to, at(out, i), 1, n);
  });
}

}  // namespace halfstep::cpu
