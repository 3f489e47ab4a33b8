// SPDX-License-Identifier: Apache-2.0
// Kernels and host code with one bug each, chosen by name, and correct ones ("none"): CMakeLists.txt has what must be reported.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string_view>

#include "cuda/gpu.cuh"

using namespace halfstep::cuda;

namespace {

__global__ void transpose(const float* x, float* y, int rows, int columns, bool barrier) {
  SHARED(float, tile, [32][33]);
  const int c = int(blockIdx.x) * 32 + int(threadIdx.x), r0 = int(blockIdx.y) * 32;
  for (int i = int(threadIdx.y); i < 32; i += int(blockDim.y)) {
    if (r0 + i < rows && c < columns) tile[i][threadIdx.x] = x[(r0 + i) * columns + c];
  }
  if (barrier) __syncthreads();
  const int r = r0 + int(threadIdx.x), c0 = int(blockIdx.x) * 32;
  for (int i = int(threadIdx.y); i < 32; i += int(blockDim.y)) {
    if (r < rows && c0 + i < columns) y[(c0 + i) * rows + r] = tile[threadIdx.x][i];
  }
}

// Each round passes a value to the neighbour through the same array.
__global__ void rounds(const float* x, float* y, bool barrier) {
  SHARED(float, s, [64]);
  float v = x[threadIdx.x];
  for (int round = 0; round < 3; ++round) {
    s[threadIdx.x] = v;
    __syncthreads();
    v = s[(threadIdx.x + 1) % 64];
    if (barrier) __syncthreads();
  }
  y[threadIdx.x] = v;
}

__global__ void count_even(const int* x, int* total, int n, bool atomic) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n || x[i] % 2) return;
  if (atomic)
    atomicAdd(total, 1);
  else
    *total += 1;
}

__global__ void last_block_sum(const float* x, float* partial, unsigned* counter, float* out, int n, bool fence, bool atomic,
                               int writer) {
  float v = 0;
  for (int i = int(blockIdx.x * 32 + threadIdx.x); i < n; i += int(gridDim.x) * 32) v += x[i];
  for (int o = 16; o; o /= 2) v += __shfl_xor_sync(kFullMask, v, o);
  SHARED(bool, last, [1]);
  if (int(threadIdx.x) == writer) partial[blockIdx.x] = v;
  if (threadIdx.x == 0) {
    if (fence) __threadfence();
    if (atomic) {
      last[0] = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
    } else {
      const unsigned seen = *counter;
      *counter = seen + 1;
      last[0] = seen == gridDim.x - 1;
    }
    if (fence) __threadfence();
  }
  __syncthreads();
  if (last[0] && threadIdx.x == 0) {
    float sum = 0;
    for (unsigned b = 0; b < gridDim.x; ++b) sum += partial[b];
    *out = sum;
  }
}

__global__ void exchange(const float* x, float* y, bool barrier) {
  SHARED(float, s, [32]);
  s[threadIdx.x] = x[threadIdx.x];
  if (barrier) __syncwarp();
  y[threadIdx.x] = s[31 - threadIdx.x];
}

__global__ void chunks(const float* x, float* y, int chunk, int overlap) {
  for (int i = int(threadIdx.x); i < chunk + overlap; i += int(blockDim.x)) {
    const int at = int(blockIdx.x) * chunk + i;
    y[at] = 2 * x[at];
  }
}

__global__ void dynamic_sum(const float* x, float* y, int n, int extra) {
  DYN_SHARED(float, s);
  for (int i = int(threadIdx.x); i < n; i += int(blockDim.x)) s[i] = x[i];
  __syncthreads();
  if (threadIdx.x > 0) return;
  float sum = 0;
  for (int i = 0; i < n + extra; ++i) sum += s[i];
  *y = sum;
}

