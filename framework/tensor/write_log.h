// SPDX-License-Identifier: Apache-2.0
// Counts the in-place writes of a thread to each memory.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>

#include "framework/base/guard.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

// Counts this thread's writes while it lives, but for those that a log within it takes.
class WriteLog : LocalGuard {
 public:
  [[nodiscard]] WriteLog() : outer_(std::exchange(open_, this)) {}
  ~WriteLog() {
    open_ = outer_;
    if (!outer_) return;
    for (const auto& [storage, count] : writes_) outer_->writes_[storage] += count;
  }
  // Returns the number of writes to the memory of `t` since the last call for it.
  uint64_t take(const Tensor& t) {
    const auto at = writes_.find(t.storage().get());
    return at == writes_.end() ? 0 : std::exchange(at->second, 0);
  }
  static void note(const Storage* written) {
    if (open_) [[unlikely]]
      ++open_->writes_[written];
  }

 private:
  static inline thread_local constinit WriteLog* open_ = nullptr;
  WriteLog* outer_;
  std::unordered_map<const Storage*, uint64_t> writes_;
};

}  // namespace halfstep
