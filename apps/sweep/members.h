// SPDX-License-Identifier: Apache-2.0
// The members of a sweep and their folders, <output_dir>/0007-lr0.01. Besides a run's files such a folder has
//   config.json   the member's config, with every key but output_dir: what `halfstep train` is given
//   member.json   the values of the swept keys, and the exit code of a start that ended by itself
//   output.txt    what the last start of the member printed
//
// A member is identified by its config, so that a changed file finds the members that it still has, in any order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apps/sweep/sweep_file.h"

namespace halfstep::app {

struct SweepMember {
  std::string name;  // of the folder
  std::filesystem::path folder;
  Settings values;
  Json config;
  bool has_folder = false;  // of an earlier start
};

struct SweepMembers {
  std::vector<SweepMember> all;     // in the order of the file
  std::vector<std::string> others;  // folders of members that the file does not list (any more)
  int64_t repeated = 0;             // number of omitted members whose config equals another's
  std::vector<std::string> warnings;
  std::string monitor, mode;  // checkpoint.monitor and checkpoint.mode of all members
};

// Checks the config of each member; does not assign folders. sets: a.b=c, for all members. Throws ConfigError that names each
// member with a wrong config and its errors, and DataError if data cannot be read.
SweepMembers check_members(const SweepFile& sweep, const std::vector<std::string>& sets);
// Gives each member its folder of an earlier start, or a name for a new one; writes nothing.
void assign_folders(const SweepFile& sweep, SweepMembers& members);

// Creates missing folders, with the members' configs.
void make_folders(const SweepMembers& members);

// The state of a member, read from its folder.
struct MemberState {
  std::string ending;            // of run.json: "finished", "failed", "interrupted", "requeue", "running" or, without one, ""
  std::optional<int> exit_code;  // of the last start that ended by itself
  std::string error;             // its message, in one line
  std::optional<double> value;   // best value of the monitored metric
  int64_t value_step = 0;        // step of that value
  int64_t steps = 0;             // applied
  double seconds = 0;
  Json made_by;  // the last start, of run.json

  bool is_finished() const { return ending == "finished"; }
  bool has_failed() const { return exit_code.value_or(0) != 0; }
  std::string text() const;  // "finished", "exit code 4", "stopped", "not begun"
};
MemberState state_of(const SweepMember& member);

// Returns the last parts of dotted keys, "lr" of "optimizer.lr"; the whole key if its last part is not unique.
std::vector<std::string> short_names(const std::vector<std::string>& keys);
// Returns "0.01", "Adam", "[32,32]".
std::string value_text(const Json& value);

// Writes the exit code of a start into member.json; unset: the start has not ended.
void record_exit(const SweepMember& member, const std::optional<int>& code);

}  // namespace halfstep::app
