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

namespace halfstep {

// Returns a file's current identity: path, inode, size and times. Empty if there is no such file, or if it changed so recently that
// another change could have the same time.
std::string file_stamp(const std::filesystem::path& path);

// Makes get() remember its results while any Keep<T> lives.
template <class T>
class Keep {
 public:
  [[nodiscard]] Keep() {
    const std::lock_guard lock(state().mutex);
    ++state().living;
  }
  ~Keep() {
    const std::lock_guard lock(state().mutex);
    if (--state().living == 0) state().all.clear();
  }
  Keep(const Keep&) = delete;
  // Returns the earlier result of get() for the key; null: none yet.
  static std::shared_ptr<T> find(const std::string& key) {
    const std::lock_guard lock(state().mutex);
    const auto found = state().all.find(key);
    return found == state().all.end() ? nullptr : found->second;
  }
  // Returns the result of `make`, or its earlier result for the same key. The key "" is not remembered.
  template <class F>
  static std::shared_ptr<T> get(const std::string& key, const F& make) {
    if (std::shared_ptr<T> before = find(key)) return before;
    std::shared_ptr<T> made = make();
    const std::lock_guard lock(state().mutex);
    if (state().living > 0 && !key.empty()) state().all[key] = made;
    return made;
  }

 private:
  struct State {
    ForkMutex mutex;
    size_t living = 0;
    std::map<std::string, std::shared_ptr<T>> all;
  };
  static State& state() {
    static State* const one = new State;  // never destroyed: other static objects may end later
    return *one;
  }
};

}  // namespace halfstep
