// Copies between dtypes and layouts, and constant and evenly spaced values.
#include "cuda/kernels/elementwise.cuh"

namespace halfstep::cuda {
namespace {

// Same dtype: bits move unchanged, NaN payloads included. T: an unsigned integer of the element's size.
template <class T>
__global__ void __launch_bounds__(kThreads) move_kernel(const T* from, T* to, Space<2> space) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < space.numel; i += step) {
    int64_t at[2];
    space.offsets(i, at);
    to[at[1]] = from[at[0]];
  }
}

template <class From, class To>
__global__ void __launch_bounds__(kThreads) cast_kernel(const From* from, To* to, int64_t n) {
  constexpr int kSize = 16 / sizeof(From) < 16 / sizeof(To) ? 16 / sizeof(From) : 16 / sizeof(To);
  struct alignas(sizeof(From) * kSize) In {
    From v[kSize];
  };
  struct alignas(sizeof(To) * kSize) Out {
    To v[kSize];
  };
  const int64_t packs = n / kSize, first = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t p = first; p < packs; p += step) {
    const In in = reinterpret_cast<const In*>(from)[p];
    Out out;
#pragma unroll
    for (int j = 0; j < kSize; ++j) out.v[j] = from_f<To>(to_f(in.v[j]));
    reinterpret_cast<Out*>(to)[p] = out;
  }
  for (int64_t i = packs * kSize + first; i < n; i += step) to[i] = from_f<To>(to_f(from[i]));
}

__global__ void __launch_bounds__(kThreads) fill_kernel(Operand out, Space<1> space, double value) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < space.numel; i += step) out.store(space.offset(i), value);
}

__global__ void __launch_bounds__(kThreads) arange_kernel(Operand out, int64_t stride, int64_t n, double start, double by) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) out.store(i * stride, start + double(i) * by);
}

struct Same {
  template <class C>
  __device__ C operator()(C x) const {
    return x;
  }
};

template <class T>
void move(const Queue& q, const TensorView& src, const TensorView& dst, const Space<2>& space) {
  launch(move_kernel<T>, blocks_for(space.numel, kThreads), kThreads, 0, q.stream, src.as<const T>(), dst.as<T>(), space);
}

template <class From, class To>
void cast(const Queue& q, const TensorView& src, const TensorView& dst, int64_t n) {
  launch(cast_kernel<From, To>, blocks_for(n / 4 + 1, kThreads), kThreads, 0, q.stream, src.as<const From>(), dst.as<To>(), n);
}

}  // namespace

void copy(const Queue& q, const TensorView& src, const TensorView& dst) {
  const Space<2> space(dst.shape, {&src.strides, &dst.strides});
  if (space.numel == 0) return;
  if (src.dtype == dst.dtype) {
    if (space.dense()) {
      return check_launch(
          cudaMemcpyAsync(dst.data, src.data, size_t(space.numel) * size_of(dst.dtype), cudaMemcpyDeviceToDevice, q.stream));
    }
    switch (size_of(src.dtype)) {
      case 1: return move<uint8_t>(q, src, dst, space);
      case 2: return move<uint16_t>(q, src, dst, space);
      case 4: return move<uint32_t>(q, src, dst, space);
      default: return move<uint64_t>(q, src, dst, space);
    }
  }
  if (space.dense() && aligned16(src.data) && aligned16(dst.data)) {  // between master weights, activations and their 16-bit copies
    if (src.dtype == DType::f32 && dst.dtype == DType::f16) return cast<float, __half>(q, src, dst, space.numel);
    if (src.dtype == DType::f32 && dst.dtype == DType::bf16) return cast<float, __nv_bfloat16>(q, src, dst, space.numel);
    if (src.dtype == DType::f16 && dst.dtype == DType::f32) return cast<__half, float>(q, src, dst, space.numel);
    if (src.dtype == DType::bf16 && dst.dtype == DType::f32) return cast<__nv_bfloat16, float>(q, src, dst, space.numel);
  }
  run_elementwise<1>(q, {}, AnyKernels<1>::any<Same>(), compute_of(src.dtype), dst, {&src});
}

void fill(const Queue& q, const TensorView& dst, double value) {
  const Space<1> space(dst.shape, {&dst.strides});
  if (space.numel == 0) return;
  launch(fill_kernel, blocks_for(space.numel, kThreads), kThreads, 0, q.stream, Operand(dst), space, value);
}

void arange(const Queue& q, const TensorView& dst, double start, double step) {
  const int64_t n = dst.numel(), stride = dst.shape.empty() ? 1 : dst.strides[0];
  if (n == 0) return;
  launch(arange_kernel, blocks_for(n, kThreads), kThreads, 0, q.stream, Operand(dst), stride, n, start, step);
}

}  // namespace halfstep::cuda
