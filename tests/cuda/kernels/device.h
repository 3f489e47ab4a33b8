// SPDX-License-Identifier: Apache-2.0
// Copies of host buffers (tests/backend/buffers.h) in device memory.
#pragma once

#include "cuda/kernels/kernels.h"
#include "cuda/launches.h"
#include "cuda/runtime.h"
#include "tests/backend/buffers.h"

namespace halfstep::testing {

// Sizes at the bounds of warps, packs and blocks, where loops are prone to errors.
inline constexpr int64_t kSizes[] = {1, 7, 8, 31, 32, 33, 255, 256, 257, 1023, 2049, 5000};
inline constexpr DType kStored[] = {DType::f32, DType::f16, DType::bf16};

// Device memory with a host buffer's bytes and geometry, `shift` elements off an aligned address; freed with the object.
class OnDevice {
 public:
  explicit OnDevice(const TensorView& host, int64_t shift = 0) : host_(host) {
    int64_t last = host.numel() > 0 ? 1 : 0;
    for (int d = 0; d < host.shape.size() && last; ++d) last += (host.shape[d] - 1) * host.strides[d];
    bytes_ = size_t(last) * size_of(host.dtype);
    const size_t skip = size_t(shift) * size_of(host.dtype);
    REQUIRE(cudaMalloc(&memory_, bytes_ + skip) == cudaSuccess);
    view = host;
    view.data = static_cast<char*>(memory_) + skip;
    if (bytes_) REQUIRE(cudaMemcpy(view.data, host.data, bytes_, cudaMemcpyHostToDevice) == cudaSuccess);
  }
  ~OnDevice() { cudaFree(memory_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  operator const TensorView&() const { return view; }
  template <class T>
  T* as() const {
    return view.as<T>();
  }
  // Copies the device's bytes to the host buffer.
  void fetch() const {
    if (bytes_) REQUIRE(cudaMemcpy(host_.data, view.data, bytes_, cudaMemcpyDeviceToHost) == cudaSuccess);
  }

  TensorView view;

 private:
  TensorView host_;
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

// Allocates an output that starts as NaN (all bytes 0xFF; true for bool).
inline Buffer poisoned(DType t, const Shape& shape) {
  Buffer b = make(t, shape);
  std::memset(b.view.data, t == DType::boolean ? 1 : 0xFF, size_t(b.numel()) * size_of(t));
  return b;
}

// Draws rows that are `pitch` elements apart, like a slice of a wider matrix.
inline Buffer pitched(DType t, int64_t rows, int64_t columns, int64_t pitch, unsigned seed, double lo = -2, double hi = 2) {
  Buffer b = uniform(t, {rows, pitch}, seed, lo, hi);
  b.view.shape[1] = columns;
  return b;
}

// Returns the default stream, whose scratch memory lives until exit and is poisoned.
inline const cuda::Queue& queue() {
  static const cuda::Queue q = [] {
    void* scratch = nullptr;
    REQUIRE(cudaMalloc(&scratch, cuda::kScratchBytes) == cudaSuccess);
    REQUIRE(cudaMemset(scratch, 0xFF, cuda::kScratchBytes) == cudaSuccess);
    void* counters = nullptr;
    REQUIRE(cudaMalloc(&counters, cuda::kCounters * sizeof(uint32_t)) == cudaSuccess);
    REQUIRE(cudaMemset(counters, 0, cuda::kCounters * sizeof(uint32_t)) == cudaSuccess);
    return cuda::Queue{nullptr, static_cast<double*>(scratch), static_cast<uint32_t*>(counters)};
  }();
  return q;
}

// Counts the kernels that f launches.
template <class F>
int launches_of(const F& f) {
  struct Counter final : cuda::LaunchWatcher {
    int count = 0;
    void launched(const cuda::KernelLaunch&) override { ++count; }
    void uses_fixed(const void*) override {}
  } counter;
  cuda::launch_watcher = &counter;
  f();
  cuda::launch_watcher = nullptr;
  return counter.count;
}

// Checks that all elements are close, and names the first that is not. Equal bytes are always close.
inline void check_close(const Buffer& got, const Buffer& want, double ulps, double absolute, const std::string& what) {
  const auto dense = [](const TensorView& v) { return v.strides == contiguous_strides(v.shape); };
  const bool same = dense(got.view) && dense(want.view) && got.view.dtype == want.view.dtype && got.numel() == want.numel() &&
                    std::memcmp(got.view.data, want.view.data, size_t(want.numel()) * size_of(want.view.dtype)) == 0;
  if (same) return;
  int64_t bad = -1;
  for (int64_t i = 0; i < want.numel() && bad < 0; ++i) {
    if (!close(want.view.dtype, got[i], want[i], ulps, absolute)) bad = i;
  }
  CHECK_MESSAGE(bad < 0, what, " ", name(want.view.dtype), "[", want.numel(), "] at ", bad, ": ", bad < 0 ? 0.0 : got[bad],
                ", not ", bad < 0 ? 0.0 : want[bad]);
}
inline void check_close(const Buffer& got, const TensorView& want, double ulps, double absolute, const std::string& what) {
  check_close(got, Buffer{nullptr, want}, ulps, absolute, what);
}

}  // namespace halfstep::testing
