// SPDX-License-Identifier: Apache-2.0
// The formulas and their order are those of PyTorch 2.15 on a CPU with AVX2 and FMA; each step rounds as there.
// tests/layers/torch_draws_test.cpp compares them with recorded numbers.
#include "framework/ops/shape/twister_draws.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>
#include <vector>

#include "framework/autograd/grad_mode.h"
#include "framework/base/draws.h"
#include "framework/ops/ops.h"

namespace halfstep::twister {
namespace {

// ---- normal numbers of float32, sixteen at a time, by the polynomials of Cephes (logf, sinf, cosf)

// Returns ln x for normal x > 0: x = 2^e (1 + f) with f in [sqrt(1/2) - 1, sqrt(2) - 1), and a polynomial of f.
float log_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  float e = float(int(bits >> 23) - 127) + 1.0f;
  bits = (bits & 0x807fffffu) | 0x3f000000u;
  std::memcpy(&x, &bits, sizeof bits);
  const bool small = x < 0.707106781186547524f;
  x = small ? (x - 1.0f) + x : x - 1.0f;
  if (small) e -= 1.0f;
  const float z = x * x;
  float y = 7.0376836292e-2f;
  for (const float coefficient : {-1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f, -1.6668057665e-1f,
                                  2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f})
    y = std::fma(y, x, coefficient);
  y = std::fma(y * x, z, e * -2.12194440e-4f);
  y = std::fma(z, -0.5f, y);
  return std::fma(e, 0.693359375f, x + y);
}

struct SinCos {
  float sin, cos;
};
// Returns sine and cosine of x >= 0, by polynomials around the nearest multiple of pi / 2, which is subtracted in three parts.
SinCos sin_cos_of(float x) {
  const int octant = (int(x * 1.27323954473516f) + 1) & ~1;
  const auto y = float(octant);
  for (const float part : {-0.78515625f, -2.4187564849853515625e-4f, -3.77489497744594108e-8f}) x = std::fma(y, part, x);
  const float z = x * x;
  float c = std::fma(2.443315711809948e-5f, z, -1.388731625493765e-3f);
  c = std::fma(c, z, 4.166664568298827e-2f) * z;
  c = std::fma(c, z, -(z * 0.5f)) + 1.0f;
  float s = std::fma(-1.9515295891e-4f, z, 8.3321608736e-3f);
  s = std::fma(s, z, -1.6666654611e-1f) * z;
  s = std::fma(s, x, x);
  SinCos out = octant & 2 ? SinCos{c, s} : SinCos{s, c};
  if (octant & 4) out.sin = -out.sin;
  if (!((octant - 2) & 4)) out.cos = -out.cos;
  return out;
}

constexpr int kHalf = 8, kBlock = 2 * kHalf;

// Turn 16 uniform numbers into normal ones, in place, by Box and Muller: number j gives the radius sqrt(-2 ln(1 - u)), and number
// j + 8 the angle 2 pi u.
void to_normal(float* block, float mean, float stddev) {
  for (int j = 0; j < kHalf; ++j) {
    const float radius = std::sqrt(-2.0f * log_of(1.0f - block[j]));
    const SinCos direction = sin_cos_of(float(2 * std::numbers::pi) * block[j + kHalf]);
    block[j] = std::fma(radius * direction.cos, stddev, mean);
    block[j + kHalf] = std::fma(radius * direction.sin, stddev, mean);
  }
}
void to_normal(double* block, double mean, double stddev) {
  for (int j = 0; j < kHalf; ++j) {
    const double radius = std::sqrt(-2 * std::log(1 - block[j])), angle = 2 * std::numbers::pi * block[j + kHalf];
    block[j] = std::fma(radius * std::cos(angle), stddev, mean);
    block[j + kHalf] = std::fma(radius * std::sin(angle), stddev, mean);
  }
}

float next_uniform(Twister& twister, float) { return twister.uniform(); }
double next_uniform(Twister& twister, double) { return twister.uniform64(); }

// ---- order and place

// Returns the dimensions of x, the one with the largest stride first.
Dims memory_order(const Tensor& x) {
  std::vector<int64_t> dims(static_cast<size_t>(x.dim()));
  std::iota(dims.begin(), dims.end(), 0);
  std::stable_sort(dims.begin(), dims.end(), [&](int64_t a, int64_t b) { return x.strides()[int(a)] > x.strides()[int(b)]; });
  Dims out;
  for (const int64_t d : dims) out.push_back(d);
  return out;
}

// Returns a new tensor of x's shape and order of memory.
Tensor dense_like(const Tensor& x, DType dtype) {
  const Dims order = memory_order(x);
  Shape shape;
  Dims back = order;
  for (int i = 0; i < order.size(); ++i) {
    shape.push_back(x.size(order[i]));
    back[int(order[i])] = i;
  }
  return Tensor::empty(shape, {.dtype = dtype, .device = x.device()}).permute(back);
}

// A draw of `whole` numbers, of which x takes those from `first` on.
struct Part {
  int64_t whole, first;
  // Returns the part that `count` numbers are of the whole batch's, if this thread computes a part of a batch.
  static Part of(const Generator& generator, int64_t count) {
    const std::optional<BatchRows>& rows = DrawsOf::current();
    if (!rows || rows->rows <= 0 || count % rows->rows != 0 || &generator != &default_generator()) return {count, 0};
    const int64_t each = count / rows->rows;
    return {each * rows->total, each * rows->first};
  }
};

// Writes numbers to x in the order of its memory: make(twister, out) fills a vector. On the meta device skip(twister, count) does
// what a draw does to the generator.
template <class T, class Make, class Skip>
void write(Generator& generator, const Tensor& x, const Make& make, const Skip& skip) {
  const NoGrad off;
  if (x.numel() == 0) return;
  const Part part = Part::of(generator, x.numel());
  if (x.device().is_meta()) return generator.with_twister([&](Twister& twister) { skip(twister, part.whole); });
  std::vector<T> all(static_cast<size_t>(part.whole));
  generator.with_twister([&](Twister& twister) { make(twister, all); });
  const Tensor to = x.detach().permute(memory_order(x));
  Tensor from = Tensor::from_blob(all.data() + part.first, to.shape(), dtype_of<T>, nullptr);
  if (!x.device().is_cpu()) from = from.to(x.dtype()).to(x.device());
  backend_for(x.device()).copy(from.view(), to.view());
  x.bump_version();
}

// Writes the numbers that f(twister) makes of `words` words each.
template <class T, class F>
void write_each(Generator& generator, const Tensor& x, int words, const F& f) {
  write<T>(
      generator, x,
      [&](Twister& twister, std::vector<T>& out) {
        for (T& v : out) v = f(twister);
      },
      [&](Twister& twister, int64_t count) { twister.discard(uint64_t(count) * uint64_t(words)); });
}

// Draws many normal numbers, sixteen at a time. If the count is not a multiple of 16, the last sixteen are drawn again. by_blocks:
// as for 16-bit dtypes, which draw no numbers that are not used.
template <class T>
void write_normals(Generator& generator, const Tensor& x, double mean, double stddev, bool by_blocks) {
  const auto draw = [](Twister& twister, std::vector<T>& out, size_t from, size_t count) {
    for (size_t i = from; i < from + count; ++i) out[i] = next_uniform(twister, T());
  };
  write<T>(
      generator, x,
      [&](Twister& twister, std::vector<T>& out) {
        const size_t n = out.size();
        if (!by_blocks) draw(twister, out, 0, n);
        for (size_t i = 0; i + kBlock <= n; i += kBlock) {
          if (by_blocks) draw(twister, out, i, kBlock);
          to_normal(out.data() + i, T(mean), T(stddev));
        }
        if (n % kBlock == 0) return;
        draw(twister, out, n - kBlock, kBlock);
        to_normal(out.data() + n - kBlock, T(mean), T(stddev));
      },
      [&](Twister& twister, int64_t n) {
        const int64_t numbers = (by_blocks ? n / kBlock * kBlock : n) + (n % kBlock == 0 ? 0 : kBlock);
        twister.discard(uint64_t(numbers) * sizeof(T) / sizeof(uint32_t));
      });
}

// Draws classes with the probabilities weight / sum: the first whose running sum of probabilities reaches a uniform number.
template <class T>
void draw_classes(Twister& twister, const T* weights, int64_t classes, int64_t* out, int64_t samples) {
  std::vector<T> sums(static_cast<size_t>(classes));
  T sum = 0;
  for (int64_t c = 0; c < classes; ++c) sums[size_t(c)] = sum += weights[c];
  for (T& s : sums) s /= sum;
  sums.back() = 1;
  for (int64_t i = 0; i < samples; ++i) {
    const double u = twister.uniform64();
    out[i] = std::lower_bound(sums.begin(), sums.end(), u, [](T s, double at) { return double(s) < at; }) - sums.begin();
  }
}

}  // namespace

