// SPDX-License-Identifier: Apache-2.0
// The machine against the host: instructions whose results the host can compute exactly, and libdevice's functions within their
// documented error. Compiled by nvcc to PTX, run by the machine.
#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#undef HALFSTEP_CUDA_EMU  // which the library of the host's side brings: this is compiled by nvcc
#include "cuda/gpu.cuh"
#include "tests/emulators/ptx/host_half.h"

static int faults = 0, checks = 0;
static void check(bool good, const char* what, long at, double got, double want) {
  ++checks;
  if (good) return;
  if (++faults < 40) std::printf("FAULT %s at %ld: %.17g, not %.17g\n", what, at, got, want);
}
template <class T>
struct OnDevice {
  T* p;
  size_t n;
  explicit OnDevice(const std::vector<T>& v) : n(v.size()) {
    cudaMalloc(reinterpret_cast<void**>(&p), n * sizeof(T));
    cudaMemcpy(p, v.data(), n * sizeof(T), cudaMemcpyHostToDevice);
  }
  std::vector<T> get() const {
    std::vector<T> v(n);
    cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost);
    return v;
  }
};
static uint64_t state = 88172645463325252ull;
static uint64_t draw() {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state;
}

// ---- conversions
__global__ void halves(float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = __half2float(__ushort_as_half((unsigned short)i));
}
__global__ void to_halves(const float* in, uint16_t* rn, uint16_t* rz, uint16_t* rd, uint16_t* ru, uint16_t* bf) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  rn[i] = __half_as_ushort(__float2half_rn(in[i])), rz[i] = __half_as_ushort(__float2half_rz(in[i]));
  rd[i] = __half_as_ushort(__float2half_rd(in[i])), ru[i] = __half_as_ushort(__float2half_ru(in[i]));
  bf[i] = __bfloat16_as_ushort(__float2bfloat16_rn(in[i]));
}
__global__ void to_integers(const float* in, const double* d, int* a, unsigned* b, long long* c, int* e, unsigned long long* f,
                            int* g) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  a[i] = __float2int_rz(in[i]), b[i] = __float2uint_rz(in[i]), c[i] = __float2ll_rz(in[i]), e[i] = __float2int_rn(in[i]);
  f[i] = __double2ull_rz(d[i]), g[i] = __double2int_rd(d[i]);
}
// ---- rounding
__global__ void rounded(const float* x, const float* y, const float* z, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float* o = out + 16 * i;
  o[0] = __fadd_rn(x[i], y[i]), o[1] = __fadd_rz(x[i], y[i]), o[2] = __fadd_rd(x[i], y[i]), o[3] = __fadd_ru(x[i], y[i]);
  o[4] = __fmul_rn(x[i], y[i]), o[5] = __fmul_rz(x[i], y[i]), o[6] = __fmul_rd(x[i], y[i]), o[7] = __fmul_ru(x[i], y[i]);
  o[8] = __fmaf_rn(x[i], y[i], z[i]), o[9] = __fmaf_rz(x[i], y[i], z[i]), o[10] = __fmaf_rd(x[i], y[i], z[i]),
  o[11] = __fmaf_ru(x[i], y[i], z[i]);
  o[12] = __fdiv_rn(x[i], y[i]), o[13] = __fsqrt_rn(x[i]), o[14] = __frcp_rn(x[i]), o[15] = fminf(x[i], y[i]);
}
// ---- integers
__global__ void integers(const uint64_t* x, const uint64_t* y, uint64_t* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  uint64_t* o = out + 16 * i;
  const uint64_t a = x[i], b = y[i];
  const uint32_t u = uint32_t(a), v = uint32_t(b), w = uint32_t(b >> 32);
  unsigned __int128 p = (unsigned __int128)a * b + a;
  o[0] = uint64_t(p), o[1] = uint64_t(p >> 64), o[2] = __umul64hi(a, b), o[3] = uint64_t(__mul64hi((long long)a, (long long)b));
  o[4] = b ? a / b : 0, o[5] = b ? uint64_t((long long)a % (long long)(b | 1)) : 0, o[6] = __umulhi(u, v),
  o[7] = uint64_t(int64_t(int32_t(u)) * int32_t(v));
  o[8] = __byte_perm(u, v, w & 0xffff), o[9] = __funnelshift_l(u, v, w), o[10] = __funnelshift_rc(u, v, w & 63), o[11] = __brev(u);
  o[12] = uint64_t(__clz(int(u))) | uint64_t(__clzll((long long)a)) << 8 | uint64_t(__popc(u)) << 16 | uint64_t(__popcll(a)) << 24 |
          uint64_t(__ffs(int(u))) << 32;
  unsigned r, s, t, q;
  asm("bfe.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(u), "r"(v & 63), "r"(w & 63));
  asm("bfe.s32 %0, %1, %2, %3;" : "=r"(s) : "r"(u), "r"(v & 63), "r"(w & 63));
  asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(t) : "r"(u), "r"(w), "r"(v & 63), "r"(v >> 8 & 63));
  asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(q) : "r"(u), "r"(v), "r"(w));
  o[13] = r | uint64_t(s) << 32, o[14] = t | uint64_t(q) << 32;
  unsigned lo, hi;
  asm("{ mad.lo.cc.u32 %0, %2, %3, %4; madc.hi.u32 %1, %2, %3, 0; }" : "=r"(lo), "=r"(hi) : "r"(u), "r"(v), "r"(w));
  o[15] = lo | uint64_t(hi) << 32;
}
// ---- warps and blocks
__global__ void warps(const int* in, int* out) {
  __shared__ int tile[64];
  const int t = threadIdx.x, v = in[t];
  int* o = out + 12 * t;
  o[0] = __shfl_xor_sync(~0u, v, 5), o[1] = __shfl_up_sync(~0u, v, 3), o[2] = __shfl_down_sync(~0u, v, 7),
  o[3] = __shfl_sync(~0u, v, t * 11);
  o[4] = __shfl_xor_sync(~0u, v, 9, 8), o[5] = __shfl_up_sync(~0u, v, 2, 8), o[6] = __shfl_down_sync(~0u, v, 3, 16),
  o[7] = __shfl_sync(~0u, v, t * 3 + 1, 4);
  o[8] = int(__ballot_sync(~0u, v & 1)), o[9] = __any_sync(~0u, v == in[3]) * 2 + __all_sync(~0u, v != 12345);
  int sum = 0;  // lanes leave the loop one after another, then meet
  for (int k = 0; k <= v % 17; ++k) sum += k;
  tile[t ^ 37] = sum;
  const int many = __syncthreads_count(v & 1);
  o[10] = tile[63 - t], o[11] = many;
}
__global__ void counts(unsigned* sums, const int* in, int n) {
  extern __shared__ unsigned own[];
  for (int k = threadIdx.x; k < 16; k += blockDim.x) own[k] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    int local[8];
    for (int k = 0; k < 8; ++k) local[k] = in[i] >> k & 1;
    int which = 0;
    switch (in[i] & 15) {
      case 0: which = 3; break;
      case 1: which = 14; break;
      case 2: which = 1; break;
      case 3: which = local[in[i] >> 4 & 7]; break;
      case 4: which = 9; break;
      case 5: which = 2; break;
      case 6: which = local[in[i] >> 5 & 7] + 4; break;
      case 7: which = 8; break;
      default: which = in[i] & 15;
    }
    atomicAdd(&own[which], 1u);
  }
  __syncthreads();
  if (threadIdx.x < 16) atomicAdd(&sums[threadIdx.x], own[threadIdx.x]);
}
// ---- libdevice
__global__ void functions(const float* x, const double* d, float* out, double* wide) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float* o = out + 16 * i;
  const float v = x[i], m = fabsf(v);
  o[0] = sinf(v), o[1] = cosf(v), o[2] = tanf(v), o[3] = expf(v), o[4] = logf(m), o[5] = tanhf(v), o[6] = erff(v), o[7] = expm1f(v);
  o[8] = log1pf(m), o[9] = rsqrtf(m), o[10] = powf(m, 1.7f), o[11] = atanf(v), o[12] = cbrtf(v), o[13] = exp2f(v), o[14] = log2f(m),
  o[15] = sinhf(v);
  double* w = wide + 8 * i;
  const double e = d[i], f = fabs(e);
  w[0] = sin(e), w[1] = exp(e), w[2] = log(f), w[3] = pow(f, 1.7), w[4] = tanh(e), w[5] = erf(e), w[6] = sqrt(f), w[7] = cos(e);
}

