// SPDX-License-Identifier: Apache-2.0
// Copies from the host on a separate stream.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/runtime.h"
#include "framework/backend/backend.h"

namespace halfstep::cuda {

// A copy goes through slots of pinned memory, so that one part is filled while others are in transfer. Several threads may send at
// a time. Events keep the order: a copy waits for what was queued when it was sent, because that may have used its memory; the work
// after receive() waits for the copy.
class CudaUploadLane final : public UploadLane {
 public:
  // `work`: the stream that uses the copies, used under `mutex`.
  CudaUploadLane(cudaStream_t work, std::recursive_mutex& mutex);
  ~CudaUploadLane() override;

  uint64_t send(const void* src, void* dst, size_t bytes) override;
  void receive(uint64_t copy) override;

 private:
  static constexpr size_t kSlotBytes = size_t(4) << 20;
  struct Slot {
    Pinned memory{kSlotBytes};
    Event done{false};  // event of its last copy
    bool filling = false;
  };
  using Events = std::vector<std::unique_ptr<Event>>;

  Slot& take_slot();
  void give_back(Slot& slot);  // unused
  void wait_for_work();
  std::unique_ptr<Event> take_event();

  const cudaStream_t work_;
  std::recursive_mutex& work_mutex_;
  cudaStream_t stream_ = nullptr;
  std::mutex mutex_;  // for all below and what is queued on stream_; may be locked under work_mutex_, not the other way round
  std::condition_variable filled_;
  std::array<Slot, 8> slots_;
  size_t next_slot_ = 0;
  Events idle_;
  std::map<uint64_t, std::unique_ptr<Event>> sent_;  // not yet received
  uint64_t copies_ = 0;
};

}  // namespace halfstep::cuda