void uniform(Generator& generator, const Tensor& x, double lo, double hi) {
  if (x.dtype() == DType::f64) {
    return write_each<double>(generator, x, 2, [=](Twister& twister) { return std::fma(twister.uniform64(), hi - lo, lo); });
  }
  const auto from = float(lo), range = float(hi) - float(lo);
  const auto rounded = [dtype = x.dtype()](float v) {
    return dtype == DType::f16 ? float(f16(v)) : dtype == DType::bf16 ? float(bf16(v)) : v;
  };
  const bool half = is_half(x.dtype());
  const float top = rounded(float(hi)), bottom = rounded(from);
  write_each<float>(generator, x, 1, [=](Twister& twister) {
    const float u = std::fma(twister.uniform(), range, from);
    return half && rounded(u) == top ? bottom : u;
  });
}

void normal(Generator& generator, const Tensor& x, double mean, double stddev) {
  if (x.is_contiguous() && Part::of(generator, x.numel()).whole >= kBlock) {
    return x.dtype() == DType::f64 ? write_normals<double>(generator, x, mean, stddev, false)
                                   : write_normals<float>(generator, x, mean, stddev, is_half(x.dtype()));
  }
  write<double>(
      generator, x,
      [=](Twister& twister, std::vector<double>& out) {
        for (double& v : out) v = std::fma(twister.normal(), stddev, mean);
      },
      [](Twister& twister, int64_t count) {
        for (int64_t i = 0; i < count; ++i) twister.normal();
      });
}

