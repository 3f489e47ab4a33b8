// Memory for the time of one call, from the device's caching allocator, counted as workspace.
#pragma once

#include "framework/tensor/memory.h"

namespace halfstep {

// On CUDA the block may be handed out again while kernels that use it are queued: what comes later runs behind them.
class Workspace {
 public:
  Workspace(Device device, size_t bytes)
      : allocator_(allocator(device)), data_(bytes > 0 ? allocator_.allocate(bytes, MemoryTag::workspace) : nullptr) {}
  ~Workspace() {
    if (data_) allocator_.release(data_);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  char* data() const { return static_cast<char*>(data_); }

 private:
  Allocator& allocator_;
  void* data_;
};

}  // namespace halfstep
