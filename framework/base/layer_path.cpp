// SPDX-License-Identifier: Apache-2.0
#include "framework/base/layer_path.h"

#include <functional>
#include <mutex>
#include <set>

#include "framework/base/fork_mutex.h"

namespace halfstep {

const std::string* kept_forever(std::string_view text) {
  static constinit ForkMutex mutex;
  const std::lock_guard lock(mutex);
  static auto* const texts = new std::set<std::string, std::less<>>;
  const auto it = texts->find(text);
  return &*(it != texts->end() ? it : texts->emplace(text).first);
}

}  // namespace halfstep
