// SPDX-License-Identifier: Apache-2.0
// Norms over lists of tensors, and clipping.
//   norm       (sum |g|^p)^(1/p);  p = inf: max |g|;  p = 0: the number of g that are not 0
//   grad_norm  the norm for p = 2, divided by the scale; *found_inf = 1 if it is not finite, else 0
//   clip       g = g min(1, max_norm / (norm + 1e-6))
// Tensors are cut into chunks by their sizes alone. Each block reduces some chunks, and one block joins the results in order, in
// double.
#include <cmath>

#include "cuda/kernels/tensor_lists.cuh"
#include "framework/base/check.h"
#include "framework/math/training.h"

namespace halfstep::cuda {
namespace {

// Elements of a block; the longer one where shorter ones would have more results than the scratch memory holds.
constexpr int64_t kChunk = 32 * kThreads, kLongChunk = 128 * kChunk;

// Tensors that are read in packs.
template <int64_t Chunk>
using PackedList = List<Operand, Chunk>;

bool packed(const TensorView& v) { return v.is_contiguous() && aligned16(v.data); }

// Calls on_list(list) for lists of packed tensors, and on_tensor(tensor) for each of the others.
template <int64_t Chunk, class OnList, class OnTensor>
void for_tensors(std::span<const TensorView> tensors, const OnList& on_list, const OnTensor& on_tensor) {
  const auto add = [](PackedList<Chunk>& list, const TensorView& v) {
    const bool takes = v.numel() > 0 && packed(v);
    if (takes) list.add(v, v.numel());
    return takes;
  };
  for_lists<PackedList<Chunk>>(tensors, add, on_list);
  for (const TensorView& v : tensors) {
    if (v.numel() > 0 && !packed(v)) on_tensor(v);
  }
}

// ---- norms. of(x, p): a number's part of the norm; join: of two parts.
struct Absolute : SumJoin {
  __device__ static double of(double x, double) { return fabs(x); }
};
struct Square : SumJoin {
  __device__ static double of(double x, double) { return x * x; }
};
struct Largest : MaxJoin {
  __device__ static double of(double x, double) { return fabs(x); }
};
struct Power : SumJoin {
  __device__ static double of(double x, double p) { return p == 0 ? (x != 0 ? 1.0 : 0.0) : ::pow(fabs(x), p); }
};

// Joins the parts of this thread's share of n numbers.
template <class Kind, class T>
__device__ inline double norm_part(const T* x, int64_t n) {
  constexpr int kSize = Pack<T>::kSize;
  double value = 0;
  const int64_t packs = n / kSize;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < packs; i += kThreads) {
    const Pack<T> v = reinterpret_cast<const Pack<T>*>(x)[i];
#pragma unroll
    for (int j = 0; j < kSize; ++j) value = Kind::join(value, Kind::of(double(to_float(v.v[j])), 0));
  }
  for (int64_t i = packs * kSize + threadIdx.x; i < n; i += kThreads)
    value = Kind::join(value, Kind::of(double(to_float(x[i])), 0));
  return value;
}

template <class Kind, int64_t Chunk>
__global__ void __launch_bounds__(kThreads) norm_packed(PackedList<Chunk> list, double* partials) {
  SHARED(double, shared, [kBlockWarps]);
  const auto part = list.part();
  const Operand& x = list.entry[part.tensor];
  const int64_t n = part.end - part.begin;
  double value;
  switch (x.dtype) {
    case DType::f16: value = norm_part<Kind>(&x.at<__half>(part.begin), n); break;
    case DType::bf16: value = norm_part<Kind>(&x.at<__nv_bfloat16>(part.begin), n); break;
    case DType::f32: value = norm_part<Kind>(&x.at<float>(part.begin), n); break;
    default: value = norm_part<Kind>(&x.at<double>(part.begin), n); break;
  }
  value = block_join<Kind>(value, &shared[0]);
  if (threadIdx.x == 0) partials[blockIdx.x] = value;
}

// Computes the parts of a tensor with any strides and address.
template <class Kind>
__global__ void __launch_bounds__(kThreads) norm_any(Operand x, Space<1> space, int64_t chunk, double p, double* partials) {
  SHARED(double, shared, [kBlockWarps]);
  const int64_t begin = int64_t(blockIdx.x) * chunk, end = begin + chunk < space.numel ? begin + chunk : space.numel;
  double value = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads)
    value = Kind::join(value, Kind::of(x.load<double>(space.offset(i)), p));
  value = block_join<Kind>(value, &shared[0]);
  if (threadIdx.x == 0) partials[blockIdx.x] = value;
}

// Where a norm goes: divided by *scale to *norm, and whether it is finite to *found_inf. Those two may be null.
struct NormOutput {
  float* norm;
  const float* scale = nullptr;
  float* found_inf = nullptr;
};

// Joins the partial norms in one block. p = inf: the largest.
__global__ void __launch_bounds__(kThreads) finish_norm(const double* partials, int64_t count, double p, NormOutput out) {
  SHARED(double, shared, [kBlockWarps]);
  double value = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads)
    value = isinf(p) ? MaxJoin::join(value, partials[i]) : value + partials[i];
  value = isinf(p) ? block_join<MaxJoin>(value, &shared[0]) : block_join<SumJoin>(value, &shared[0]);
  if (threadIdx.x != 0) return;
  const double norm = isinf(p) || p == 1 || p == 0 ? value : p == 2 ? sqrt(value) : ::pow(value, 1 / p);
  *out.norm = float(out.scale ? norm / double(*out.scale) : norm);
  if (out.found_inf) *out.found_inf = finite(norm) ? 0.0f : 1.0f;
}

