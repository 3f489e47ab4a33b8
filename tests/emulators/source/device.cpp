// SPDX-License-Identifier: Apache-2.0
// Properties of the emulated device, and errors.
#include <cstdio>

#include "tests/emulators/source/runtime.h"

namespace emu {
namespace {

constexpr int kSharedBytes = 227 << 10;
thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

cudaError_t set_error(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

}  // namespace emu

using namespace emu;

extern "C" {

cudaError_t cudaGetDeviceCount(int* n) {
  *n = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* d) {
  *d = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int d) { return d ? set_error(cudaErrorInvalidDevice) : cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = options().processors; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = options().threads; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrComputeCapabilityMajor: *value = options().capability / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = options().capability % 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = kSharedBytes; break;
    case cudaDevAttrL2CacheSize: *value = 60 << 20; break;
    default: return set_error(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (device) return set_error(cudaErrorInvalidDevice);
  *p = {};
  std::snprintf(p->name, sizeof p->name, "emulated device");
  p->totalGlobalMem = options().memory;
  p->multiProcessorCount = options().processors;
  p->major = options().capability / 10;
  p->minor = options().capability % 10;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsPerMultiProcessor = options().threads;
  p->sharedMemPerBlock = 48 << 10;
  p->sharedMemPerBlockOptin = kSharedBytes;
  p->l2CacheSize = 60 << 20;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(cudaError_t error) {
#define NAME(e) \
  case e: return #e
  switch (error) {
    NAME(cudaSuccess);
    NAME(cudaErrorInvalidValue);
    NAME(cudaErrorInvalidDevice);
    NAME(cudaErrorMemoryAllocation);
    NAME(cudaErrorNotReady);
    NAME(cudaErrorIllegalState);
    NAME(cudaErrorCapturedEvent);
    NAME(cudaErrorStreamCaptureUnsupported);
    NAME(cudaErrorStreamCaptureInvalidated);
    NAME(cudaErrorStreamCaptureImplicit);
    NAME(cudaErrorStreamCaptureUnjoined);
    NAME(cudaErrorNoDevice);
    NAME(cudaErrorInsufficientDriver);
    NAME(cudaErrorNoKernelImageForDevice);
    NAME(cudaErrorStreamCaptureWrongThread);
    default: return "unrecognized error code";
  }
#undef NAME
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    default: return cudaGetErrorName(error);
  }
}

}  // extern "C"
