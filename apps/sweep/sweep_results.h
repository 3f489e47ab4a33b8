// SPDX-License-Identifier: Apache-2.0
// What a sweep found: its members with their values and endings, the best first.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "apps/sweep/members.h"

namespace halfstep::app {

struct SweepResult {
  const SweepMember* member;
  MemberState state;
};

// Finished members before others, those with the better monitored value first.
std::vector<SweepResult> sweep_results(const SweepMembers& members);

// width: of the terminal; 0: no limit.
void print_results(std::ostream& out, const SweepFile& sweep, const SweepMembers& members, const std::vector<SweepResult>& results,
                   size_t width = 0);
// A line for each setting of the other keys, where the sweep is over seeds or folds: mean and standard deviation of the monitored
// value.
void print_spreads(std::ostream& out, const SweepFile& sweep, const SweepMembers& members, const std::vector<SweepResult>& results);
// With the members in the order of `results`; what is not known is null.
Json results_json(const SweepFile& sweep, const SweepMembers& members, const std::vector<SweepResult>& results);

}  // namespace halfstep::app
