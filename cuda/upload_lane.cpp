// SPDX-License-Identifier: Apache-2.0
#include "cuda/upload_lane.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace halfstep::cuda {

CudaUploadLane::CudaUploadLane(cudaStream_t work, std::recursive_mutex& mutex) : work_(work), work_mutex_(mutex) {
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
}

CudaUploadLane::~CudaUploadLane() {
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

CudaUploadLane::Slot& CudaUploadLane::take_slot() {
  std::unique_lock lock(mutex_);
  filled_.wait(lock, [&] { return !slots_[next_slot_ % slots_.size()].filling; });
  Slot& slot = slots_[next_slot_++ % slots_.size()];
  slot.filling = true;
  lock.unlock();
  try {
    slot.done.wait();
  } catch (...) {  // the device has failed: other threads learn it from the same slot
    give_back(slot);
    throw;
  }
  return slot;
}

void CudaUploadLane::give_back(Slot& slot) {
  {
    const std::lock_guard lock(mutex_);
    slot.filling = false;
  }
  filled_.notify_all();
}

std::unique_ptr<Event> CudaUploadLane::take_event() {
  if (idle_.empty()) return std::make_unique<Event>(false);
  std::unique_ptr<Event> event = std::move(idle_.back());
  idle_.pop_back();
  return event;
}

// Orders the lane's next copies after the work queued now. Nothing is being recorded: a recording would hold the lock.
void CudaUploadLane::wait_for_work() {
  const std::lock_guard work_lock(work_mutex_);
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Event> queued = take_event();
  queued->record(work_);
  check_cuda(cudaStreamWaitEvent(stream_, queued->get(), 0), "cudaStreamWaitEvent");
  idle_.push_back(std::move(queued));
}

uint64_t CudaUploadLane::send(const void* src, void* dst, size_t bytes) {
  wait_for_work();
  for (size_t done = 0; done < bytes;) {
    Slot& slot = take_slot();
    const size_t part = std::min(bytes - done, kSlotBytes);
    std::memcpy(slot.memory.data(), static_cast<const char*>(src) + done, part);
    cudaError_t error;
    {
      const std::lock_guard lock(mutex_);
      error = cudaMemcpyAsync(static_cast<char*>(dst) + done, slot.memory.data(), part, cudaMemcpyHostToDevice, stream_);
      if (error == cudaSuccess) error = cudaEventRecord(slot.done.get(), stream_);
      slot.filling = false;
    }
    filled_.notify_all();
    if (error != cudaSuccess) cudaStreamSynchronize(stream_);  // `dst` is freed: copies in progress to it must end before
    check_cuda(error, "a copy to the device");
    done += part;
  }
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Event> event = take_event();
  event->record(stream_);
  sent_[++copies_] = std::move(event);
  return copies_;
}

void CudaUploadLane::receive(uint64_t copy) {
  const std::lock_guard work_lock(work_mutex_);
  const std::lock_guard lock(mutex_);
  const auto it = sent_.find(copy);
  if (it == sent_.end()) return;
  check_cuda(cudaStreamWaitEvent(work_, it->second->get(), 0), "cudaStreamWaitEvent");
  idle_.push_back(std::move(it->second));
  sent_.erase(it);
}

}  // namespace halfstep::cuda