// Draw integers as 64 bits, or 32 for a smaller range or dtype, modulo their count.
void integers(Generator& generator, const Tensor& x, int64_t lo, int64_t hi) {
  const uint64_t range = uint64_t(hi) - uint64_t(lo);
  constexpr uint64_t kWideRange = uint64_t(1) << 28;
  const bool wide = range >= kWideRange;
  write_each<int64_t>(generator, x, wide ? 2 : 1, [=](Twister& twister) {
    return int64_t((wide ? twister.random64() : twister.random()) % range + uint64_t(lo));
  });
}

void any_integers(Generator& generator, const Tensor& x) {
  const DType dtype = x.dtype();
  const bool wide = dtype == DType::i64 || dtype == DType::f64;
  const uint64_t count = count_of_integers(dtype);
  write_each<int64_t>(generator, x, wide ? 2 : 1,
                      [=](Twister& twister) { return int64_t((wide ? twister.random64() : twister.random()) % count); });
}

void bernoulli(Generator& generator, const Tensor& x, double p) {
  write_each<float>(generator, x, 2, [=](Twister& twister) { return twister.uniform64() < p ? 1.0f : 0.0f; });
}

void exponential(Generator& generator, const Tensor& x, double rate) {
  write_each<double>(generator, x, 2, [=](Twister& twister) { return -1.0 / rate * std::log1p(-twister.uniform64()); });
}

Tensor bernoulli(Generator& generator, const Tensor& p) {
  const NoGrad off;
  const Tensor u = dense_like(p, p.dtype() == DType::f64 ? DType::f64 : DType::f32);
  uniform(generator, u, 0, 1);
  return lt(u, p.detach()).to(p.dtype());
}

Tensor multinomial(Generator& generator, const Tensor& weights, int64_t samples) {
  const NoGrad off;
  const Tensor w = weights.detach().to(Device::cpu).contiguous();
  const Tensor out = Tensor::empty({w.size(0), samples}, {.dtype = DType::i64, .device = Device::cpu});
  auto* const at = out.data_ptr<int64_t>();
  generator.with_twister([&](Twister& twister) {
    for (int64_t r = 0; r < w.size(0); ++r) {
      if (w.dtype() == DType::f64)
        draw_classes(twister, w.const_data_ptr<double>() + r * w.size(1), w.size(1), at + r * samples, samples);
      else
        draw_classes(twister, w.const_data_ptr<float>() + r * w.size(1), w.size(1), at + r * samples, samples);
    }
  });
  return out.to(weights.device());
}

uint64_t count_of_integers(DType dtype) {
  switch (dtype) {
    case DType::boolean: return 2;
    case DType::u8: return 256;
    case DType::i8: return 128;
    case DType::i16: return 1 << 15;
    case DType::i32: return uint64_t(1) << 31;
    case DType::i64: return uint64_t(1) << 63;
    case DType::f16: return (1 << 11) + 1;
    case DType::bf16: return (1 << 8) + 1;
    case DType::f32: return (1 << 24) + 1;
    case DType::f64: return (uint64_t(1) << 53) + 1;
  }
  return 1;
}

Tensor dropout_factors(Generator& generator, const Tensor& x, double p) {
  const NoGrad off;
  const Tensor out = dense_like(x, x.dtype());
  if (p == 1) {
    out.zero_();
    return out;
  }
  const double kept = x.dtype() == DType::f64 ? 1 / (1 - p) : double(1.0f / float(1 - p));
  write_each<double>(generator, out, 2, [=](Twister& twister) { return twister.uniform64() < 1 - p ? kept : 0; });
  return out;
}

}  // namespace halfstep::twister
