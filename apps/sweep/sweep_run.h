// SPDX-License-Identifier: Apache-2.0
// Trains the members of a sweep, each in a process of its own.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "apps/sweep/members.h"

namespace halfstep::app {

struct SweepOptions {
  std::filesystem::path program;  // has the command `train`
  int jobs = 1;                   // number of members at a time
  int threads = 1;                // for all of them together
  bool retry = false;             // train members whose last start failed too
  std::function<void(const std::string&)> print_line;  // for lines about the members
};

// Returns the members to train: not finished and, without `retry`, not failed.
std::vector<const SweepMember*> members_to_train(const SweepMembers& members, bool retry);

// Trains until all have ended, or until a stop signal (apps/terminal/signals.h): then running members save and stop. A failing
// member does not stop the others. Waits at most a minute for members that another process still trains, as after a killed sweep;
// then throws ConfigError.
void train_members(const SweepMembers& members, const SweepOptions& options);

}  // namespace halfstep::app
