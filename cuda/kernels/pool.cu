// Pooling: one thread an output. The gradient of a mean is gathered, one thread an input. That of a maximum is summed in shared
// memory, a block for each tile of a plane, in the order of the outputs.
#include "cuda/kernels/divide.cuh"
#include "cuda/kernels/ordered.cuh"

namespace halfstep::cuda {
namespace {

__device__ inline int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }

// One spatial dimension.
struct Axis {
  int64_t in, out, size, stride, padding, dilation;
  bool adaptive;

  __device__ int64_t begin(int64_t o) const {  // the first tap inside
    if (adaptive) return quotient(o * in, out);
    const int64_t first = o * stride - padding;
    return first < 0 ? first + quotient(-first + dilation - 1, dilation) * dilation : first;
  }
  __device__ int64_t end(int64_t o) const {
    if (adaptive) return quotient((o + 1) * in + out - 1, out);
    const int64_t last = o * stride - padding + (size - 1) * dilation + 1;
    return lesser(last, in);
  }
  __device__ int64_t counted(int64_t o, bool pads) const {
    const int64_t first = o * stride - padding, last = lesser(first + size, in + padding);
    const int64_t n = pads && !adaptive ? last - first : end(o) - begin(o);
    return n > 1 ? n : 1;
  }
  // The outputs whose windows (without dilation) cover input i: [covering_begin, covering_end).
  __device__ int64_t covering_begin(int64_t i) const {
    if (adaptive) return quotient(i * out, in);
    const int64_t past = i + padding - size;  // windows that begin here or before end before i
    return past < 0 ? 0 : quotient(past, stride) + 1;
  }
  __device__ int64_t covering_end(int64_t i) const {
    const int64_t end = adaptive ? quotient((i + 1) * out + in - 1, in) : quotient(i + padding, stride) + 1;
    return lesser(end, out);
  }
};

struct Pooling {
  Axis z, y, x;
  int64_t planes;
  bool pads;
  int64_t divisor;

