// SPDX-License-Identifier: Apache-2.0
// CUDA kernels on the CPU: nvcc's built-in functions and variables, as plain C++. cuda/gpu.cuh includes this when HALFSTEP_CUDA_EMU
// is defined.
// One OS thread runs everything: the blocks of a launch one after another, the threads of a block as fibers (scheduler.cpp).
// A broken rule (divergent barrier, absent lane, illegal launch...) ends the program with "cuda_emu: ERROR: ..." and status 99.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

// Forbid __shared__: a static would be shared by all blocks. Kernels write SHARED instead.
#undef __shared__
#define __shared__ use_the_SHARED_macro_
#undef __launch_bounds__
#undef __noinline__
#define __noinline__
#define __launch_bounds__(...)

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace emu {

enum class Order { forward, reverse, random };
struct Options {
  Order order = Order::forward;     // HALFSTEP_EMU_ORDER=forward|reverse|random: of threads within a block and of blocks
  uint64_t seed = 1;                // HALFSTEP_EMU_SEED, for random
  size_t memory = size_t(1) << 30;  // HALFSTEP_EMU_MEMORY: bytes of the device, beyond which cudaMalloc fails
  bool async = false;               // HALFSTEP_EMU_ASYNC=1: work waits until the host waits for it
  // HALFSTEP_EMU_PROCESSORS, and HALFSTEP_EMU_THREADS on each. They are few, so that grid-stride loops iterate. With one of each,
  // a launch has at most four blocks (cuda/gpu.cuh), which do all tasks in order in the same shared memory.
  int processors = 4, threads = 2048;
  int capability = 90;    // HALFSTEP_EMU_CAPABILITY=75: compute capability, times ten
  bool has_image = true;  // HALFSTEP_EMU_NO_IMAGE=1: refuses work, as a build without code for the device does
};
Options& options();

[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

void run(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& thread);

// An operation submitted to a stream.
struct Task {
  std::function<void()> work;
  const char* what = "";  // name of operations that are not kernels
  const void* kernel = nullptr;
  std::function<Task(const cudaKernelNodeParams&)> with;  // the same kernel with other launch parameters
};
// Runs the task in the stream's order: now, later or when a captured graph is launched (runtime.h).
cudaError_t submit(cudaStream_t stream, Task task, bool at_once = false);

template <class... P>
Task kernel_task(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
                 const std::tuple<std::decay_t<P>...>& arguments) {
  return {.work = [=] { run(grid, block, shared_bytes, [&] { std::apply([&](const auto&... a) { kernel(a...); }, arguments); }); },
          .kernel = reinterpret_cast<const void*>(kernel),
          .with =
              [=](const cudaKernelNodeParams& p) {
                auto changed = arguments;
                size_t i = 0;
                std::apply([&](auto&... a) { ((void)std::memcpy(static_cast<void*>(&a), p.kernelParams[i++], sizeof a), ...); },
                           changed);
                return kernel_task<P...>(kernel, p.gridDim, p.blockDim, p.sharedMemBytes, changed);
              }};
}
template <class... P, class... A>
cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, A&&... arguments) {
  return submit(stream, kernel_task<P...>(kernel, grid, block, shared_bytes, {static_cast<P>(arguments)...}));
}

// Records the work submitted to all streams while it lives, in order, and whether it is in a graph. Only one may live.
struct Operation {
  std::string name;  // of a kernel, or copy, fill, product
  bool in_graph;
};
class Operations {
 public:
  Operations();
  ~Operations();
  Operations(const Operations&) = delete;
  std::vector<Operation> list;
};

using Site = const char*;  // "file:line" of a synchronising call
enum class Vote { none, count, all, any };
int block_barrier(Site site, Vote vote = Vote::none, bool predicate = false);
void warp_barrier(Site site, unsigned mask);
unsigned warp_ballot(Site site, unsigned mask, bool predicate);
void warp_shuffle(Site site, unsigned mask, int source_lane, void* value, size_t bytes);  // passes the own value, gets the source's
int lane();
void thread_fence();
void note_atomic(const void* p);
void* shared_array(const void* key, size_t bytes);
void* dynamic_shared(size_t alignment);

template <class T>
T shuffle(Site site, unsigned mask, T value, int source) {
  warp_shuffle(site, mask, source, &value, sizeof value);
  return value;
}
inline int segment(int width) { return lane() & ~(width - 1); }
template <class T>
T shuffle_idx(Site site, unsigned mask, T v, int source, int width = 32) {
  return shuffle(site, mask, v, segment(width) + (source & (width - 1)));
}
template <class T>
T shuffle_xor(Site site, unsigned mask, T v, int bits, int width = 32) {
  const int source = lane() ^ bits;
  return shuffle(site, mask, v, source >= segment(width) + width ? lane() : source);
}
template <class T>
T shuffle_down(Site site, unsigned mask, T v, unsigned delta, int width = 32) {
  const int source = lane() + int(delta);
  return shuffle(site, mask, v, source >= segment(width) + width ? lane() : source);
}
template <class T>
T shuffle_up(Site site, unsigned mask, T v, unsigned delta, int width = 32) {
  const int source = lane() - int(delta);
  return shuffle(site, mask, v, source < segment(width) ? lane() : source);
}

// Modifies a word atomically; relaxed, as on the device.
template <class T, class F>
T atomic_update(T* p, F f) {
  using Word = std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;
  note_atomic(p);
  Word* word = reinterpret_cast<Word*>(p);
  Word before = __atomic_load_n(word, __ATOMIC_RELAXED), after;
  T old;
  do {
    std::memcpy(static_cast<void*>(&old), &before, sizeof old);
    const T value = f(old);
    std::memcpy(&after, static_cast<const void*>(&value), sizeof after);
  } while (!__atomic_compare_exchange_n(word, &before, after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return old;
}

}  // namespace emu

#define EMU_TEXT2(x) #x
#define EMU_TEXT(x) EMU_TEXT2(x)
#define EMU_SITE __FILE__ ":" EMU_TEXT(__LINE__)

#define SHARED(T, name, dims)       \
  using name##_type = T dims;       \
  static const char name##_key = 0; \
  name##_type& name = *static_cast<name##_type*>(emu::shared_array(&name##_key, sizeof(name##_type)))
#define DYN_SHARED(T, name) T* name = static_cast<T*>(emu::dynamic_shared(alignof(T)))

#define __syncthreads() ((void)emu::block_barrier(EMU_SITE))
#define __syncthreads_count(p) emu::block_barrier(EMU_SITE, emu::Vote::count, !!(p))
#define __syncthreads_and(p) emu::block_barrier(EMU_SITE, emu::Vote::all, !!(p))
#define __syncthreads_or(p) emu::block_barrier(EMU_SITE, emu::Vote::any, !!(p))
inline unsigned emu_mask(unsigned mask = ~0u) { return mask; }
#define __syncwarp(...) emu::warp_barrier(EMU_SITE, emu_mask(__VA_ARGS__))
#define __shfl_sync(mask, ...) emu::shuffle_idx(EMU_SITE, mask, __VA_ARGS__)
#define __shfl_xor_sync(mask, ...) emu::shuffle_xor(EMU_SITE, mask, __VA_ARGS__)
#define __shfl_down_sync(mask, ...) emu::shuffle_down(EMU_SITE, mask, __VA_ARGS__)
#define __shfl_up_sync(mask, ...) emu::shuffle_up(EMU_SITE, mask, __VA_ARGS__)
#define __ballot_sync(mask, p) emu::warp_ballot(EMU_SITE, mask, !!(p))
#define __any_sync(mask, p) (emu::warp_ballot(EMU_SITE, mask, !!(p)) != 0)
#define __all_sync(mask, p) (emu::warp_ballot(EMU_SITE, mask, !(p)) == 0)
inline void __threadfence() { emu::thread_fence(); }

template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, T v) {
  *p = v;
}

template <class T>
T atomicAdd(T* p, std::type_identity_t<T> v) {
  return emu::atomic_update(p, [v](T a) { return T(a + v); });
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> v) {
  return emu::atomic_update(p, [v](T a) { return a < v ? v : a; });
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> v) {
  return emu::atomic_update(p, [v](T a) { return v < a ? v : a; });
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> v) {
  return emu::atomic_update(p, [v](T) { return v; });
}
template <class T>
T atomicOr(T* p, std::type_identity_t<T> v) {
  return emu::atomic_update(p, [v](T a) { return T(a | v); });
}
inline unsigned atomicInc(unsigned* p, unsigned limit) {
  return emu::atomic_update(p, [limit](unsigned a) { return a >= limit ? 0u : a + 1; });
}

// Replace the device's functions by the host's more accurate ones.
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return uint32_t(uint64_t(a) * b >> 32); }
