// SPDX-License-Identifier: Apache-2.0
// A process of this program that trains a member of a sweep.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace halfstep::app {

// Its output goes to a file. It has its own process group, so that Ctrl-C in a terminal reaches it once, by stop(), and Ctrl-Z by
// pause(). When its parent dies, the kernel sends it SIGTERM, on which a run saves and stops.
class MemberProcess {
 public:
  static constexpr int kKilledBySignal = 128;  // plus the signal: the exit code of a killed process

  // Throws IoError if the process cannot be started.
  [[nodiscard]] MemberProcess(std::vector<std::string> command, const std::filesystem::path& output);
  ~MemberProcess();  // stops it and waits
  MemberProcess(const MemberProcess&) = delete;

  // Returns its exit code once it has ended, or kKilledBySignal plus the signal that killed it; nothing while it runs. Later calls
  // return the same.
  std::optional<int> exit_code();
  // Sends SIGTERM and wakes a paused process; later calls do nothing. A process whose program has not begun ends at once.
  void stop();
  void pause();  // stops it until resume(); it keeps its memory
  void resume();
  bool is_stopping() const { return is_stopping_; }  // whether stop() was called

 private:
  pid_t pid_ = -1;
  bool is_stopping_ = false;
  std::optional<int> exit_code_;
};

}  // namespace halfstep::app