template <class Kind, int64_t Chunk>
void norm_in_chunks(const Queue& q, std::span<const TensorView> tensors, double p, const NormOutput& out) {
  int64_t partials = 0;
  const auto on_tensor = [&](const TensorView& v) {
    const Space<1> space(v.shape, {&v.strides});
    const int64_t blocks = (space.numel + Chunk - 1) / Chunk;
    launch(norm_any<Kind>, unsigned(blocks), kThreads, 0, q.stream, Operand(v), space, Chunk, p, q.scratch + partials);
    partials += blocks;
  };
  if constexpr (std::is_same_v<Kind, Power>) {
    for (const TensorView& v : tensors) {
      if (v.numel() > 0) on_tensor(v);
    }
  } else {
    const auto on_list = [&](const PackedList<Chunk>& l) {
      launch(norm_packed<Kind, Chunk>, l.blocks(), kThreads, 0, q.stream, l, q.scratch + partials);
      partials += l.blocks();
    };
    for_tensors<Chunk>(tensors, on_list, on_tensor);
  }
  launch(finish_norm, 1, kThreads, 0, q.stream, q.scratch, partials, p, out);
}

template <class Kind>
void norm_of(const Queue& q, std::span<const TensorView> tensors, double p, const NormOutput& out) {
  check<ValueError>(int64_t(tensors.size()) <= kScratchDoubles, "norm", "must be of at most ", kScratchDoubles, " tensors, got ",
                    tensors.size());  // each tensor is at least one part
  int64_t chunks = 0;
  for (const TensorView& v : tensors) chunks += (v.numel() + kChunk - 1) / kChunk;
  if (chunks <= kScratchDoubles)
    norm_in_chunks<Kind, kChunk>(q, tensors, p, out);
  else
    norm_in_chunks<Kind, kLongChunk>(q, tensors, p, out);
}

// ---- clipping
// Multiplies n numbers by the factor.
template <class T>
__device__ inline void clip_part(T* x, int64_t n, float factor) {
  using C = typename ComputeOf<T>::type;
  constexpr int kSize = Pack<T>::kSize;
  const int64_t packs = n / kSize;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < packs; i += kThreads) {
    Pack<T> v = reinterpret_cast<Pack<T>*>(x)[i];
#pragma unroll
    for (int j = 0; j < kSize; ++j) v.v[j] = from_float<T>(C(to_float(v.v[j]) * C(factor)));
    reinterpret_cast<Pack<T>*>(x)[i] = v;
  }
  for (int64_t i = packs * kSize + threadIdx.x; i < n; i += kThreads) x[i] = from_float<T>(C(to_float(x[i]) * C(factor)));
}

__global__ void __launch_bounds__(kThreads) clip_packed(PackedList<kChunk> list, const float* norm, double max_norm) {
  const float factor = math::clip_factor(*norm, max_norm);
  if (factor == 1) return;
  const auto part = list.part();
  const Operand& x = list.entry[part.tensor];
  const int64_t n = part.end - part.begin;
  switch (x.dtype) {
    case DType::f16: return clip_part(static_cast<__half*>(x.data) + part.begin, n, factor);
    case DType::bf16: return clip_part(static_cast<__nv_bfloat16*>(x.data) + part.begin, n, factor);
    case DType::f32: return clip_part(static_cast<float*>(x.data) + part.begin, n, factor);
    default: return clip_part(static_cast<double*>(x.data) + part.begin, n, factor);
  }
}

template <class C>
__global__ void __launch_bounds__(kThreads) clip_any(Operand x, Space<1> space, const float* norm, double max_norm) {
  const float factor = math::clip_factor(*norm, max_norm);
  if (factor == 1) return;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < space.numel; i += step) {
    const int64_t at = space.offset(i);
    x.store(at, C(x.load<C>(at) * C(factor)));
  }
}

}  // namespace

void norm(const Queue& q, std::span<const TensorView> tensors, double p, float* out) {
  if (std::isinf(p)) return norm_of<Largest>(q, tensors, p, {out});
  if (p == 2) return norm_of<Square>(q, tensors, p, {out});
  if (p == 1) return norm_of<Absolute>(q, tensors, p, {out});
  norm_of<Power>(q, tensors, p, {out});
}

void grad_norm(const Queue& q, std::span<const TensorView> grads, const float* scale, float* out, float* found_inf) {
  norm_of<Square>(q, grads, 2, {out, scale, found_inf});
}

void clip(const Queue& q, std::span<const TensorView> tensors, const float* norm, double max_norm) {
  const auto on_list = [&](const PackedList<kChunk>& l) {
    launch(clip_packed, l.blocks(), kThreads, 0, q.stream, l, norm, max_norm);
  };
  const auto on_tensor = [&](const TensorView& v) {
    const Space<1> space(v.shape, {&v.strides});
    launch(v.dtype == DType::f64 ? clip_any<double> : clip_any<float>, blocks_for(space.numel, kThreads), kThreads, 0, q.stream,
           Operand(v), space, norm, max_norm);
  };
  for_tensors<kChunk>(tensors, on_list, on_tensor);
}

}  // namespace halfstep::cuda
