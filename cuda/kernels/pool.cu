// SPDX-License-Identifier: Apache-2.0
// Pooling. Each plane, in... -> out..., is pooled alone; W(o) is the window of output o, and n(o) its divisor.
//   maximum  out[o] = max of x[i] over i in W(o), index[o] = the first such i;  dx[i] = sum of g[o] over o with index[o] = i
//   average  out[o] = sum of x[i] over i in W(o) / n(o);  dx[i] = sum of g[o] / n(o) over the o whose window covers i
// One thread per output, and per input in gradients, which gather. A plane has the pixels of one channel, or in channels_last
// those of an image with `lanes` channels, which neighbouring threads read. Maxima take kRun channels per thread where possible:
// positions are computed once for all of them, and reads have 16 bytes.
#include "cuda/kernels/divisor.cuh"
#include "cuda/kernels/elementwise/elementwise.cuh"
#include "cuda/kernels/elementwise/packs.cuh"

namespace halfstep::cuda {
namespace {

// Kernels count in I: 32 bits if everything they compute fits, with room for a step past the end; else 64.
constexpr int64_t kMostShort = int64_t(1) << 30;
constexpr int64_t kWideWindow = 64;  // elements of a window from which a block averages it, instead of a thread

template <class I>
__device__ inline I lesser(I a, I b) {
  return a < b ? a : b;
}

__device__ inline int32_t quotient(int32_t a, int32_t b) { return int32_t(uint32_t(a) / uint32_t(b)); }
using cuda::quotient;

// One spatial dimension.
template <class I>
struct Axis {
  Divisor<I> in, out;
  I size;
  Divisor<I> stride;
  I padding;
  Divisor<I> dilation;
  bool adaptive;

  // Return the taps of output o that lie inside: [begin, end), each dilation apart.
  __device__ I begin(I o) const {
    if (adaptive) return quotient(o * in, out);
    const I first = o * stride - padding;
    return first < 0 ? first + quotient(-first + dilation - 1, dilation) * dilation : first;
  }
  __device__ I end(I o) const {
    if (adaptive) return quotient((o + 1) * in + out - 1, out);
    const I last = o * stride - padding + (size - 1) * dilation + 1;
    return lesser(last, I(in));
  }
  // Returns the number of elements that the average of output o counts, at least 1; pads: padding counts, too.
  __device__ int64_t counted(I o, bool pads) const {
    const I first = o * stride - padding, last = lesser(first + size, in + padding);
    const I n = pads && !adaptive ? last - first : end(o) - begin(o);
    return n > 1 ? n : 1;
  }
  // Return the outputs whose windows cover input i, also between the taps of dilated ones: [covering_begin, covering_end).
  __device__ I covering_begin(I i) const {
    if (adaptive) return quotient(i * out, in);
    const I past = i + padding - (size - 1) * dilation - 1;  // windows that begin here or earlier end before i
    return past < 0 ? 0 : quotient(past, stride) + 1;
  }
  __device__ I covering_end(I i) const {
    const I end = adaptive ? quotient((i + 1) * out + in - 1, in) : quotient(i + padding, stride) + 1;
    return lesser(end, I(out));
  }
};

template <class I>
struct Pooling {
  Axis<I> z, y, x;
  Divisor<I> lanes;
  bool pads;        // whether averages count padding
  int64_t divisor;  // of averages; 0: the number of counted elements

