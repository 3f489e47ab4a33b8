// SPDX-License-Identifier: Apache-2.0
// Tests whether a config trains to the same bits in all ways of running it. Computes the first steps several times: at once,
// stopped and resumed, under a witness, replayed from a checkpoint, with data workers, recorded, by several ranks, and on other
// numbers of threads. After each step all states must be equal.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "apps/examine/state_hashes.h"
#include "framework/backend/backend.h"
#include "framework/base/guard.h"

namespace halfstep::app {

struct VerifyOptions {
  int64_t steps = 24;  // at least 2
  int ranks = 2;
  std::filesystem::path program = {};                            // runs as a rank: `PROGRAM train CONFIG`; empty: no ranks
  std::function<void(const std::string&)> print_line = nullptr;  // lines for the user
};

struct Check {
  enum class Result : uint8_t { equal, differs, not_run };
  std::string name;  // "stopped and resumed"
  Result result = Result::equal;
  int64_t steps = 0;   // number of compared steps
  std::string why;     // reason for not running it
  std::string note;    // remarks
  bool judged = true;  // false: a difference is allowed
  std::optional<StateDifference> difference = {};
  std::string origin = {};  // origin of the difference: "forward of mul in odd (kernel 7 of 40)"
};

struct Certificate {
  std::vector<Check> checks;
  StateTrace states;  // of the reference run
  bool holds() const;
};

// Throws as training does, and ConfigError for options out of range. Removes all that it writes.
Certificate verify(const Config& config, const VerifyOptions& options);

// Sets the number of threads, and restores it.
struct ThreadsScope : LocalGuard {
  [[nodiscard]] explicit ThreadsScope(int threads) : before(num_threads()) { set_num_threads(threads); }
  ~ThreadsScope() { set_num_threads(before); }
  int before;
};

// Compares ranks with the same number of micro-batches in one process. `scratch`: a folder for their files.
Check verify_ranks(const Config& config, const VerifyOptions& options, const std::filesystem::path& scratch);

// Returns "time travel           equal, 12 steps".
std::string text_of(const Check& check);
Json certificate_json(const Certificate& certificate);

}  // namespace halfstep::app
