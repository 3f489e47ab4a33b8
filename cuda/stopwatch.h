// SPDX-License-Identifier: Apache-2.0
// Times of a stream's work by events, and its kernels by CUPTI.
#pragma once

#include <deque>
#include <mutex>
#include <vector>

#include "cuda/kernel_trace.h"
#include "cuda/kernels/kernels.h"
#include "cuda/runtime.h"
#include "framework/backend/backend.h"
#include "framework/base/check.h"

namespace halfstep::cuda {

class CudaStopwatch final : public Stopwatch {
 public:
  CudaStopwatch(const Queue& queue, std::recursive_mutex& mutex) : queue_(queue), mutex_(mutex) {}

  void mark() override {
    const std::lock_guard lock(mutex_);
    check<RecordingError>(!queue_.recording, "ProfileScope", "calls that are being recorded cannot be timed",
                          Help{"switch recording off: performance.cuda_graph: false"});
    events_.emplace_back().record(queue_.stream);
  }
  std::vector<double> seconds() override {
    std::vector<double> out;
    if (events_.empty()) return out;
    events_.back().wait();
    for (const Event& e : events_) out.push_back(double(milliseconds(events_.front(), e)) * 1e-3);
    return out;
  }

  void enter(int span) noexcept override { trace_.enter(span); }
  void leave() noexcept override { trace_.leave(); }
  std::vector<DeviceWork> work() override {
    {
      const std::lock_guard lock(mutex_);
      Event last;
      last.record(queue_.stream);
      last.wait();
    }
    return trace_.read();
  }
  const std::string& no_work() const override { return trace_.fault(); }

 private:
  const Queue& queue_;
  std::recursive_mutex& mutex_;
  std::deque<Event> events_;
  KernelTrace trace_;
};

}  // namespace halfstep::cuda
