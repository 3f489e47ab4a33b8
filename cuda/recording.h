// Recorded work as a CUDA graph: capture of the stream, and its replay.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>

#include "cuda/allocator.h"
#include "cuda/runtime.h"
#include "framework/backend/backend.h"

namespace halfstep::cuda {

// One recording under way: capture runs from construction to finish or abandon. Used under the backend's lock.
class Recorder {
 public:
  Recorder(CudaAllocator& memory, cudaStream_t stream, Uploader& uploader, Generator& generator);
  Recorder(const Recorder&) = delete;

  const uint64_t* random_base() const { return random_base_; }
  // What a kernel that adds *random_base() is given. Throws RecordingError for draws of another generator.
  Generator::State relative(Generator::State state) const;

  // `mutex` is what replays lock. Nothing has been drawn from the generator afterwards.
  std::unique_ptr<Recording> finish(std::recursive_mutex& mutex);
  void abandon() noexcept;

 private:
  CudaAllocator& memory_;
  cudaStream_t stream_;
  Uploader& uploader_;
  Generator& generator_;
  const Generator::State start_;
  uint64_t* random_base_;
  CudaAllocator::Pool* pool_;
};

}  // namespace halfstep::cuda
