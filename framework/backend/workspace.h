// SPDX-License-Identifier: Apache-2.0
// Temporary memory for one call, from the device's caching allocator, counted as workspace.
#pragma once

#include <utility>
#include <vector>

#include "framework/base/guard.h"
#include "framework/tensor/memory.h"

namespace halfstep {

// While it lives, this thread's CPU kernels compute and read nothing: a product or convolution only chooses its algorithm, and
// counts its workspace in the statistics of Device::meta. So a step on that device has the same peak as on the CPU.
class WorkspacePlan : LocalGuard {
 public:
  [[nodiscard]] WorkspacePlan() : outer_(std::exchange(open_, this)) {}
  ~WorkspacePlan() { open_ = outer_; }
  static WorkspacePlan* open() { return open_; }

  // Keeps allocations until its end: those of threads that would run at the same time, but are counted one after another here.
  class AtOnce : LocalGuard {
   public:
    [[nodiscard]] explicit AtOnce(WorkspacePlan& plan)
        : plan_(plan), outer_(std::exchange(plan.keeps_, true)), first_(plan.kept_.size()) {}
    ~AtOnce() {
      for (; plan_.kept_.size() > first_; plan_.kept_.pop_back()) allocator(Device::meta).release(plan_.kept_.back());
      plan_.keeps_ = outer_;
    }

   private:
    WorkspacePlan& plan_;
    bool outer_;
    size_t first_;
  };
  // Keeps the block if there is an AtOnce, which will release it. Returns whether it did; else the caller releases the block.
  bool try_keep(void* block) {
    if (keeps_) kept_.push_back(block);
    return keeps_;
  }

 private:
  static inline thread_local constinit WorkspacePlan* open_ = nullptr;
  WorkspacePlan* outer_;
  bool keeps_ = false;
  std::vector<void*> kept_;
};

// A block of temporary memory. On CUDA the allocator may give it to others while queued kernels still use it: later work runs after
// them.
class Workspace {
 public:
  [[nodiscard]] Workspace(Device device, size_t bytes)
      : allocator_(allocator(WorkspacePlan::open() ? Device::meta : device)),
        data_(bytes > 0 ? allocator_.allocate(bytes, MemoryTag::workspace) : nullptr) {}
  ~Workspace() {
    if (!data_) return;
    if (WorkspacePlan* const plan = WorkspacePlan::open(); !plan || !plan->try_keep(data_)) allocator_.release(data_);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  char* data() const { return static_cast<char*>(data_); }

 private:
  Allocator& allocator_;
  void* data_;
};

}  // namespace halfstep
