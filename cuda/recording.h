// SPDX-License-Identifier: Apache-2.0
// Recorded work as a CUDA graph: captures the stream, and replays it.
//
// Inputs that may move. While work is captured, every launch of our kernels reports its arguments (LaunchWatcher). A launch with
// an address inside an input's memory is noted, and gets another address by changing the arguments of its node. Other work in the
// graph reports the memory that it uses (uses_fixed): such an input can only be copied to.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "cuda/allocator.h"
#include "cuda/launches.h"
#include "cuda/runtime.h"
#include "framework/backend/backend.h"

namespace halfstep::cuda {

// Memory that replays may find at another address.
struct GraphInput {
  const std::byte *memory, *end;
  const std::byte* address;  // address that the graph reads
  bool fixed = false;        // whether a part of the graph that uses it cannot be redirected to another address

  bool holds(const void* p) const { return p >= memory && p < end; }
};
// A captured launch with addresses of inputs among its arguments.
struct InputLaunch {
  struct Address {
    size_t argument, offset, input;  // address at `offset` in that argument
    ptrdiff_t distance;              // distance from the input's first byte
  };
  cudaGraphNode_t node;
  KernelLaunch launch;  // except its arguments, which are here
  std::vector<std::vector<std::max_align_t>> arguments;
  std::vector<Address> addresses;
};

// A recording in progress: captures from construction to finish or abandon. Used under the backend's lock.
class Recorder final : public LaunchWatcher {
 public:
  [[nodiscard]] Recorder(CudaAllocator& memory, cudaStream_t stream, Uploader& uploader, Generator& generator,
                         std::span<const TensorView> inputs);
  ~Recorder();
  Recorder(const Recorder&) = delete;

  const uint64_t* random_base() const { return random_base_; }
  // Returns the state for a kernel that adds *random_base(). Throws RecordingError for draws of another generator.
  Generator::State relative(Generator::State state) const;

  // Ends the capture. Replays lock `mutex`. The generator is as before the recording.
  std::unique_ptr<Recording> finish(std::recursive_mutex& mutex);
  void abandon() noexcept;

  void keep(std::shared_ptr<void> object) { kept_.push_back(std::move(object)); }  // until the recording is gone

  void launched(const KernelLaunch& launch) override;
  void uses_fixed(const void* p) override;

 private:
  CudaAllocator& memory_;
  cudaStream_t stream_;
  Uploader& uploader_;
  Generator& generator_;
  const Generator::State start_;
  uint64_t* random_base_;
  CudaAllocator::Pool* pool_;
  std::vector<GraphInput> inputs_;
  std::vector<InputLaunch> readers_;
  std::vector<std::shared_ptr<void>> kept_;
};

// Keeps an object until the recording that this thread makes is gone. Does nothing if it makes none.
void keep_in_recording(std::shared_ptr<void> object);

}  // namespace halfstep::cuda