__global__ void shared_tail(const float* x, float* y, int past) {
  SHARED(float, s, [64]);
  float* p = s;
  p[threadIdx.x + unsigned(past)] = x[threadIdx.x];
  __syncthreads();
  if (threadIdx.x >= unsigned(past)) y[threadIdx.x] = p[threadIdx.x];
}

__global__ void packs(const float* x, float* y) {
  reinterpret_cast<Pack<float>*>(y)[threadIdx.x] = reinterpret_cast<const Pack<float>*>(x)[threadIdx.x];
}

__global__ void barriers(int kind) {
  if (kind == 1 && threadIdx.x == 3) return;
  if (kind == 2 && threadIdx.x < 32)
    __syncthreads();
  else
    __syncthreads();
}

__global__ void warp_calls(float* y, int kind) {
  float v = float(threadIdx.x);
  if (kind == 1) {
    if (threadIdx.x < 16) v += __shfl_down_sync(kFullMask, v, 1);
  } else if (kind == 2) {
    v += __shfl_down_sync(0xffffu, v, 1);
  } else {
    v += __shfl_down_sync(kFullMask, v, 1);
  }
  y[threadIdx.x] = v;
}

void on_fault(int) {
  static const char text[] = "host access to device memory faulted\n";
  if (write(2, text, sizeof text - 1) < 0) _exit(98);
  _exit(97);
}

void require(cudaError_t error) {
  if (error != cudaSuccess) std::puts("MISMATCH call failed");
}

template <class T>
struct Device {
  T* p = nullptr;
  int n;
  explicit Device(int size, bool upload = true) : n(size) {
    require(cudaMalloc(reinterpret_cast<void**>(&p), size_t(n) * sizeof(T)));
    T* host = new T[size_t(n)];
    for (int i = 0; i < n; ++i) host[i] = T(i);
    if (upload) require(cudaMemcpy(p, host, size_t(n) * sizeof(T), cudaMemcpyHostToDevice));
    delete[] host;
  }
  ~Device() { cudaFree(p); }
  T operator[](int i) const {
    T value;
    require(cudaMemcpy(&value, p + i, sizeof(T), cudaMemcpyDeviceToHost));
    return value;
  }
};

int mismatches = 0;
void expect(const char* what, double got, double want) {
  if (got == want || mismatches++) return;
  std::printf("MISMATCH %s: %g, not %g\n", what, got, want);
}

void kernels(std::string_view bug) {
  const auto is = [bug](std::string_view name) { return bug == name; };
  const int rows = 70, columns = 45;
  Device<float> x(rows * columns, !is("missing_upload")), y(rows * columns, false), one(1, false);
  launch(transpose, dim3(is("grid_too_small") ? 1 : 2, is("illegal_grid") ? 70000 : 3), dim3(32, is("illegal_block") ? 33 : 8), 0,
         nullptr, x.p, y.p, rows, columns, !is("no_barrier_after_write"));
  for (int i = 0; i < rows * columns; ++i) expect("transpose", y[i % columns * rows + i / columns], i);

  launch(rounds, 1, 64, 0, nullptr, x.p, y.p, !is("no_barrier_before_reuse"));
  Device<int> numbers(500), total(1);
  launch(count_even, 4, 128, 0, nullptr, numbers.p, total.p, 500, !is("plain_add"));
  expect("count", total[0], 250);
  Device<float> partial(8, false);
  Device<unsigned> counter(1);
  launch(last_block_sum, 8, 32, 0, nullptr, x.p, partial.p, counter.p, one.p, 1000, !is("no_fence"), !is("plain_counter"),
         is("early_release") ? 31 : 0);
  expect("last block", one[0], 499500);
  launch(exchange, 1, 32, 0, nullptr, x.p, y.p, !is("no_warp_barrier"));
  for (int i = 0; i < 32; ++i) expect("exchange", y[i], 31 - i);
  launch(chunks, 3, 32, 0, nullptr, x.p, y.p, 40, is("overlapping_blocks") ? 1 : 0);
  Device<float> exact(120, false);
  launch(chunks, 3, 32, 0, nullptr, x.p, exact.p, is("global_overrun") ? 41 : 40, 0);
  launch(dynamic_sum, 1, 64,
         is("dynamic_shared_short")   ? 396
         : is("uninitialised_shared") ? 404
                                      : 400,
         nullptr, x.p, one.p, 100, is("uninitialised_shared") ? 1 : 0);
  expect("sum", one[0], 4950);
  launch(shared_tail, 1, 64, 0, nullptr, x.p, y.p, is("shared_overrun") ? 1 : 0);
  launch(packs, 1, 32, 0, nullptr, x.p + (is("misaligned_pack") ? 1 : 0), y.p);
  launch(barriers, 1, 64, 0, nullptr, is("return_before_barrier") ? 1 : is("divergent_barrier") ? 2 : 0);
  launch(warp_calls, 1, is("mask_beyond_block") ? 16 : 32, 0, nullptr, y.p,
         is("shuffle_in_branch") ? 1
         : is("not_in_mask")     ? 2
                                 : 0);
  launch(dynamic_sum, 1, 64, is("too_much_shared") ? 300000 : 400, nullptr, x.p, one.p, 100, 0);
}