  Pooling(const Shape& in, const Shape& out, const PoolArgs& args)
      : planes(in[0] * in[1]), pads(args.count_include_pad), divisor(args.divisor) {
    const Window& w = args.window;
    Axis all[3];
    for (int d = 0; d < 3; ++d) {
      const int s = d - (5 - in.size());
      if (s < 0)
        all[d] = {1, 1, 1, 1, 0, 1, false};
      else
        all[d] = {in[s + 2], out[s + 2], w.size[size_t(s)], w.stride[size_t(s)], w.padding[size_t(s)], w.dilation[size_t(s)], args.adaptive};
    }
    z = all[0];
    y = all[1];
    x = all[2];
  }
  __device__ int64_t divided_by(int64_t oz, int64_t oy, int64_t ox) const {
    return divisor ? divisor : z.counted(oz, pads) * y.counted(oy, pads) * x.counted(ox, pads);
  }
};

// i as plane, z, y, x.
struct Place {
  int64_t plane, z, y, x;
  __device__ Place(int64_t i, int64_t depth, int64_t height, int64_t width) {
    const int64_t line = quotient(i, width), slice = quotient(line, height);
    plane = quotient(slice, depth);
    x = i - line * width;
    y = line - slice * height;
    z = slice - plane * depth;
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) max_kernel(const T* in, Operand out, int64_t* indices, Pooling p, int64_t numel) {
  using C = typename ComputeOf<T>::type;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < numel; i += step) {
    const Place o(i, p.z.out, p.y.out, p.x.out);
    const T* const plane = in + o.plane * p.z.in * p.y.in * p.x.in;
    const int64_t x0 = p.x.begin(o.x), x1 = p.x.end(o.x), y0 = p.y.begin(o.y), y1 = p.y.end(o.y);
    const int64_t z0 = p.z.begin(o.z), z1 = p.z.end(o.z);
    C best = C(-INFINITY);
    int64_t where = -1;
    for (int64_t z = z0; z < z1; z += p.z.dilation) {
      for (int64_t y = y0; y < y1; y += p.y.dilation) {
        const int64_t row = (z * p.y.in + y) * p.x.in;
        for (int64_t x = x0; x < x1; x += p.x.dilation) {
          const C v = to_f(plane[row + x]);
          if (v > best || (v != v && best == best)) {
            best = v;
            where = row + x;
          }
        }
      }
    }
    out.store_floating(i, best);
    if (!indices) continue;
    // Where nothing is larger than -inf: the first tap.
    if (where < 0) where = (lesser(z0, p.z.in - 1) * p.y.in + lesser(y0, p.y.in - 1)) * p.x.in + lesser(x0, p.x.in - 1);
    indices[i] = where;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) avg_kernel(const T* in, Operand out, Pooling p, int64_t numel) {
  using C = typename ComputeOf<T>::type;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < numel; i += step) {
    const Place o(i, p.z.out, p.y.out, p.x.out);
    const T* const plane = in + o.plane * p.z.in * p.y.in * p.x.in;
    const int64_t x0 = p.x.begin(o.x), x1 = p.x.end(o.x), y0 = p.y.begin(o.y), y1 = p.y.end(o.y);
    C sum = 0;
    for (int64_t z = p.z.begin(o.z); z < p.z.end(o.z); ++z) {
      for (int64_t y = y0; y < y1; ++y) {
        const int64_t row = (z * p.y.in + y) * p.x.in;
        C part = 0;  // in pieces, as sums of sums lose less
        for (int64_t x = x0; x < x1; ++x) part += C(to_f(plane[row + x]));
        sum += part;
      }
    }
    out.store_floating(i, C(sum / C(p.divided_by(o.z, o.y, o.x))));
  }
}

// A mean over much of a plane: a block for each output, its threads over the window.
template <class T>
__global__ void __launch_bounds__(kThreads) wide_avg_kernel(const T* in, Operand out, Pooling p, int64_t numel) {
  using C = typename ComputeOf<T>::type;
  SHARED(double, sums, [kThreads]);
  for (int64_t i = blockIdx.x; i < numel; i += gridDim.x) {
    const Place o(i, p.z.out, p.y.out, p.x.out);
    const T* const plane = in + o.plane * p.z.in * p.y.in * p.x.in;
    const int64_t x0 = p.x.begin(o.x), y0 = p.y.begin(o.y), z0 = p.z.begin(o.z);
    const int64_t width = p.x.end(o.x) - x0, height = p.y.end(o.y) - y0, depth = p.z.end(o.z) - z0;
    C sum = 0;
    for (int64_t k = threadIdx.x; k < depth * height * width; k += blockDim.x) {
      const Place at(k, depth, height, width);
      sum += C(to_f(plane[((z0 + at.z) * p.y.in + y0 + at.y) * p.x.in + x0 + at.x]));
    }
    sums[threadIdx.x] = double(sum);
    for (int half = kThreads / 2; half > 0; half /= 2) {
      __syncthreads();
      if (int(threadIdx.x) < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) out.store_floating(i, C(sums[0] / double(p.divided_by(o.z, o.y, o.x))));
    __syncthreads();
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) avg_backward_kernel(const T* grad, Operand out, Pooling p, int64_t numel) {
  using C = typename ComputeOf<T>::type;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < numel; i += step) {
    const Place at(i, p.z.in, p.y.in, p.x.in);
    const T* const plane = grad + at.plane * p.z.out * p.y.out * p.x.out;
    const int64_t x0 = p.x.covering_begin(at.x), x1 = p.x.covering_end(at.x);
    const int64_t y0 = p.y.covering_begin(at.y), y1 = p.y.covering_end(at.y);
    C sum = 0;
    for (int64_t oz = p.z.covering_begin(at.z); oz < p.z.covering_end(at.z); ++oz) {
      for (int64_t oy = y0; oy < y1; ++oy) {
        const int64_t row = (oz * p.y.out + oy) * p.x.out;
        C part = 0;
#pragma unroll 1
        for (int64_t ox = x0; ox < x1; ++ox) part += C(to_f(plane[row + ox])) / (p.divisor ? C(1) : C(p.x.counted(ox, p.pads)));
        sum += part / C(p.divisor ? p.divisor : p.z.counted(oz, p.pads) * p.y.counted(oy, p.pads));
      }
    }
    out.store_floating(i, sum);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    max_backward_kernel(const T* grad, const int64_t* indices, Operand out, int64_t planes, int64_t taken, int64_t size) {
  using C = typename ComputeOf<T>::type;
  SHARED(C, sum, [kTile]);
  SHARED(int, owner, [kTile]);
  const int64_t tiles = (size + kTile - 1) / kTile;
  for (int64_t task = blockIdx.x; task < planes * tiles; task += gridDim.x) {
    const int64_t plane = task / tiles, from = task % tiles * kTile;
    clear_tile(&sum[0], &owner[0]);
    for (int64_t base = 0; base < taken; base += kThreads) {
      const int64_t o = base + threadIdx.x;
      int64_t place = -1;
      if (o < taken) place = indices[plane * taken + o] - from;
      const bool here = place >= 0 && place < kTile;
      add_in_order(&sum[0], &owner[0], here ? int(place) : -1, here ? C(to_f(grad[plane * taken + o])) : C(0));
    }
    for (int i = int(threadIdx.x); i < kTile && from + i < size; i += kThreads) out.store_floating(plane * size + from + i, sum[i]);
  }
}

// f(T*, null) for the dtype of v, a floating one.
template <class F>
void typed(DType t, const F& f) {
  if (t == DType::f64)
    f(double{});
  else
    for_packed_type(t, f);
}

}  // namespace

void max_pool(const Queue& q, const TensorView& x, const PoolArgs& args, const TensorView& out, const TensorView& indices) {
  const int64_t n = out.numel();
  if (n == 0) return;
  typed(x.dtype, [&](auto type) {
    using T = decltype(type);
    launch(max_kernel<T>, blocks_for(n, kThreads), kThreads, 0, q.stream, x.as<const T>(), Operand(out), indices.as<int64_t>(),
           Pooling(x.shape, out.shape, args), n);
  });
}

void max_pool_backward(const Queue& q, const TensorView& grad, const TensorView& indices, const TensorView& out) {
  if (out.numel() == 0) return;
  const int64_t planes = out.shape[0] * out.shape[1], size = out.numel() / planes, taken = grad.numel() / planes;
  typed(grad.dtype, [&](auto type) {
    using T = decltype(type);
    launch(max_backward_kernel<T>, blocks_for(planes * ((size + kTile - 1) / kTile), 1), kThreads, 0, q.stream, grad.as<const T>(),
           indices.as<const int64_t>(), Operand(out), planes, taken, size);
  });
}

void avg_pool(const Queue& q, const TensorView& x, const PoolArgs& args, const TensorView& out) {
  const int64_t n = out.numel();
  if (n == 0) return;
  const Pooling p(x.shape, out.shape, args);
  int64_t window = 1;
  for (int d = 2; d < x.shape.size(); ++d) window *= args.adaptive ? (x.shape[d] + out.shape[d] - 1) / out.shape[d] : args.window.size[size_t(d - 2)];
  typed(x.dtype, [&](auto type) {
    using T = decltype(type);
    if (window >= 64)
      launch(wide_avg_kernel<T>, blocks_for(n, 1), kThreads, 0, q.stream, x.as<const T>(), Operand(out), p, n);
    else
      launch(avg_kernel<T>, blocks_for(n, kThreads), kThreads, 0, q.stream, x.as<const T>(), Operand(out), p, n);
  });
}

void avg_pool_backward(const Queue& q, const TensorView& grad, const PoolArgs& args, const TensorView& out) {
  const int64_t n = out.numel();
  if (n == 0) return;
  typed(grad.dtype, [&](auto type) {
    using T = decltype(type);
    launch(avg_backward_kernel<T>, blocks_for(n, kThreads), kThreads, 0, q.stream, grad.as<const T>(), Operand(out),
           Pooling(out.shape, grad.shape, args), n);
  });
}

}  // namespace halfstep::cuda
