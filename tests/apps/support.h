// SPDX-License-Identifier: Apache-2.0
// Temporary folders, and the halfstep program as a child process.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "apps/schema/json.h"
#include "tests/support/source_dir.h"

namespace halfstep::app::testing {

namespace fs = std::filesystem;

class TempDir {
 public:
  TempDir() {
    std::string name = (fs::temp_directory_path() / "halfstep-apps-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TempDir() { fs::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  fs::path operator/(const std::string& name) const { return path_ / name; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

inline std::string read(const fs::path& p) {
  std::ifstream in(p);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}
inline fs::path write(const fs::path& p, const std::string& text) {
  std::ofstream(p) << text;
  return p;
}

inline fs::path program() { return fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "halfstep"; }
inline fs::path configs() { return fs::path(halfstep_source_dir()) / "configs"; }

struct Ran {
  int code;
  std::string out, err;
  Json json() const {  // parses the last line of stdout
    std::string line = out.substr(0, out.find_last_not_of('\n') + 1);
    if (const size_t cut = line.rfind('\n'); cut != std::string::npos) line = line.substr(cut + 1);
    return Json::parse(line);
  }
};
// Runs the program in `dir` with `arguments`, as a shell splits them.
inline Ran run(const TempDir& dir, const std::string& arguments) {
  const std::string command =
      "cd '" + dir.path().string() + "' && '" + program().string() + "' " + arguments + " >out.txt 2>err.txt </dev/null";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(dir / "out.txt"), read(dir / "err.txt")};
}

// The program running in parallel to the test; its output goes to child.txt.
class Child {
 public:
  Child(const TempDir& dir, const std::string& arguments) : dir_(dir), pid_(fork()) {
    if (pid_ != 0) return;
    const std::string command =
        "cd '" + dir.path().string() + "' && exec '" + program().string() + "' " + arguments + " >child.txt 2>&1 </dev/null";
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(99);
  }
  ~Child() { end(SIGKILL); }
  Child(const Child&) = delete;

  // Waits until `done()` or the program's end. Returns false if it ended, or if a minute passed.
  template <class F>
  bool until(F done) {
    for (int i = 0; i < 60000 && kill(pid_, 0) == 0; ++i) {
      if (done()) return true;
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) == pid_) return ended(status), false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  // Returns whether it has a handler for the signal.
  bool catches(int signal) const {
    std::error_code error;
    if (fs::read_symlink("/proc/" + std::to_string(pid_) + "/exe", error) != program()) return false;  // before exec
    const std::string status = read("/proc/" + std::to_string(pid_) + "/status");
    const size_t at = status.find("SigCgt:");
    return at != std::string::npos && (std::stoull(status.substr(at + 7), nullptr, 16) >> (signal - 1) & 1);
  }
  pid_t id() const { return pid_; }
  void send(int signal) const {
    if (pid_ > 0) kill(pid_, signal);
  }
  // Waits, and returns its exit code, or minus the signal that killed it. Kills it when it does not end for ten minutes.
  int wait() {
    for (int minute = 0; minute < 10 && pid_ > 0; ++minute) until([] { return false; });
    send(SIGKILL);
    int status = 0;
    if (pid_ > 0 && waitpid(pid_, &status, 0) == pid_) ended(status);
    return code_;
  }
  int end(int signal) {
    send(signal);
    return wait();
  }
  std::string output() const { return read(dir_ / "child.txt"); }

 private:
  void ended(int status) {
    pid_ = -1;
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  const TempDir& dir_;
  pid_t pid_;
  int code_ = 0;
};

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace halfstep::app::testing