void streams(std::string_view bug) {
  cudaStream_t stream;
  float* pinned;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  require(cudaMallocHost(reinterpret_cast<void**>(&pinned), 8));
  Device<float> x(64), y(64);
  pinned[0] = 1;
  require(cudaMemcpyAsync(x.p, pinned, 4, cudaMemcpyHostToDevice, stream));
  if (bug != "early_reuse") require(cudaStreamSynchronize(stream));
  pinned[0] = 2;
  expect("upload", x[0], 1);
  require(cudaMemcpyAsync(pinned + 1, y.p + 3, 4, cudaMemcpyDeviceToHost, stream));
  if (bug != "no_wait") require(cudaStreamSynchronize(stream));
  expect("download", pinned[1], 3);

  float* p;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  require(cudaMalloc(reinterpret_cast<void**>(&p), 4));
  require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  require(cudaMemcpyAsync(p, y.p + 5, 4, cudaMemcpyDeviceToDevice, stream));
  require(cudaMemcpyAsync(y.p, p, 4, cudaMemcpyDeviceToDevice, stream));
  require(cudaStreamEndCapture(stream, &graph));
  require(cudaGraphInstantiate(&executable, graph, 0));
  require(cudaGraphDestroy(graph));
  if (bug == "stale_graph") require(cudaFree(p));
  require(cudaGraphLaunch(executable, stream));
  require(cudaStreamSynchronize(stream));
  expect("graph", y[0], 5);
  require(cudaGraphExecDestroy(executable));
  require(cudaFree(p));
  require(cudaFreeHost(pinned));
  require(cudaStreamDestroy(stream));
}

void host(std::string_view bug) {
  Device<float> x(64);
  float out[64];
  if (bug == "copy_overrun") require(cudaMemcpy(out, x.p + 1, sizeof out, cudaMemcpyDeviceToHost));
  if (bug == "copy_direction") require(cudaMemcpy(out, x.p, sizeof out, cudaMemcpyHostToDevice));
  if (bug == "double_free") {
    require(cudaFree(x.p));
    require(cudaFree(x.p));
  }
  if (bug == "host_dereference") {
#ifndef __SANITIZE_ADDRESS__
    std::signal(SIGSEGV, on_fault);
#endif
    std::printf("%g\n", double(*static_cast<volatile float*>(x.p)));
  }
  expect("copy", x[5], 5);
  streams(bug);
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  const std::string_view bug = argc > 1 ? argv[1] : "none";
  (void)on_fault;
  kernels(bug);
  host(bug);
  std::puts(mismatches ? "FAILED" : "all as expected");
  return mismatches != 0;
}