  __device__ int64_t divisor_at(I oz, I oy, I ox) const {
    return divisor ? divisor : z.counted(oz, pads) * y.counted(oy, pads) * x.counted(ox, pads);
  }
};

// Calls f(pooling of x to y) in the narrowest index type. One of them is channels_last if both are.
template <class F>
void with_pooling(const TensorView& x, const TensorView& y, const PoolArgs& args, const F& f) {
  const Shape &in = x.shape, &out = y.shape;
  const Window& w = args.window;
  Axis<int64_t> axes[3];
  const bool last = x.format() == MemoryFormat::channels_last || y.format() == MemoryFormat::channels_last;
  bool fits = x.numel() <= kMostShort && y.numel() <= kMostShort;
  for (int d = 0; d < 3; ++d) {
    const int s = d - (5 - in.size());  // spatial dimension of the tensors, which may have fewer than three
    Axis<int64_t>& a = axes[d];
    if (s < 0)
      a = {1, 1, 1, 1, 0, 1, false};
    else
      a = {in[s + 2],    out[s + 2], w.size[size_t(s)], w.stride[size_t(s)], w.padding[size_t(s)], w.dilation[size_t(s)],
           args.adaptive};
    // Checks each number first, so that no product of two overflows.
    for (int64_t v : {a.size, a.stride.number, a.padding, a.dilation.number}) fits = fits && v <= kMostShort;
    fits = fits && a.in + a.padding + a.out * a.stride + a.size * a.dilation + (a.in + 1) * (a.out + 1) <= kMostShort;
  }
  const auto as = [&]<class I>(I) {
    const auto axis = [](const Axis<int64_t>& a) {
      return Axis<I>{I(a.in), I(a.out), I(a.size), I(a.stride), I(a.padding), I(a.dilation), a.adaptive};
    };
    f(Pooling<I>{axis(axes[0]), axis(axes[1]), axis(axes[2]), I(last ? in[1] : 1), args.count_include_pad, args.divisor});
  };
  fits ? as(int32_t()) : as(int64_t());
}

// i as plane, z, y, x, lane.
template <class I>
struct PixelPosition {
  I plane, z, y, x, lane = 0;
  template <class D>
  __device__ PixelPosition(I i, D depth, D height, D width, D lanes = 1) {
    if (lanes > 1) {
      const I pixel = quotient(i, lanes);
      lane = i - pixel * lanes;
      i = pixel;
    }
    const I line = quotient(i, width), slice = quotient(line, height);
    plane = quotient(slice, depth);
    x = i - line * width;
    y = line - slice * height;
    z = slice - plane * depth;
  }
};

// Adds g[j] to sum[j] where from[j] is `here`. Compares as P: if only the lower halves of an int64 mattered, the compiler would
// read these one by one.
template <class P, class C, int N>
__device__ inline void add_where(const P* from, P here, const C (&g)[N], C (&sum)[N]) {
  using Word = typename WordOf<N* int(sizeof(P))>::type;
  constexpr int kWords = N * int(sizeof(P)) / int(sizeof(Word));
  Word words[kWords];
#pragma unroll
  for (int k = 0; k < kWords; ++k) words[k] = reinterpret_cast<const Word*>(from)[k];
  P v[N];
  memcpy(v, words, sizeof v);
#pragma unroll
  for (int j = 0; j < N; ++j)
    if (v[j] == here) sum[j] += g[j];
}

template <class C, int N>
__device__ inline void store_lanes(const Operand& out, int64_t i, const C (&x)[N]) {
  if constexpr (N == 1)
    out.store_floating(i, x[0]);
  else
    store_run(out, i, x);
}

// N channels per thread; numel is a multiple of N.
template <class T, class I, int N>
__global__ void __launch_bounds__(kThreads) max_kernel(const T* in, Operand out, Operand positions, Pooling<I> p, I numel) {
  using C = typename ComputeOf<T>::type;
  const I step = I(gridDim.x * blockDim.x);
  for (I k = I(blockIdx.x * blockDim.x + threadIdx.x); k < numel / N; k += step) {
    const I i = k * N;
    const PixelPosition<I> o(i, p.z.out, p.y.out, p.x.out, p.lanes);
    const T* const plane = in + o.plane * p.z.in * p.y.in * p.x.in * p.lanes + o.lane;
    const I x0 = p.x.begin(o.x), x1 = p.x.end(o.x), y0 = p.y.begin(o.y), y1 = p.y.end(o.y);
    const I z0 = p.z.begin(o.z), z1 = p.z.end(o.z);
    C best[N];
    I where[N];  // the first tap, which stays if nothing is larger than -inf
#pragma unroll
    for (int j = 0; j < N; ++j) {
      best[j] = C(-INFINITY);
      where[j] = (lesser(z0, p.z.in - 1) * p.y.in + lesser(y0, p.y.in - 1)) * p.x.in + lesser(x0, p.x.in - 1);
    }
    for (I z = z0; z < z1; z += p.z.dilation) {
      for (I y = y0; y < y1; y += p.y.dilation) {
        const I row = (z * p.y.in + y) * p.x.in;
        const T* from = plane + (row + x0) * p.lanes;
#pragma unroll 1
        for (I x = x0; x < x1; x += p.x.dilation, from += p.x.dilation * p.lanes) {
          C v[N];
          load_pack(from, v);
#pragma unroll
          for (int j = 0; j < N; ++j) {
            const bool takes = !(v[j] <= best[j]) && best[j] == best[j];  // larger, or the first NaN
            best[j] = takes ? v[j] : best[j];
            where[j] = takes ? row + x : where[j];
          }
        }
      }
    }
    store_lanes(out, i, best);
    if (!positions.data) continue;
    switch (positions.dtype) {
      case DType::i16: store_pack(static_cast<int16_t*>(positions.data) + i, where); break;
      case DType::i32: store_pack(static_cast<int32_t*>(positions.data) + i, where); break;
      default: store_pack(static_cast<int64_t*>(positions.data) + i, where);
    }
  }
}

template <class T, class I>
__global__ void __launch_bounds__(kThreads) avg_kernel(const T* in, Operand out, Pooling<I> p, I numel) {
  using C = typename ComputeOf<T>::type;
  const I step = I(gridDim.x * blockDim.x);
  for (I i = I(blockIdx.x * blockDim.x + threadIdx.x); i < numel; i += step) {
    const PixelPosition<I> o(i, p.z.out, p.y.out, p.x.out, p.lanes);
    const T* const plane = in + o.plane * p.z.in * p.y.in * p.x.in * p.lanes + o.lane;
    const I x0 = p.x.begin(o.x), x1 = p.x.end(o.x), y0 = p.y.begin(o.y), y1 = p.y.end(o.y);
    C sum = 0;
    for (I z = p.z.begin(o.z); z < p.z.end(o.z); ++z) {
      for (I y = y0; y < y1; ++y) {
        const I row = (z * p.y.in + y) * p.x.in;
        C part = 0;  // in parts, because sums of sums lose less
        for (I x = x0; x < x1; ++x) part += C(to_float(plane[(row + x) * p.lanes]));
        sum += part;
      }
    }
    out.store_floating(i, C(sum / C(p.divisor_at(o.z, o.y, o.x))));
  }
}

// Averages large parts of a plane: one block per output, with its threads over the window.
template <class T, class I>
__global__ void __launch_bounds__(kThreads) wide_avg_kernel(const T* in, Operand out, Pooling<I> p, I numel) {
  using C = typename ComputeOf<T>::type;
  SHARED(double, sums, [kThreads]);
  for (I i = I(blockIdx.x); i < numel; i += I(gridDim.x)) {
    const PixelPosition<I> o(i, p.z.out, p.y.out, p.x.out, p.lanes);
    const T* const plane = in + o.plane * p.z.in * p.y.in * p.x.in * p.lanes + o.lane;
    const I x0 = p.x.begin(o.x), y0 = p.y.begin(o.y), z0 = p.z.begin(o.z);
    const I width = p.x.end(o.x) - x0, height = p.y.end(o.y) - y0, depth = p.z.end(o.z) - z0;
    C sum = 0;
    for (I k = I(threadIdx.x); k < depth * height * width; k += kThreads) {
      const PixelPosition<I> at(k, depth, height, width);
      sum += C(to_float(plane[(((z0 + at.z) * p.y.in + y0 + at.y) * p.x.in + x0 + at.x) * p.lanes]));
    }
    sums[threadIdx.x] = double(sum);
    for (int half = kThreads / 2; half > 0; half /= 2) {
      __syncthreads();
      if (int(threadIdx.x) < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) out.store_floating(i, C(sums[0] / double(p.divisor_at(o.z, o.y, o.x))));
    __syncthreads();
  }
}

// Return 1 / n for n >= 1; a division has a branch for tiny numbers, which takes registers.
__device__ inline float reciprocal(float n) {
#ifdef HALFSTEP_CUDA_EMU
  return 1 / n;
#else
  return __fdividef(1.0f, n);
#endif
}
__device__ inline double reciprocal(double n) { return 1 / n; }

// N channels per thread.
template <class T, class I, int N>
__global__ void __launch_bounds__(kThreads) avg_backward_kernel(const T* grad, Operand out, Pooling<I> p, I numel) {
  using C = typename ComputeOf<T>::type;
  const I step = I(gridDim.x * blockDim.x);
  for (I k = I(blockIdx.x * blockDim.x + threadIdx.x); k < numel / N; k += step) {
    const I i = k * N;
    const PixelPosition<I> at(i, p.z.in, p.y.in, p.x.in, p.lanes);
    const T* const plane = grad + at.plane * p.z.out * p.y.out * p.x.out * p.lanes + at.lane;
    const I x0 = p.x.covering_begin(at.x), x1 = p.x.covering_end(at.x);
    const I y0 = p.y.covering_begin(at.y), y1 = p.y.covering_end(at.y);
    C sum[N] = {};
    for (I oz = p.z.covering_begin(at.z); oz < p.z.covering_end(at.z); ++oz) {
      for (I oy = y0; oy < y1; ++oy) {
        const I row = (oz * p.y.out + oy) * p.x.out;
        C part[N] = {};
#pragma unroll 1
        for (I ox = x0; ox < x1; ++ox) {
          C g[N];
          load_pack(plane + (row + ox) * p.lanes, g);
          const C share = p.divisor ? C(1) : reciprocal(C(p.x.counted(ox, p.pads)));
#pragma unroll
          for (int j = 0; j < N; ++j) part[j] += g[j] * share;
        }
        const C share = reciprocal(C(p.divisor ? p.divisor : p.z.counted(oz, p.pads) * p.y.counted(oy, p.pads)));
#pragma unroll
        for (int j = 0; j < N; ++j) sum[j] += part[j] * share;
      }
    }
    store_lanes(out, i, sum);
  }
}

// Sums over the windows whose maximum this input was, in the order of the outputs. N channels per thread.
template <class T, class P, class I, int N>
__global__ void __launch_bounds__(kThreads)
    max_backward_kernel(const T* grad, const P* positions, Operand out, Pooling<I> p, I numel) {
  using C = typename ComputeOf<T>::type;
  const I step = I(gridDim.x * blockDim.x);
  for (I k = I(blockIdx.x * blockDim.x + threadIdx.x); k < numel / N; k += step) {
    const I i = k * N;
    const PixelPosition<I> at(i, p.z.in, p.y.in, p.x.in, p.lanes);
    const I first = at.plane * p.z.out * p.y.out * p.x.out * p.lanes + at.lane;
    const I here = (at.z * p.y.in + at.y) * p.x.in + at.x;
    const I x0 = p.x.covering_begin(at.x), x1 = p.x.covering_end(at.x);
    const I y0 = p.y.covering_begin(at.y), y1 = p.y.covering_end(at.y);
    C sum[N] = {};
    const I z0 = p.z.covering_begin(at.z), z1 = p.z.covering_end(at.z);
    for (I oz = z0; oz < z1; ++oz) {
      for (I oy = y0; oy < y1; ++oy) {
        const I row = first + (oz * p.y.out + oy) * p.x.out * p.lanes;
#pragma unroll 1
        for (I ox = x0; ox < x1; ++ox) {
          C g[N];
          load_pack(grad + row + ox * p.lanes, g);
          add_where(positions + row + ox * p.lanes, P(here), g, sum);
        }
      }
    }
    store_lanes(out, i, sum);
  }
}

// Calls f(T{}) for a floating dtype.
template <class F>
void with_type(DType t, const F& f) {
  if (t == DType::f64)
    f(double{});
  else
    for_packed_type(t, f);
}

// Calls f(channels per thread): kRun if an image has whole runs of them and all views can be read in packs, else one.
template <class T, class I, class F>
void with_lanes(const Pooling<I>& p, const TensorView& x, const TensorView& y, const TensorView& indices, const F& f) {
  if constexpr (std::is_same_v<I, int32_t> && !std::is_same_v<T, double>) {
    if (p.lanes % kRun == 0 && packs_of_any(x) && packs_of_any(y) && aligned16(indices.data))
      return f(std::integral_constant<int, kRun>());
  }
  f(std::integral_constant<int, 1>());
}

}  // namespace

void max_pool(const Queue& q, const TensorView& x, const PoolArgs& args, const TensorView& out, const TensorView& indices) {
  const int64_t n = out.numel();
  if (n == 0) return;
  with_pooling(x, out, args, [&]<class I>(const Pooling<I>& p) {
    with_type(x.dtype, [&]<class T>(T) {
      with_lanes<T>(p, x, out, indices, [&]<int N>(std::integral_constant<int, N>) {
        launch(max_kernel<T, I, N>, blocks_for(n / N, kThreads), kThreads, 0, q.stream, x.as<const T>(), Operand(out),
               Operand(indices), p, I(n));
      });
    });
  });
}

void max_pool_backward(const Queue& q, const TensorView& grad, const TensorView& indices, const PoolArgs& args,
                       const TensorView& out) {
  const int64_t n = out.numel();
  if (n == 0) return;
  with_pooling(out, grad, args, [&]<class I>(const Pooling<I>& p) {
    with_type(grad.dtype, [&]<class T>(T) {
      with_lanes<T>(p, grad, out, indices, [&]<int N>(std::integral_constant<int, N>) {
        const auto run = [&]<class P>(P) {
          launch(max_backward_kernel<T, P, I, N>, blocks_for(n / N, kThreads), kThreads, 0, q.stream, grad.as<const T>(),
                 indices.as<const P>(), Operand(out), p, I(n));
        };
        switch (indices.dtype) {
          case DType::i16: return run(int16_t());
          case DType::i32: return run(int32_t());
          default: return run(int64_t());
        }
      });
    });
  });
}

void avg_pool(const Queue& q, const TensorView& x, const PoolArgs& args, const TensorView& out) {
  const int64_t n = out.numel();
  if (n == 0) return;
  int64_t window = 1;
  for (int d = 2; d < x.shape.size(); ++d)
    window *= args.adaptive ? (x.shape[d] + out.shape[d] - 1) / out.shape[d] : args.window.size[size_t(d - 2)];
  with_pooling(x, out, args, [&]<class I>(const Pooling<I>& p) {
    with_type(x.dtype, [&]<class T>(T) {
      const bool wide = window >= kWideWindow && p.lanes == 1;  // threads of lanes already read side by side
      launch(wide ? wide_avg_kernel<T, I> : avg_kernel<T, I>, blocks_for(n, wide ? 1 : kThreads), kThreads, 0, q.stream,
             x.as<const T>(), Operand(out), p, I(n));
    });
  });
}

void avg_pool_backward(const Queue& q, const TensorView& grad, const PoolArgs& args, const TensorView& out) {
  const int64_t n = out.numel();
  if (n == 0) return;
  with_pooling(out, grad, args, [&]<class I>(const Pooling<I>& p) {
    with_type(grad.dtype, [&]<class T>(T) {
      with_lanes<T>(p, grad, out, grad, [&]<int N>(std::integral_constant<int, N>) {
        launch(avg_backward_kernel<T, I, N>, blocks_for(n / N, kThreads), kThreads, 0, q.stream, grad.as<const T>(), Operand(out),
               p, I(n));
      });
    });
  });
}

}  // namespace halfstep::cuda
