// SPDX-License-Identifier: Apache-2.0
// A process of this program that trains a member of a sweep.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace halfstep::app {

// Its output goes to a file. It is in a process group of its own, so that Ctrl-C in a terminal reaches it once, by stop(), and
// Ctrl-Z by pause(). When the process that started it dies, the kernel sends it SIGTERM, on which a run saves and stops.
class MemberProcess {
 public:
  // Throws IoError where the system starts no process.
  [[nodiscard]] MemberProcess(std::vector<std::string> command, const std::filesystem::path& output);
  ~MemberProcess();  // stops it, and waits
  MemberProcess(const MemberProcess&) = delete;

  // Its exit code once it has ended, 128 and the signal that killed it; nothing: it runs. Asked after that, it is the same.
  std::optional<int> ended();
  // Sends SIGTERM. To be called until it has ended: a signal that comes before its program has begun is lost, and a second one
  // changes nothing.
  void stop();
  void pause();  // until resume(); it keeps its memory
  void resume();
  bool is_stopping() const { return stopping_; }

 private:
  pid_t pid_ = -1;
  bool stopping_ = false;
  std::optional<int> code_;
};

}  // namespace halfstep::app
