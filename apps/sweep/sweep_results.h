// SPDX-License-Identifier: Apache-2.0
// Results of a sweep: its members with their values and endings, best first.
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

// Returns finished members first, sorted by the monitored value, best first.
std::vector<SweepResult> sweep_results(const SweepMembers& members);

// Returns a line for each file of data that changed between the trainings of these members.
std::vector<std::string> changed_files(const std::vector<SweepResult>& results);

// Prints a table of members. width: of the terminal; 0: no limit.
void print_results(std::ostream& out, const SweepFile& sweep, const SweepMembers& members, const std::vector<SweepResult>& results,
                   size_t width = 0);
// Prints mean and standard deviation of the monitored value for each setting of the other keys, if the sweep is over seeds or
// folds.
void print_spreads(std::ostream& out, const SweepFile& sweep, const SweepMembers& members, const std::vector<SweepResult>& results);
// Returns members in the order of `results`; unknown values are null.
Json results_json(const SweepFile& sweep, const SweepMembers& members, const std::vector<SweepResult>& results);

}  // namespace halfstep::app
