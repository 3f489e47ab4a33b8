// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime with every call checked: errors, the device, its stream, and page-locked memory.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <string>

namespace halfstep::cuda {

// Throws DeviceError "[cuda] <call> failed: <name>: <text>"; for a build without code for the GPU, one that names both;
// RecordingError if the call is refused because work is being recorded.
void check_cuda(cudaError_t error, const char* call);

// Returns whether an environment variable is set to anything but an empty text and 0.
bool flag_in_environment(const char* name);

// Returns why no GPU can be used, with the remedy; empty if one can: it needs Turing (compute capability 7.5) or later. The first
// call chooses this rank's GPU (choose_gpu) and calls the driver.
const std::string& why_unavailable();
// Returns "NVIDIA H200, sm_90, 132 multiprocessors, 139.8 GiB, driver CUDA 13.0, runtime 13.0".
std::string describe_device();

// Return the first GPU's name and compute capability: 90 for sm_90. Without a GPU: "" and 0.
const std::string& device_name();
int capability();

class Event {
 public:
  // Without a time it is cheaper to record, and a thread that waits for it sleeps, because loaders' threads need the cores.
  [[nodiscard]] explicit Event(bool timed = true);
  ~Event();
  Event(const Event&) = delete;
  void record(cudaStream_t stream);
  void wait() const;  // blocks the host; returns at once if nothing was recorded
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};
// Returns the time between two recorded events that have passed.
float milliseconds(const Event& begin, const Event& end);

// Page-locked host memory.
class Pinned {
 public:
  [[nodiscard]] explicit Pinned(size_t bytes);
  ~Pinned();
  Pinned(const Pinned&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

// Copies from ordinary host memory without waiting for the stream: the bytes go through page-locked slots used in turn, and it
// only waits for a slot whose last transfer is unfinished.
class Uploader {
 public:
  void copy(const void* src, void* dst, size_t bytes, cudaStream_t stream);

 private:
  static constexpr size_t kSlotBytes = size_t(1) << 20;
  struct Slot {
    Pinned memory{kSlotBytes};
    Event done{false};
  };
  std::array<Slot, 8> slots_;
  size_t next_ = 0;
};

}  // namespace halfstep::cuda