template <class F>
static float at_rounding(int mode, F f) {
  std::fesetround(mode);
  volatile float r = f();
  std::fesetround(FE_TONEAREST);
  return r;
}
static bool same(float a, float b) { return (a != a && b != b) || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }
static double ulps(double got, double want, int bits, int least) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : 1e9;
  if (std::isinf(want) || std::isinf(got)) return got == want ? 0 : 1e9;
  return std::fabs(got - want) / std::ldexp(1.0, std::max(want == 0 ? least : std::ilogb(want), least) - (bits - 1));
}

int main() {
  const int n = 65536;
  {
    OnDevice<float> out(std::vector<float>(n, 0));
    halves<<<n / 256, 256>>>(out.p);
    const auto got = out.get();
    for (int i = 0; i < n; ++i)
      check(same(got[i], host::from_half(uint16_t(i))), "f16 to f32", i, got[i], host::from_half(uint16_t(i)));
  }
  std::vector<float> x(n), y(n), z(n);
  std::vector<double> d(n);
  for (int i = 0; i < n; ++i) {
    const bool small = i % 3 == 0;
    x[i] = std::bit_cast<float>(uint32_t(draw())), y[i] = std::bit_cast<float>(uint32_t(draw())),
    z[i] = std::bit_cast<float>(uint32_t(draw()));
    if (small)
      x[i] = std::ldexp(float(int32_t(draw())), -31 + int(draw() % 44) - 26), y[i] = std::ldexp(float(int32_t(draw())), -31),
      z[i] = x[i] * -y[i];
    d[i] = i % 2 ? std::bit_cast<double>(draw()) : double(x[i]) * 1.000001;
  }
  {
    OnDevice<float> in(x);
    OnDevice<uint16_t> rn(std::vector<uint16_t>(n, 0)), rz(rn.get()), rd(rn.get()), ru(rn.get()), bf(rn.get());
    to_halves<<<n / 256, 256>>>(in.p, rn.p, rz.p, rd.p, ru.p, bf.p);
    const auto a = rn.get(), b = rz.get(), c = rd.get(), e = ru.get(), f = bf.get();
    for (int i = 0; i < n; ++i) {
      const bool nan = x[i] != x[i];
      const auto half = [&](host::Rounding rounding) { return uint16_t(nan ? 0x7fff : host::to_half(x[i], rounding)); };
      const uint16_t w[4] = {half(host::Rounding::to_nearest), half(host::Rounding::to_zero), half(host::Rounding::downward),
                             half(host::Rounding::upward)};
      check(a[i] == w[0], "f32 to f16", i, a[i], w[0]), check(b[i] == w[1], "f32 to f16 rz", i, b[i], w[1]);
      check(c[i] == w[2], "f32 to f16 rd", i, c[i], w[2]), check(e[i] == w[3], "f32 to f16 ru", i, e[i], w[3]);
      const uint32_t bits = std::bit_cast<uint32_t>(x[i]);
      const uint16_t want = nan ? 0x7fff : uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
      check(f[i] == want, "f32 to bf16", i, f[i], want);
    }
    OnDevice<double> wide(d);
    OnDevice<int> i1(std::vector<int>(n, 0)), i4(i1.get()), i6(i1.get());
    OnDevice<unsigned> i2(std::vector<unsigned>(n, 0));
    OnDevice<long long> i3(std::vector<long long>(n, 0));
    OnDevice<unsigned long long> i5(std::vector<unsigned long long>(n, 0));
    to_integers<<<n / 128, 128>>>(in.p, wide.p, i1.p, i2.p, i3.p, i4.p, i5.p, i6.p);
    const auto g1 = i1.get(), g4 = i4.get(), g6 = i6.get();
    const auto g2 = i2.get();
    const auto g3 = i3.get();
    const auto g5 = i5.get();
    const auto clamp = [](double v, double lo, double hi) { return v < lo ? lo : v > hi ? hi : v; };
    for (int i = 0; i < n; ++i) {
      const double v = x[i], t = std::trunc(v);
      if (v != v) {
        check(g1[i] == 0 && g2[i] == 0, "NaN to integers", i, g1[i], 0);
      } else {
        check(g1[i] == clamp(t, -2147483648., 2147483647.), "f32 to s32", i, g1[i], t),
            check(g2[i] == clamp(t, 0, 4294967295.), "f32 to u32", i, g2[i], t);
        check(std::fabs(t) >= 0x1p63 ? g3[i] == (t < 0 ? INT64_MIN : INT64_MAX) : double(g3[i]) == t, "f32 to s64", i,
              double(g3[i]), t);
        check(g4[i] == clamp(std::nearbyint(v), -2147483648., 2147483647.), "f32 to s32 rn", i, g4[i], v);
      }
      if (d[i] == d[i]) {
        check(d[i] >= 0x1p64 ? g5[i] == ~0ull
              : d[i] <= 0    ? g5[i] == 0
                             : double(g5[i]) == std::trunc(d[i]),
              "f64 to u64", i, double(g5[i]), d[i]);
        check(g6[i] == clamp(std::floor(d[i]), -2147483648., 2147483647.), "f64 to s32 rd", i, g6[i], d[i]);
      }
    }
  }
  {
    OnDevice<float> a(x), b(y), c(z), out(std::vector<float>(16 * n, 0));
    rounded<<<n / 64, 64>>>(a.p, b.p, c.p, out.p);
    const auto got = out.get();
    static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    for (int i = 0; i < n; ++i) {
      volatile float u = x[i], v = y[i], w = z[i];
      for (int k = 0; k < 4; ++k) {
        const float s = at_rounding(modes[k], [&] { return u + v; }), p = at_rounding(modes[k], [&] { return u * v; }),
                    q = at_rounding(modes[k], [&] { return std::fma(u, v, w); });
        check(same(got[16 * i + k], s), "add", i, got[16 * i + k], s),
            check(same(got[16 * i + 4 + k], p), "mul", i, got[16 * i + 4 + k], p),
            check(same(got[16 * i + 8 + k], q), "fma", i, got[16 * i + 8 + k], q);
      }
      check(same(got[16 * i + 12], u / v), "div", i, got[16 * i + 12], u / v),
          check(same(got[16 * i + 13], std::sqrt(u)), "sqrt", i, got[16 * i + 13], std::sqrt(u));
      check(same(got[16 * i + 14], 1.0f / u), "rcp", i, got[16 * i + 14], 1.0f / u);
      const float least = u != u ? v : v != v ? u : u < v ? u : v;  // signalling NaN too
      check(same(got[16 * i + 15], least), "min", i, got[16 * i + 15], least);
    }
  }
  {
    std::vector<uint64_t> a(n), b(n);
    for (int i = 0; i < n; ++i) a[i] = draw() >> draw() % 64, b[i] = draw() >> draw() % 64;
    OnDevice<uint64_t> pa(a), pb(b), out(std::vector<uint64_t>(16 * n, 0));
    integers<<<n / 32, 32>>>(pa.p, pb.p, out.p);
    const auto got = out.get();
    for (int i = 0; i < n; ++i) {
      const uint64_t A = a[i], B = b[i], *o = &got[16 * i];
      const uint32_t u = uint32_t(A), v = uint32_t(B), w = uint32_t(B >> 32);
      const unsigned __int128 p = (unsigned __int128)A * B + A, h = (unsigned __int128)A * B;
      const auto is = [&](int k, uint64_t want, const char* what) { check(o[k] == want, what, i, double(o[k]), double(want)); };
      is(0, uint64_t(p), "mad lo 64"), is(1, uint64_t(p >> 64), "mad hi 64"), is(2, uint64_t(h >> 64), "umul64hi");
      is(3, uint64_t(((__int128)(int64_t)A * (int64_t)B) >> 64), "mul64hi"), is(4, B ? A / B : 0, "div u64"),
          is(5, B ? uint64_t(int64_t(A) % int64_t(B | 1)) : 0, "rem s64");
      is(6, uint64_t(u) * v >> 32, "umulhi"), is(7, uint64_t(int64_t(int32_t(u)) * int32_t(v)), "mul.wide.s32");
      uint32_t perm = 0;
      const uint64_t bytes = uint64_t(v) << 32 | u;
      for (int k = 0; k < 4; ++k) {
        const int c = w >> 4 * k & 7;
        perm |= uint32_t(bytes >> 8 * c & 0xff) << 8 * k;
      }
      is(8, perm, "prmt"), is(9, uint32_t((bytes << (w & 31)) >> 32), "shf.l"),
          is(10, uint32_t(bytes >> std::min(w & 63, 32u)), "shf.r.clamp");
      uint32_t rev = 0;
      for (int k = 0; k < 32; ++k) rev |= (u >> k & 1) << (31 - k);
      is(11, rev, "brev");
      is(12,
         uint64_t(u ? __builtin_clz(u) : 32) | uint64_t(A ? __builtin_clzll(A) : 64) << 8 | uint64_t(__builtin_popcount(u)) << 16 |
             uint64_t(__builtin_popcountll(A)) << 24 | uint64_t(__builtin_ffs(int(u))) << 32,
         "clz, popc, ffs");
      const int at = v & 63, bits = w & 63;
      uint32_t field = 0, sfield = 0;
      for (int k = 0; k < 32; ++k) {  // bit by bit, as the PTX manual has it
        const int sign_at = std::min(at + bits - 1, 31);
        if (k < bits && at + k <= 31) field |= (u >> (at + k) & 1) << k;
        sfield |= (bits == 0 ? 0 : k < bits && at + k <= 31 ? u >> (at + k) & 1 : u >> sign_at & 1) << k;
      }
      is(13, field | uint64_t(sfield) << 32, "bfe");
      uint32_t into = w;
      for (int k = 0; k < int(v >> 8 & 63) && (at + k) < 32; ++k)
        into = (into & ~(1u << (at + k))) | (k < 32 ? (u >> k & 1) : 0) << (at + k);
      is(14, into | uint64_t(u ^ v ^ w) << 32, "bfi, lop3"), is(15, uint64_t(u) * v + w, "mad.cc");
    }
  }
  {
    std::vector<int> in(64);
    for (int& v : in) v = int(draw() % 1000);
    OnDevice<int> pin(in), out(std::vector<int>(64 * 12, 0));
    warps<<<1, 64>>>(pin.p, out.p);
    const auto got = out.get();
    const auto sum_of = [&](int t) {
      const int k = in[t] % 17;
      return k * (k + 1) / 2;
    };
    int odd = 0;
    for (int v : in) odd += v & 1;
    for (int t = 0; t < 64; ++t) {
      const int base = t & ~31, l = t & 31;
      const auto is = [&](int k, int want, const char* what) { check(got[12 * t + k] == want, what, t, got[12 * t + k], want); };
      is(0, in[base + (l ^ 5)], "shfl xor"), is(1, in[base + (l >= 3 ? l - 3 : l)], "shfl up"),
          is(2, in[base + (l + 7 < 32 ? l + 7 : l)], "shfl down"), is(3, in[base + (t * 11 & 31)], "shfl");
      is(4, in[base + ((l ^ 9) <= (l | 7) ? l ^ 9 : l)], "shfl xor 8"),
          is(5, in[base + (l - 2 >= (l & ~7) ? l - 2 : l)], "shfl up 8"),
          is(6, in[base + (l + 3 <= (l | 15) ? l + 3 : l)], "shfl down 16"),
          is(7, in[base + ((l & ~3) | (t * 3 + 1 & 3))], "shfl 4");
      unsigned ballot = 0;
      bool any = false;
      for (int k = 0; k < 32; ++k) ballot |= unsigned(in[base + k] & 1) << k, any = any || in[base + k] == in[3];
      is(8, int(ballot), "ballot"), is(9, any * 2 + 1, "any, all"), is(10, sum_of((63 - t) ^ 37), "shared"),
          is(11, odd, "barrier's count");
    }
  }
  {
    std::vector<int> in(10000);
    for (int& v : in) v = int(draw() % 4096);
    OnDevice<int> pin(in);
    OnDevice<unsigned> out(std::vector<unsigned>(16, 0));
    counts<<<5, 96, 64>>>(out.p, pin.p, int(in.size()));
    std::vector<unsigned> want(16, 0);
    for (int v : in) {
      static const int fixed[] = {3, 14, 1, -1, 9, 2, -1, 8};
      const int c = v & 15;
      ++want[c == 3 ? v >> (v >> 4 & 7) & 1 : c == 6 ? (v >> (v >> 5 & 7) & 1) + 4 : c < 8 ? fixed[c] : c];
    }
    const auto got = out.get();
    for (int k = 0; k < 16; ++k) check(got[k] == want[k], "counts", k, got[k], want[k]);
  }
  {
    for (int i = 0; i < n; ++i) {
      x[i] = i % 4 == 0 ? std::ldexp(float(int32_t(draw())), int(draw() % 60) - 31)
                        : std::ldexp(float(int32_t(draw())), -31) * (i % 4 == 1 ? 100 : 3);
      d[i] = double(x[i]) * 1.0000001;
    }
    OnDevice<float> in(x), out(std::vector<float>(16 * n, 0));
    OnDevice<double> wide(d), out_wide(std::vector<double>(8 * n, 0));
    functions<<<n / 256, 256>>>(in.p, wide.p, out.p, out_wide.p);
    const auto got = out.get();
    const auto gw = out_wide.get();
    static const char* names[] = {"sinf",   "cosf",   "tanf", "expf",  "logf",  "tanhf", "erff",  "expm1f",
                                  "log1pf", "rsqrtf", "powf", "atanf", "cbrtf", "exp2f", "log2f", "sinhf"};
    static const double most[] = {2,   2,   4,   2, 1.5, 2,   2,   1.5,
                                  1.5, 2.5, 4.5, 2, 1.5, 2.5, 1.5, 3};  // of the CUDA programming guide, or more
    static const char* wide_names[] = {"sin", "exp", "log", "pow", "tanh", "erf", "sqrt", "cos"};
    static const double wide_most[] = {2, 1.5, 1.5, 2.5, 2, 2, 0.5, 2};
    double worst[16] = {}, wide_worst[8] = {};
    for (int i = 0; i < n; ++i) {
      const double v = x[i], m = std::fabs(v), e = d[i], f = std::fabs(e);
      const double want[] = {std::sin(v),
                             std::cos(v),
                             std::tan(v),
                             std::exp(v),
                             std::log(m),
                             std::tanh(v),
                             std::erf(v),
                             std::expm1(v),
                             std::log1p(m),
                             1 / std::sqrt(m),
                             std::pow(m, double(1.7f)),
                             std::atan(v),
                             std::cbrt(v),
                             std::exp2(v),
                             std::log2(m),
                             std::sinh(v)};
      const double want_wide[] = {std::sin(e),  std::exp(e), std::log(f),  std::pow(f, 1.7),
                                  std::tanh(e), std::erf(e), std::sqrt(f), std::cos(e)};
      for (int k = 0; k < 16; ++k) {
        const double w = std::fabs(want[k]) > 3.4028235677973366e38 ? std::copysign(INFINITY, want[k]) : want[k],
                     u = ulps(got[16 * i + k], w, 24, -126);
        worst[k] = std::max(worst[k], u);
        check(u <= most[k], names[k], i, got[16 * i + k], w);
      }
      for (int k = 0; k < 8; ++k) {
        const double u = ulps(gw[8 * i + k], want_wide[k], 53, -1022);
        wide_worst[k] = std::max(wide_worst[k], u);
        check(u <= wide_most[k], wide_names[k], i, gw[8 * i + k], want_wide[k]);
      }
    }
    for (int k = 0; k < 16; ++k) std::printf("%s %.2f ulp, ", names[k], worst[k]);
    for (int k = 0; k < 8; ++k) std::printf("%s %.2f ulp, ", wide_names[k], wide_worst[k]);
    std::printf("\n");
  }
  std::printf("%d checks, %d faults\n", checks, faults);
  return faults != 0;
}
