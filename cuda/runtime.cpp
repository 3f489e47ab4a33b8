// SPDX-License-Identifier: Apache-2.0
#include "cuda/runtime.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "cuda/rank_gpu.h"
#include "framework/base/check.h"
#include "framework/base/number_text.h"

namespace halfstep::cuda {
namespace {

std::string version_text(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

#ifndef HALFSTEP_CUDA_CODE  // set by cuda/CMakeLists.txt: "sm_90, PTX of compute_75"
#define HALFSTEP_CUDA_CODE "unknown architectures"
#endif

constexpr int kLeastCapability = 75;

struct FirstGpu {
  std::string name;
  int capability = 0;
};
const FirstGpu& first_gpu() {
  static const FirstGpu gpu = [] {
    cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, 0) == cudaSuccess) return FirstGpu{p.name, 10 * p.major + p.minor};
    cudaGetLastError();
    return FirstGpu{};
  }();
  return gpu;
}
std::string name_and_capability() {
  const int c = capability();
  return device_name() + " (compute capability " + std::to_string(c / 10) + "." + std::to_string(c % 10) + ")";
}

// Returns whether the module lacks machine code for this GPU and PTX that the driver can compile for it.
bool lacks_image(cudaError_t error) {
  return error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidPtx || error == cudaErrorUnsupportedPtxVersion ||
         error == cudaErrorJitCompilerNotFound || error == cudaErrorJitCompilationDisabled;
}

// Chooses this rank's GPU. Returns why no GPU can be used, instead of throwing, because the caller decides what to do without one.
std::string find_reason() {
  choose_gpu();
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0) return "no NVIDIA driver was found\nhelp: install the driver, or compute on the cpu";
    return "the NVIDIA driver serves CUDA " + version_text(driver) + ", but halfstep was built with CUDA " + version_text(runtime) +
           "\nhelp: update the driver, or build with an older toolkit";
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0))
    return "the NVIDIA driver shows no GPU\nhelp: look at nvidia-smi and CUDA_VISIBLE_DEVICES, or compute on the cpu";
  if (error != cudaSuccess) return std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error);
  if (capability() > 0 && capability() < kLeastCapability)
    return name_and_capability() + " is too old: halfstep computes on GPUs of compute capability 7.5 (Turing) and later" +
           "\nhelp: choose another GPU with CUDA_VISIBLE_DEVICES, or compute on the cpu";
  return "";
}

}  // namespace

void check_cuda(cudaError_t error, const char* call) {
  if (error == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();  // so that the next call does not report it again
  if (error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorStreamCaptureWrongThread)  // everything that capture refuses
    fail<RecordingError>("record", call, " cannot be recorded for replay: ", cudaGetErrorName(error), ": ",
                         cudaGetErrorString(error));
  if (lacks_image(error)) {
    fail<DeviceError>("cuda", "this build has no code for ", name_and_capability(), ": it was compiled to " HALFSTEP_CUDA_CODE " (",
                      cudaGetErrorName(error), ')',
                      Help{"build with -DCMAKE_CUDA_ARCHITECTURES=" + std::to_string(capability()) +
                           ", or without it and without -DHALFSTEP_CUDA_PTX=OFF for every GPU from Turing on"});
  }
  fail<DeviceError>("cuda", call, " failed: ", cudaGetErrorName(error), ": ", cudaGetErrorString(error));
}

bool flag_in_environment(const char* name) {
  const char* const value = std::getenv(name);
  return value && *value && std::string_view(value) != "0";
}

const std::string& why_unavailable() {
  static const std::string reason = find_reason();
  return reason;
}

const std::string& device_name() { return first_gpu().name; }
int capability() { return first_gpu().capability; }

std::string describe_device() {
  cudaDeviceProp p;
  int driver = 0, runtime = 0;
  check_cuda(cudaGetDeviceProperties(&p, 0), "cudaGetDeviceProperties");
  check_cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  check_cuda(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  return joined(p.name, ", sm_", p.major, p.minor, ", ", p.multiProcessorCount, " multiprocessors, ",
                fixed_text(double(p.totalGlobalMem) / double(1 << 30), 1), " GiB, driver CUDA ", version_text(driver), ", runtime ",
                version_text(runtime));
}

Event::Event(bool timed) {
  const unsigned flags = timed ? cudaEventDefault : cudaEventDisableTiming | cudaEventBlockingSync;
  check_cuda(cudaEventCreateWithFlags(&event_, flags), "cudaEventCreate");
}
Event::~Event() { cudaEventDestroy(event_); }
void Event::record(cudaStream_t stream) { check_cuda(cudaEventRecord(event_, stream), "cudaEventRecord"); }
void Event::wait() const { check_cuda(cudaEventSynchronize(event_), "cudaEventSynchronize"); }

float milliseconds(const Event& begin, const Event& end) {
  float ms = 0;
  check_cuda(cudaEventElapsedTime(&ms, begin.get(), end.get()), "cudaEventElapsedTime");
  return ms;
}

Pinned::Pinned(size_t bytes) { check_cuda(cudaMallocHost(&data_, bytes), "cudaMallocHost"); }
Pinned::~Pinned() { cudaFreeHost(data_); }

void Uploader::copy(const void* src, void* dst, size_t bytes, cudaStream_t stream) {
  for (size_t done = 0; done < bytes;) {
    Slot& slot = slots_[next_++ % slots_.size()];
    const size_t part = std::min(bytes - done, kSlotBytes);
    slot.done.wait();
    std::memcpy(slot.memory.data(), static_cast<const char*>(src) + done, part);
    check_cuda(cudaMemcpyAsync(static_cast<char*>(dst) + done, slot.memory.data(), part, cudaMemcpyHostToDevice, stream),
               "cudaMemcpyAsync to the device");
    slot.done.record(stream);
    done += part;
  }
}

}  // namespace halfstep::cuda
