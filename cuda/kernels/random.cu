// Random numbers by the rules of framework/math/random.h, one Philox block of four elements a thread: the CPU's numbers.
#include "cuda/kernels/elementwise.cuh"
#include "framework/math/random.h"

namespace halfstep::cuda {
namespace {

// lo + (hi - lo) u, with lo in place of a value that rounds to hi or beyond.
struct Uniform {
  double lo, hi;
  __device__ void operator()(const Operand& out, int64_t i, const math::Random4& r, int lane) const {
    out.store(i, lo + (hi - lo) * double(math::uniform(r.v[lane])));
    if (lo < hi && out.load<double>(i) >= hi) out.store(i, lo);
  }
};
struct Normal {
  double mean, stddev;
  __device__ void operator()(const Operand& out, int64_t i, const math::Random4& r, int lane) const {
    out.store(i, mean + stddev * double(math::normal(r, lane)));
  }
};

template <class Draw>
__global__ void __launch_bounds__(kThreads) draw_kernel(Operand out, int64_t n, uint64_t seed, uint64_t offset, Draw draw) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t b = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; b * 4 < n; b += step) {
    const math::Random4 r = math::philox(seed, offset + uint64_t(b));
#pragma unroll
    for (int lane = 0; lane < 4; ++lane) {
      if (b * 4 + lane < n) draw(out, b * 4 + lane, r, lane);
    }
  }
}

template <class C>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(Operand x, Operand out, Space<2> space, uint64_t seed, uint64_t offset, float p, C scale) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t b = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; b * 4 < space.numel; b += step) {
    const math::Random4 r = math::philox(seed, offset + uint64_t(b));
#pragma unroll
    for (int lane = 0; lane < 4; ++lane) {
      if (b * 4 + lane >= space.numel) break;
      int64_t at[2];
      space.offsets(b * 4 + lane, at);
      out.store(at[0], math::uniform(r.v[lane]) >= p ? x.load<C>(at[1]) * scale : C(0));
    }
  }
}

template <class Draw>
void draw(const Queue& q, const TensorView& dst, Generator::State state, const Draw& how) {
  const int64_t n = dst.numel();
  if (n == 0) return;
  launch(draw_kernel<Draw>, blocks_for((n + 3) / 4, kThreads), kThreads, 0, q.stream, Operand(dst), n, state.seed, state.offset,
         how);
}

}  // namespace

void random_uniform(const Queue& q, const TensorView& dst, Generator::State state, double lo, double hi) {
  draw(q, dst, state, Uniform{lo, hi});
}
void random_normal(const Queue& q, const TensorView& dst, Generator::State state, double mean, double stddev) {
  draw(q, dst, state, Normal{mean, stddev});
}

void dropout(const Queue& q, const TensorView& x, const TensorView& out, double p, Generator::State state) {
  const Space<2> space(out.shape, {&out.strides, &x.strides});
  if (space.numel == 0) return;
  const unsigned blocks = blocks_for((space.numel + 3) / 4, kThreads);
  if (x.dtype == DType::f64) {
    launch(dropout_kernel<double>, blocks, kThreads, 0, q.stream, Operand(x), Operand(out), space, state.seed, state.offset,
           float(p), 1 / (1 - p));
  } else {
    launch(dropout_kernel<float>, blocks, kThreads, 0, q.stream, Operand(x), Operand(out), space, state.seed, state.offset,
           float(p), float(1 / (1 - p)));
  }
}

}  // namespace halfstep::cuda
