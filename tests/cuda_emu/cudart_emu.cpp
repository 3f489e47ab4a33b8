// The calls of the CUDA runtime that the framework makes, on the host, linked instead of libcudart. Streams are synchronous.
// Device memory is one range without access rights outside kernels and copies: a host that touches it faults.
#include <sys/mman.h>

#include <chrono>
#include <cstdlib>
#include <map>

#include "cuda/gpu.cuh"
#include "hooks.h"

#ifdef __SANITIZE_ADDRESS__
extern "C" {
void __asan_poison_memory_region(const volatile void* p, size_t bytes);
void __asan_unpoison_memory_region(const volatile void* p, size_t bytes);
}
#else
static void __asan_poison_memory_region(const volatile void*, size_t) {}
static void __asan_unpoison_memory_region(const volatile void*, size_t) {}
#endif

namespace emu {
namespace {

constexpr size_t kDeviceBytes = size_t(1) << 30;
constexpr size_t kGap = 256;                     // behind each allocation, poisoned for ASan
constexpr size_t kReuseAfter = size_t(4) << 20;  // freed memory stays unused, to catch its late users, until so much is
constexpr size_t kPage = 4096;

char* device;  // the whole range
size_t used;   // handed out from its beginning, freed or not
std::map<char*, size_t> live;
int opened;

size_t reserved_for(size_t bytes) { return (bytes + 255) / 256 * 256 + kGap; }

void protect(int rights) { mprotect(device, (used + kPage - 1) / kPage * kPage, rights); }

void reserve() {
  if (device) return;
  device = static_cast<char*>(mmap(nullptr, kDeviceBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (device == MAP_FAILED) fail("no address space for device memory");
  __asan_poison_memory_region(device, kDeviceBytes);
}

struct Opened {
  Opened() { open_device_memory(); }
  ~Opened() { close_device_memory(); }
};

bool on_device(const void* p) { return device && p >= device && p < device + kDeviceBytes; }

void check_range(const char* call, const void* p, size_t bytes) {
  if (!on_device(p)) return;
  char* at = static_cast<char*>(const_cast<void*>(p));
  auto it = live.upper_bound(at);
  if (it == live.begin() || at >= (--it)->first + it->second + (it->second == 0))
    fail("%s: %p is not in a live allocation", call, p);
  if (at + bytes > it->first + it->second) fail("%s: %zu bytes overrun an allocation of %zu bytes", call, bytes, it->second);
}

using Clock = std::chrono::steady_clock;
Clock::time_point* time_of(cudaEvent_t event) { return reinterpret_cast<Clock::time_point*>(event); }

}  // namespace

void open_device_memory() {
  if (opened++ == 0 && device) protect(PROT_READ | PROT_WRITE);
}
void close_device_memory() {
  if (--opened == 0 && device) protect(PROT_NONE);
}

}  // namespace emu

using namespace emu;

extern "C" {

cudaError_t cudaMalloc(void** p, size_t bytes) {
  reserve();
  if (used > kReuseAfter) used = live.empty() ? 0 : size_t(live.rbegin()->first - device) + reserved_for(live.rbegin()->second);
  const size_t needed = reserved_for(bytes);
  if (needed > kDeviceBytes - used) return cudaErrorMemoryAllocation;
  char* memory = device + used;
  used += needed;
  live[memory] = bytes;
  __asan_unpoison_memory_region(memory, bytes);
  race_forget(memory, bytes);
  Opened open;
  std::memset(memory, 0xFF, bytes);
  *p = memory;
  return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
  if (!p) return cudaSuccess;
  const auto it = live.find(static_cast<char*>(p));
  if (it == live.end()) fail("cudaFree: %p is not a live allocation", p);
  __asan_poison_memory_region(p, it->second);
  live.erase(it);
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** p, size_t bytes, cudaStream_t) { return cudaMalloc(p, bytes); }
cudaError_t cudaFreeAsync(void* p, cudaStream_t) { return cudaFree(p); }
cudaError_t cudaMallocHost(void** p, size_t bytes) {
  *p = std::malloc(bytes);
  return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void* p) {
  std::free(p);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind != cudaMemcpyDefault && bytes && (on_device(to) != to_device || on_device(from) != from_device)) {
    fail("cudaMemcpy: kind %d does not fit the pointers", int(kind));
  }
  check_range("cudaMemcpy to", to, bytes);
  check_range("cudaMemcpy from", from, bytes);
  Opened open;
  std::memmove(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy(to, from, bytes, kind);
}
cudaError_t cudaMemset(void* p, int value, size_t bytes) {
  check_range("cudaMemset", p, bytes);
  Opened open;
  std::memset(p, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t) { return cudaMemset(p, value, bytes); }

cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "an error"; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(new char);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete reinterpret_cast<char*>(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new Clock::time_point);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete time_of(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  *time_of(event) = Clock::now();
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t a, cudaEvent_t b) {
  *milliseconds = std::chrono::duration<float, std::milli>(*time_of(b) - *time_of(a)).count();
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* n) {
  *n = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* d) {
  *d = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int d) { return d ? cudaErrorInvalidDevice : cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = 4; break;  // few, so that grid-stride loops are taken
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 << 10; break;
    default: return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

}  // extern "C"
