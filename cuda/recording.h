// SPDX-License-Identifier: Apache-2.0
// Recorded work as a CUDA graph: capture of the stream, and its replay.
//
// Inputs that may move. While work is captured, every launch of a kernel of ours shows its arguments (LaunchWatcher). A launch with
// an address inside an input's memory is noted, and gets another address by changing the arguments of its node. Work that reaches
// the graph otherwise reports the memory it uses (uses_fixed): an input there can only be copied to.
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

// Memory that replays may find elsewhere.
struct Input {
  const std::byte *memory, *end;
  const std::byte* now;  // where the graph reads it
  bool fixed = false;    // something in the graph cannot be redirected to another address

  bool holds(const void* p) const { return p >= memory && p < end; }
};
// A captured launch that has addresses of inputs among its arguments.
struct Reader {
  struct Address {
    size_t argument, offset, input;  // at `offset` in that argument
    ptrdiff_t distance;              // from the input's first byte
  };
  cudaGraphNode_t node;
  Launched launch;  // but for its arguments, which are here
  std::vector<std::vector<std::max_align_t>> arguments;
  std::vector<Address> addresses;
};

// One recording under way: capture runs from construction to finish or abandon. Used under the backend's lock.
class Recorder final : public LaunchWatcher {
 public:
  [[nodiscard]] Recorder(CudaAllocator& memory, cudaStream_t stream, Uploader& uploader, Generator& generator,
                         std::span<const TensorView> inputs);
  ~Recorder();
  Recorder(const Recorder&) = delete;

  const uint64_t* random_base() const { return random_base_; }
  // What a kernel that adds *random_base() is given. Throws RecordingError for draws of another generator.
  Generator::State relative(Generator::State state) const;

  // Replays lock `mutex`. Nothing has been drawn from the generator afterwards.
  std::unique_ptr<Recording> finish(std::recursive_mutex& mutex);
  void abandon() noexcept;

  void keep(std::shared_ptr<void> what) { kept_.push_back(std::move(what)); }  // until the recording is gone

  void launched(const Launched& launch) override;
  void uses_fixed(const void* p) override;

 private:
  CudaAllocator& memory_;
  cudaStream_t stream_;
  Uploader& uploader_;
  Generator& generator_;
  const Generator::State start_;
  uint64_t* random_base_;
  CudaAllocator::Pool* pool_;
  std::vector<Input> inputs_;
  std::vector<Reader> readers_;
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace halfstep::cuda
