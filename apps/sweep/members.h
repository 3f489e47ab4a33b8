// SPDX-License-Identifier: Apache-2.0
// The members of a sweep and their folders, <output_dir>/0007-lr0.01. Beside what a run writes there, such a folder has
//   config.json   the member's config, with every key but output_dir: what `halfstep train` is given
//   member.json   the values of the swept keys, and the exit code of a start that ended by itself
//   output.txt    what the last start of the member printed
//
// A member is known by its config, so that a file that was changed finds the members that it still has, whatever their order.
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
  bool is_there = false;  // the folder was made by an earlier start
};

struct SweepMembers {
  std::vector<SweepMember> all;     // as the file lists them
  std::vector<std::string> others;  // folders of members that the file does not have, or no longer
  int64_t repeated = 0;             // members of the file that are left out, since their config is another's
  std::vector<std::string> warnings;
  std::string monitor, mode;  // checkpoint.monitor and checkpoint.mode of all members
};

// The members, with a checked config each and without folders. sets: a.b=c, for all members. Throws ConfigError that names each
// member with a wrong config and what is wrong, and DataError where data cannot be read.
SweepMembers check_members(const SweepFile& sweep, const std::vector<std::string>& sets);
// Gives each member its folder of an earlier start, or a name for one; nothing is written.
void find_folders(const SweepFile& sweep, SweepMembers& members);

// Makes the folders that are not there.
void make_folders(const SweepMembers& members);

// What is known of a member from its folder.
struct MemberState {
  std::string ending;            // of run.json: "finished", "failed", "interrupted", "requeue", "running" or, without one, ""
  std::optional<int> exit_code;  // of the last start that ended by itself
  std::string error;             // its message, in one line
  std::optional<double> value;   // the monitored one, where it was best
  int64_t value_step = 0;
  int64_t steps = 0;
  double seconds = 0;

  bool finished() const { return ending == "finished"; }
  bool failed() const { return exit_code.value_or(0) != 0; }
  std::string text() const;  // "finished", "exit code 4", "stopped", "not begun"
};
MemberState state_of(const SweepMember& member);

// The last parts of dotted keys, "lr" of "optimizer.lr"; all of a key whose last part is another's, too.
std::vector<std::string> short_names(const std::vector<std::string>& keys);
// "0.01", "Adam", "[32,32]"
std::string value_text(const Json& value);

// Writes the exit code of a start that ended by itself into member.json; nothing: there is none, as of a new start.
void record_exit(const SweepMember& member, const std::optional<int>& code);

}  // namespace halfstep::app
