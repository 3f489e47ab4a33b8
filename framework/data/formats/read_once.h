// SPDX-License-Identifier: Apache-2.0
// Remembers what was read from files, so that several uses read a file once.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "framework/base/fork_mutex.h"
#include "framework/base/guard.h"

namespace halfstep {

// Returns a file's current identity: path, inode, size and times. Empty if there is no such file, or if it changed so recently that
// another change could have the same time.
std::string file_stamp(const std::filesystem::path& path);

// Results of reading files, by key. While any ReadCache<T> lives, get() remembers them; otherwise it makes them at each call.
template <class T>
class ReadCache : LocalGuard {
 public:
  [[nodiscard]] ReadCache() {
    const std::lock_guard lock(state().mutex);
    ++state().users;
  }
  ~ReadCache() {
    const std::lock_guard lock(state().mutex);
    if (--state().users == 0) state().results.clear();
  }
  // Returns the earlier result of get() for the key; null: none yet.
  static std::shared_ptr<T> find(const std::string& key) {
    const std::lock_guard lock(state().mutex);
    const auto found = state().results.find(key);
    return found == state().results.end() ? nullptr : found->second;
  }
  // Returns the result of `make`, or its earlier result for the same key. The key "" is not remembered.
  // Two threads that ask for a new key at the same time both call `make`.
  template <class F>
  static std::shared_ptr<T> get(const std::string& key, const F& make) {
    if (std::shared_ptr<T> earlier = find(key)) return earlier;
    std::shared_ptr<T> made = make();
    const std::lock_guard lock(state().mutex);
    if (state().users > 0 && !key.empty()) state().results[key] = made;
    return made;
  }

 private:
  struct State {
    ForkMutex mutex;
    size_t users = 0;                                   // living objects
    std::map<std::string, std::shared_ptr<T>> results;  // by key
  };
  static State& state() {
    static State* const instance = new State;  // never destroyed: other static objects may end later
    return *instance;
  }
};

}  // namespace halfstep
