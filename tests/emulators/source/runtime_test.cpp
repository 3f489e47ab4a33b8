// SPDX-License-Identifier: Apache-2.0
// The emulator's own runtime: captures and graphs, what they refuse, work that waits, limited memory.
#include <doctest/doctest.h>

#include <vector>

#include "cuda/allocator.h"
#include "cuda/backend.h"
#include "cuda/gpu.cuh"
#include "framework/backend/backend.h"
#include "framework/base/check.h"

namespace {

__global__ void add(int* x, int amount) { x[threadIdx.x] += amount; }

struct Setting {  // restores the emulator's options
  emu::Options before = emu::options();
  ~Setting() { emu::options() = before; }
};

struct Fixture {
  cudaStream_t stream = nullptr;
  int* x = nullptr;       // 32 on the device, all 0
  int* pinned = nullptr;  // 32 on the host
  Setting setting;

  Fixture() {
    emu::options().async = false;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    CHECK(cudaMalloc(reinterpret_cast<void**>(&x), 128) == cudaSuccess);
    CHECK(cudaMallocHost(reinterpret_cast<void**>(&pinned), 128) == cudaSuccess);
    CHECK(cudaMemset(x, 0, 128) == cudaSuccess);
  }
  ~Fixture() {
    cudaFreeHost(pinned);
    cudaFree(x);
    cudaStreamDestroy(stream);
    cudaGetLastError();
  }
  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    CHECK(cudaStreamBeginCapture(stream, mode) == cudaSuccess);
  }
  // The capture has been spoilt, and says so until it ends.
  void end_spoilt() {
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamIsCapturing(stream, &status) == cudaSuccess);
    CHECK(status == cudaStreamCaptureStatusInvalidated);
    CHECK(cudaMemsetAsync(x, 0, 4, stream) == cudaErrorStreamCaptureInvalidated);
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
    CHECK(graph == nullptr);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    cudaGetLastError();
  }
  int value(int i = 0) const {
    int v = -1;
    CHECK(cudaMemcpy(&v, x + i, 4, cudaMemcpyDeviceToHost) == cudaSuccess);
    return v;
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a captured stream keeps its work for the graph, which does it in order each time") {
  begin();
  cudaStreamCaptureStatus status;
  CHECK(cudaStreamIsCapturing(stream, &status) == cudaSuccess);
  CHECK(status == cudaStreamCaptureStatusActive);
  CHECK(cudaMemcpyAsync(x, pinned, 128, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  halfstep::cuda::launch(add, 1, 32, 0, stream, x, 5);
  CHECK(cudaMemcpyAsync(x, x + 1, 4, cudaMemcpyDeviceToDevice, stream) == cudaSuccess);
  CHECK(cudaMemsetAsync(x + 2, 1, 4, stream) == cudaSuccess);
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  size_t nodes = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes) == cudaSuccess);
  CHECK(nodes == 4);
  CHECK(value() == 0);

  cudaGraphExec_t executable;
  CHECK(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaGraphUpload(executable, stream) == cudaSuccess);
  for (const int base : {10, 20}) {
    for (int i = 0; i < 32; ++i) pinned[i] = base + i;
    CHECK(cudaGraphLaunch(executable, stream) == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(value(0) == base + 6);
    CHECK(value(2) == 0x01010101);
    CHECK(value(31) == base + 36);
  }
  CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
}

TEST_CASE_FIXTURE(Fixture, "what cannot be captured is refused and spoils the capture") {
  int here[32] = {};
  cudaEvent_t event;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDefault) == cudaSuccess);
  CHECK(cudaEventRecord(event, stream) == cudaSuccess);
  void* p;
  const auto refused = [&](auto call) {
    begin();
    CHECK(call() == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaGetLastError() == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaGetLastError() == cudaSuccess);
    end_spoilt();
  };
  refused([&] { return cudaStreamSynchronize(stream); });
  refused([&] { return cudaStreamQuery(stream); });
  refused([&] { return cudaDeviceSynchronize(); });
  refused([&] { return cudaEventQuery(event); });
  refused([&] { return cudaMemcpyAsync(here, x, 128, cudaMemcpyDeviceToHost, stream); });
  refused([&] { return cudaMemcpyAsync(x, here, 128, cudaMemcpyHostToDevice, stream); });
  refused([&] { return cudaMemcpy(here, x, 128, cudaMemcpyDeviceToHost); });
  refused([&] { return cudaMalloc(&p, 128); });
  refused([&] { return cudaFree(x); });
  refused([&] { return cudaMallocHost(&p, 128); });
  CHECK(value() == 0);

  begin();
  CHECK(cudaEventRecord(event, stream) == cudaSuccess);
  CHECK(cudaEventQuery(event) == cudaErrorCapturedEvent);
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaEventDestroy(event) == cudaSuccess);
  CHECK(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeThreadLocal) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorIllegalState);
}

