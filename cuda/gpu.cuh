// SPDX-License-Identifier: Apache-2.0
// The only portability header of device code: the same kernels compile with nvcc and, with HALFSTEP_CUDA_EMU defined, as plain C++
// for the CPU emulator in tests/emulators/source. Kernel files include this and no CUDA header.
//   SHARED(float, tile, [32][33]);   a shared array           DYN_SHARED(float, s);   the launch's dynamic shared memory
//   launch(kernel, grid, block, shared bytes, stream, arguments...)   instead of <<<>>>; throws DeviceError
//   store_word(to, word)   *to = word, in one store
// Rules: blocks are multiples of 32 threads; warp operations have full masks and every lane reaches them; no return before a
// barrier; loops are grid-stride; no inline PTX outside of this header.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <type_traits>

#include "cuda/launches.h"
#include "framework/base/dtype.h"

#ifdef HALFSTEP_CUDA_EMU
#include <emulator.h>
#else
#define SHARED(T, name, dims) __shared__ T name dims
#define DYN_SHARED(T, name)                                       \
  extern __shared__ __align__(16) unsigned char dynamic_shared[]; \
  T* name = reinterpret_cast<T*>(dynamic_shared)
#endif

namespace halfstep::cuda {

void check_launch(cudaError_t error);  // throws DeviceError if a launch was refused
int64_t resident_threads();            // threads that the current device runs at a time

template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, const A&... arguments) {
#ifdef HALFSTEP_CUDA_EMU
  check_launch(emu::launch(kernel, grid, block, shared_bytes, stream, arguments...));
#else
  kernel<<<grid, block, shared_bytes, stream>>>(static_cast<P>(arguments)...);
  check_launch(cudaGetLastError());
#endif
  if (!launch_watcher) return;
  const auto show = [&](const std::decay_t<P>&... converted) {
    const void* where[] = {&converted..., nullptr};
    const size_t sizes[] = {sizeof converted..., 0};
    launch_watcher->launched(
        {reinterpret_cast<const void*>(kernel), grid, block, shared_bytes, stream, where, sizes, sizeof...(P)});
  };
  show(static_cast<P>(arguments)...);
}

inline constexpr unsigned kFullMask = 0xffffffffu;

// ---- stored types, and the types of the computation: float for the 16-bit floats
// Return x as the type of the computation has it.
__host__ __device__ inline float to_float(float x) { return x; }
__host__ __device__ inline double to_float(double x) { return x; }
__host__ __device__ inline float to_float(__half x) { return __half2float(x); }
__host__ __device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

// Rounds d towards zero and sets the last bit if that was inexact, so that a later rounding to 16 bits is as if from d.
__host__ __device__ inline float round_to_odd(double d) {
  const float f = float(d);
  if (double(f) == d || d != d) return f;
  uint32_t bits;
  memcpy(&bits, &f, 4);
  if (fabs(double(f)) > fabs(d)) --bits;
  bits |= 1u;
  float odd;
  memcpy(&odd, &bits, 4);
  return odd;
}

template <class T>
struct Stored {
  template <class C>
  __host__ __device__ static T from(C x) {
    return T(x);
  }
};
template <>
struct Stored<__half> {
  __host__ __device__ static __half from(float x) { return __float2half_rn(x); }
  __host__ __device__ static __half from(double x) { return __float2half_rn(round_to_odd(x)); }
};
template <>
struct Stored<__nv_bfloat16> {
  __host__ __device__ static __nv_bfloat16 from(float x) { return __float2bfloat16_rn(x); }
  __host__ __device__ static __nv_bfloat16 from(double x) { return __float2bfloat16_rn(round_to_odd(x)); }
};
// Returns a + b c, rounded twice as on the CPU: nvcc would fuse it into one operation.
__device__ inline double multiply_add(double a, double b, double c) {
#ifdef HALFSTEP_CUDA_EMU
  return a + b * c;
#else
  return __dadd_rn(a, __dmul_rn(b, c));
#endif
}

// Return a + b, rounded, also where a is a product: nvcc would fuse both into one operation.
__device__ inline float rounded_sum(float a, float b) {
#ifdef HALFSTEP_CUDA_EMU
  return a + b;
#else
  return __fadd_rn(a, b);
#endif
}
__device__ inline double rounded_sum(double a, double b) {
#ifdef HALFSTEP_CUDA_EMU
  return a + b;
#else
  return __dadd_rn(a, b);
#endif
}

// Returns x, a float or double, rounded once to T: from_float<__half>(1.5f).
template <class T, class C>
__host__ __device__ inline T from_float(C x) {
  return Stored<T>::from(x);
}

template <class T>
struct ComputeOf {
  using type = float;
};
template <>
struct ComputeOf<double> {
  using type = double;
};

// ---- 16 bytes at a time
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / sizeof(T);
  T v[kSize];
};
inline bool aligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// Writes *to = word at once: the compiler may split the assignment into smaller stores. __stwb does so too, but orders itself
// among the accesses of other threads (STG.STRONG.SM), which nothing here needs.
template <class Word>
__device__ inline void store_word(Word* to, const Word& word) {
#ifdef HALFSTEP_CUDA_EMU
  *to = word;
#else
  if constexpr (sizeof(Word) == 16)
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(word.x), "r"(word.y), "r"(word.z), "r"(word.w)
                 : "memory");
  else if constexpr (sizeof(Word) == 8)
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(word.x), "r"(word.y) : "memory");
  else
    *to = word;
#endif
}

// Returns true in the last of `blocks` blocks to arrive, which then sees the earlier writes of the others. One thread per block
// calls it. The counter starts at 0, and is 0 again after the last.
__device__ inline bool is_last_block(uint32_t* counter, unsigned blocks) {
  __threadfence();
  const bool last = atomicInc(counter, blocks - 1) == blocks - 1;
  __threadfence();
  return last;
}
// Waits until `value` was counted by running blocks, and then sees their earlier writes. One thread per block calls it.
__device__ inline void wait_for(uint32_t* counter, uint32_t value) {
#ifdef HALFSTEP_CUDA_EMU
  while (atomicAdd(counter, 0u) < value) {}
#else
  while (*const_cast<volatile uint32_t*>(counter) < value) __nanosleep(32);
#endif
  __threadfence();
}

// Returns the number of blocks of `threads` for `items` independent items, where threads loop over the rest: at most as many as
// fill the device four times.
inline unsigned blocks_for(int64_t items, int threads) {
  const int64_t wanted = (items + threads - 1) / threads, most = resident_threads() * 4 / threads;
  return unsigned(std::max<int64_t>(1, std::min(wanted, most)));
}

}  // namespace halfstep::cuda
