// SPDX-License-Identifier: Apache-2.0
// The layer of a model that this thread computes: for errors of the backward pass and for observers.
#pragma once

#include <string>
#include <string_view>

#include "framework/base/guard.h"

namespace halfstep {

// Returns a copy of `text` that is never freed, one for all equal texts: a graph may outlive the model whose layers it names.
const std::string* kept_forever(std::string_view text);

// Sets the thread's layer while it lives; null: no change.
class LayerScope : LocalGuard {
 public:
  [[nodiscard]] explicit LayerScope(const std::string* path) : saved_(current_) {
    if (path) current_ = path;
  }
  ~LayerScope() { current_ = saved_; }
  static const std::string* current() { return current_; }  // "encoder.0.linear1"; null outside of any

 private:
  static inline thread_local constinit const std::string* current_ = nullptr;
  const std::string* saved_;
};

}  // namespace halfstep
