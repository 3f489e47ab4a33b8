// SPDX-License-Identifier: Apache-2.0
#include "apps/sweep/member_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "framework/base/check.h"

namespace halfstep::app {
namespace {

constexpr int kNotStarted = 127;      // the shells' code for a program that cannot be started
constexpr std::chrono::milliseconds kExitPollInterval{20};

// Runs in the new process, where only async-signal-safe calls are allowed.
[[noreturn]] void run_program_in_child(char* const* words, const char* output, pid_t parent, const sigset_t& signals) {
  signal(SIGTERM, SIG_DFL);  // the handlers of the parent are not for this process
  sigprocmask(SIG_SETMASK, &signals, nullptr);
  setpgid(0, 0);
  const bool dies_with_parent = prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && getppid() == parent;
  const int in = open("/dev/null", O_RDONLY), out = open(output, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (!dies_with_parent || in < 0 || out < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) _exit(kNotStarted);
  if (in > 2) close(in);
  if (out > 2) close(out);
  execv(words[0], words);
  _exit(kNotStarted);
}

}  // namespace

MemberProcess::MemberProcess(std::vector<std::string> command, const std::filesystem::path& output) {
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  const pid_t parent = getpid();
  // A request to stop that comes before the child has its own way to handle it waits until then.
  sigset_t stop_request, signals;
  sigemptyset(&stop_request);
  sigaddset(&stop_request, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stop_request, &signals);
  pid_ = fork();
  if (pid_ == 0) run_program_in_child(words.data(), output.c_str(), parent, signals);
  pthread_sigmask(SIG_SETMASK, &signals, nullptr);
  check<IoError>(pid_ > 0, "sweep", "cannot start a process: ", std::strerror(errno));
}

MemberProcess::~MemberProcess() {
  for (stop(); !exit_code();) std::this_thread::sleep_for(kExitPollInterval);
}

std::optional<int> MemberProcess::exit_code() {
  int status = 0;
  if (!exit_code_ && waitpid(pid_, &status, WNOHANG) == pid_)
    exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : kKilledBySignal + WTERMSIG(status);
  return exit_code_;
}

// Signals once: a process that is watched while it ends, by a debugger or a sanitizer, would wait without end for the stop that
// each SIGCONT takes back.
void MemberProcess::stop() {
  if (is_stopping_) return;
  is_stopping_ = true;
  if (!exit_code_) kill(pid_, SIGTERM);
  resume();  // a paused process would not handle it
}

// Sends SIGSTOP: orphaned process groups of a terminal ignore SIGTSTP.
void MemberProcess::pause() {
  if (!exit_code_) kill(pid_, SIGSTOP);
}

void MemberProcess::resume() {
  if (!exit_code_) kill(pid_, SIGCONT);
}

}  // namespace halfstep::app
