// SPDX-License-Identifier: Apache-2.0
// Does a config train to the same bits however it is run? The first steps are computed several times: at once, stopped and resumed,
// under a witness, replayed from a checkpoint, with data workers, recorded, by several ranks, and on other numbers of threads.
// After each step all states must be equal.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "apps/examine/state_hashes.h"
#include "framework/backend/backend.h"

namespace halfstep::app {

struct VerifyOptions {
  int64_t steps = 24;  // at least 2
  int ranks = 2;
  std::filesystem::path program = {};                     // that runs as a rank: `PROGRAM train CONFIG`; empty: no ranks are tried
  std::function<void(const std::string&)> say = nullptr;  // lines for the user
};

struct Check {
  enum class Result : uint8_t { equal, differs, not_run };
  std::string name;  // "stopped and resumed"
  Result result = Result::equal;
  int64_t steps = 0;   // that were compared
  std::string why;     // it was not run
  std::string note;    // what else there is to say
  bool judged = true;  // false: it may differ
  std::optional<StateDifference> difference = {};
  std::string place = {};  // where it comes from: "forward of mul in odd (kernel 7 of 40)"
};

struct Certificate {
  std::vector<Check> checks;
  StateTrace states;  // of the run that all are compared with
  bool holds() const;
};

// Throws as training does, and ConfigError for options outside of their range. Leaves nothing behind.
Certificate verify(const Config& config, const VerifyOptions& options);

// The number of threads, which is put back.
struct ThreadsScope {
  [[nodiscard]] explicit ThreadsScope(int threads) : before(num_threads()) { set_num_threads(threads); }
  ~ThreadsScope() { set_num_threads(before); }
  ThreadsScope(const ThreadsScope&) = delete;
  int before;
};

// Ranks against the same number of micro-batches in one process. `scratch`: a folder for what they write.
Check verify_ranks(const Config& config, const VerifyOptions& options, const std::filesystem::path& scratch);

// "time travel           equal, 12 steps"
std::string text_of(const Check& check);
Json certificate_json(const Certificate& certificate);

}  // namespace halfstep::app
