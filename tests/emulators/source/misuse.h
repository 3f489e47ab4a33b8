// SPDX-License-Identifier: Apache-2.0
// Tables of misuses that must end the program with a report of the emulator. Each runs in a child process.
#pragma once

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "cuda/gpu.cuh"

namespace halfstep::testing {

struct Misuse {
  std::string name, report;  // report: a part of the program's output
  std::function<void()> done;
};

inline std::string said_by_child(const std::function<void()>& done, int& status) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 2);
    try {
      done();
      REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    } catch (...) { _exit(1); }
    _exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char part[512];
  for (ssize_t n; (n = ::read(ends[0], part, sizeof part)) > 0;) text.append(part, size_t(n));
  ::close(ends[0]);
  waitpid(child, &status, 0);
  return text;
}

inline void find_all(const std::vector<Misuse>& table) {
  for (const Misuse& m : table) {
    int status = 0;
    const std::string text = said_by_child(m.done, status);
    CHECK_MESSAGE(WIFEXITED(status), m.name);
    CHECK_MESSAGE(WEXITSTATUS(status) == 99, m.name, ": ", text);
    CHECK_MESSAGE(text.find(m.report) != std::string::npos, m.name, ": ", text);
  }
}

}  // namespace halfstep::testing