TEST_CASE_FIXTURE(Fixture, "a launch on a spoilt capture throws") {
  begin();
  CHECK(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
  CHECK_THROWS_WITH(halfstep::cuda::launch(add, 1, 32, 0, stream, x, 5), doctest::Contains("cudaErrorStreamCaptureInvalidated"));
  end_spoilt();
}

TEST_CASE_FIXTURE(Fixture, "a thread may allocate during a capture in relaxed mode") {
  begin();
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  CHECK(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
  CHECK(mode == cudaStreamCaptureModeGlobal);
  void* p;
  CHECK(cudaMalloc(&p, 128) == cudaSuccess);
  CHECK(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
  CHECK(mode == cudaStreamCaptureModeRelaxed);
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  begin(cudaStreamCaptureModeRelaxed);
  CHECK(cudaFree(p) == cudaSuccess);
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
}

TEST_CASE_FIXTURE(Fixture, "the default stream may not be used while a blocking stream is captured") {
  cudaStream_t blocking;
  CHECK(cudaStreamCreate(&blocking) == cudaSuccess);
  CHECK(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  CHECK(cudaMemsetAsync(x, 0, 4, nullptr) == cudaErrorStreamCaptureImplicit);
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(blocking, &graph) == cudaErrorStreamCaptureInvalidated);
  CHECK(cudaStreamDestroy(blocking) == cudaSuccess);
}

TEST_CASE_FIXTURE(Fixture, "asynchronous: work waits until the host waits") {
  emu::options().async = true;
  cudaEvent_t event;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDefault) == cudaSuccess);
  pinned[0] = 7;
  CHECK(cudaMemcpyAsync(x, pinned, 4, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  CHECK(cudaMemcpyAsync(pinned + 1, x, 4, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  CHECK(cudaEventRecord(event, stream) == cudaSuccess);
  pinned[0] = 8;
  pinned[1] = 0;
  CHECK(cudaEventQuery(event) == cudaErrorNotReady);
  CHECK(cudaEventQuery(event) == cudaSuccess);
  CHECK(pinned[1] == 8);
  halfstep::cuda::launch(add, 1, 32, 0, stream, x, 5);
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  CHECK(cudaStreamQuery(stream) == cudaSuccess);
  CHECK(value() == 13);
  const std::vector<int> pageable(32, 3);
  CHECK(cudaMemcpyAsync(x, pageable.data(), 128, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  CHECK(cudaStreamQuery(stream) == cudaSuccess);
  CHECK(cudaEventDestroy(event) == cudaSuccess);
}

TEST_CASE_FIXTURE(Fixture, "asynchronous: streams are ordered by events and by nothing else") {
  emu::options().async = true;
  cudaStream_t other;
  cudaEvent_t event;
  CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) == cudaSuccess);
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
  const auto read = [&](int i) { return cudaMemcpyAsync(pinned + i, x, 4, cudaMemcpyDeviceToHost, stream); };
  pinned[0] = 7;
  CHECK(cudaMemcpyAsync(x, pinned, 4, cudaMemcpyHostToDevice, other) == cudaSuccess);
  CHECK(read(1) == cudaSuccess);  // without an event: before the copy, though it was queued after
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(pinned[1] == 0);
  CHECK(cudaEventRecord(event, other) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(stream, event, 0) == cudaSuccess);
  CHECK(cudaMemsetAsync(x, 0, 4, other) == cudaSuccess);  // after the event, so not waited for
  CHECK(cudaEventRecord(event, other) == cudaSuccess);    // the wait is for what the event was
  CHECK(read(2) == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(pinned[2] == 7);
  CHECK(cudaEventSynchronize(event) == cudaSuccess);
  CHECK(value() == 0);
  CHECK(cudaEventDestroy(event) == cudaSuccess);
  CHECK(cudaStreamDestroy(other) == cudaSuccess);
}

TEST_CASE_FIXTURE(Fixture, "a captured launch gives its node, whose arguments can be changed") {
  int* y;
  CHECK(cudaMalloc(reinterpret_cast<void**>(&y), 128) == cudaSuccess);
  CHECK(cudaMemset(y, 0, 128) == cudaSuccess);
  begin();
  halfstep::cuda::launch(add, 1, 32, 0, stream, x, 5);
  cudaStreamCaptureStatus status;
  const cudaGraphNode_t* last;
  size_t count;
#if CUDART_VERSION >= 13000
  const cudaGraphEdgeData* edges;
  CHECK(cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &last, &edges, &count) == cudaSuccess);
#else
  CHECK(cudaStreamGetCaptureInfo_v2(stream, &status, nullptr, nullptr, &last, &count) == cudaSuccess);
#endif
  REQUIRE(count == 1);
  const cudaGraphNode_t node = *last;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  CHECK(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
  int amount = 3;
  void* arguments[] = {&y, &amount};
  cudaKernelNodeParams params{};
  params.func = reinterpret_cast<void*>(add);
  params.gridDim = 1;
  params.blockDim = 32;
  params.kernelParams = arguments;
  CHECK(cudaGraphLaunch(executable, stream) == cudaSuccess);
  CHECK(cudaGraphExecKernelNodeSetParams(executable, node, &params) == cudaSuccess);
  CHECK(cudaGraphLaunch(executable, stream) == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(value() == 5);
  int got = 0;
  CHECK(cudaMemcpy(&got, y + 31, 4, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(got == 3);
  CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaFree(y) == cudaSuccess);
}

TEST_CASE_FIXTURE(Fixture, "device memory is limited, counted and distinguished from the host's") {
  size_t before, after, total;
  CHECK(cudaMemGetInfo(&before, &total) == cudaSuccess);
  const size_t limit = total - before + (size_t(64) << 20);  // other tests may keep memory
  emu::options().memory = limit;
  CHECK(cudaMemGetInfo(&before, &total) == cudaSuccess);
  CHECK(total == limit);
  void *p, *q = nullptr;
  CHECK(cudaMalloc(&p, size_t(32) << 20) == cudaSuccess);
  CHECK(cudaMemGetInfo(&after, &total) == cudaSuccess);
  CHECK(before - after == size_t(32) << 20);
  CHECK(cudaMalloc(&q, size_t(33) << 20) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  CHECK(q == nullptr);
  cudaPointerAttributes attributes;
  CHECK(cudaPointerGetAttributes(&attributes, static_cast<char*>(p) + 5) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeDevice);
  CHECK(cudaPointerGetAttributes(&attributes, pinned + 3) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeHost);
  CHECK(cudaPointerGetAttributes(&attributes, &total) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeUnregistered);
  CHECK(cudaFree(p) == cudaSuccess);
  CHECK(cudaMalloc(&q, size_t(40) << 20) == cudaSuccess);
  CHECK(cudaFree(q) == cudaSuccess);
}

TEST_CASE("an allocator takes a smaller segment, and cached ones, before it gives up") {
  constexpr size_t kMiB = size_t(1) << 20;
  size_t free, total;
  CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess);
  const Setting setting;
  emu::options().memory = total - free + 30 * kMiB;
  halfstep::cuda::CudaAllocator memory;
  const auto tag = halfstep::MemoryTag::data;
  void* const a = memory.allocate(3 * kMiB, tag);  // of a segment of 20 MiB
  void* const b = memory.allocate(25 * kMiB / 3, tag);
  CHECK(memory.stats().reserved == 20 * kMiB);
  void* const c = memory.allocate(9 * kMiB, tag);  // another of 20 does not fit
  CHECK(memory.stats().reserved == 30 * kMiB);
  CHECK_THROWS_WITH_AS(memory.allocate(9 * kMiB, tag), doctest::Contains("[memory] cuda:0: cannot allocate 9.0 MiB; "),
                       halfstep::MemoryError);
  for (void* p : {a, b, c}) memory.release(p);
  void* const d = memory.allocate(28 * kMiB, tag);  // for which the cached segments are given back
  CHECK(memory.stats().live == 28 * kMiB);
  CHECK(memory.stats().reserved == 28 * kMiB);
  memory.release(d);
  memory.empty_cache();
  CHECK(memory.stats().reserved == 0);
}

TEST_CASE("a build without code for the device: copies and fills run, kernels do not, and no backend is made") {
  Fixture f;
  const auto memory = std::make_unique<halfstep::cuda::CudaAllocator>();
  emu::options().has_image = false;
  CHECK(cudaMemsetAsync(f.x, 1, 4, f.stream) == cudaSuccess);
  CHECK(f.value() == 0x01010101);
  CHECK(emu::launch(add, 1, 32, 0, f.stream, f.x, 1) == cudaErrorNoKernelImageForDevice);
  CHECK_THROWS_WITH_AS(halfstep::cuda::make_backend(*memory), doctest::Contains("this build has no code for"),
                       halfstep::DeviceError);
  emu::options().has_image = true;
  CHECK(halfstep::cuda::make_backend(*memory) != nullptr);
}
