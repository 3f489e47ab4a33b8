// SPDX-License-Identifier: Apache-2.0
// Trains the members of a sweep, each in a process of its own.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "apps/sweep/members.h"

namespace halfstep::app {

struct SweepOptions {
  std::filesystem::path program;  // that has the command `train`
  int jobs = 1;                   // members at a time
  int threads = 1;                // of all of them together
  bool retry = false;             // also members whose last start failed
  std::function<void(const std::string&)> say;
};

// Those that are to be trained: neither finished nor, without `retry`, failed.
std::vector<const SweepMember*> members_to_train(const SweepMembers& members, bool retry);

// Until all have ended, or a stop signal (apps/terminal/signals.h): then those that run save and stop. A member that fails does not
// stop the others. Members that another process still trains, as after a sweep that was killed, are waited for, at most a minute;
// then ConfigError is thrown.
void train_members(const SweepMembers& members, const SweepOptions& options);

}  // namespace halfstep::app
