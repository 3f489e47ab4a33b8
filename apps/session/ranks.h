// SPDX-License-Identifier: Apache-2.0
// The ranks of a run that a launcher started, as the parts of a run see them.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "apps/config/config.h"
#include "framework/comm/process_group.h"
#include "optim/optimizer.h"

namespace halfstep::app {

// Throws ConfigError for what trains in one process alone.
void check_for_ranks(const Config& config);
// Null where this process is alone; else every rank must call it. Threads are shared among the ranks of a machine unless `threads`
// or the environment gives a number. Throws ConfigError when the ranks were started with different configs, with the difference.
std::unique_ptr<ProcessGroup> join_ranks(const Config& config, const std::optional<int>& threads, const std::string& options);

// Lets ranks share the optimizer's states, where the config says so. Throws ConfigError for an optimizer that cannot.
void share_states(Optimizer& optimizer, const Config& config, ProcessGroup& group);

// Is this the rank that writes: files, stdout? True without a group.
inline bool writes(const ProcessGroup* group) { return !group || group->rank() == 0; }

// Rank 0's value, on all of them.
Json from_first(ProcessGroup& group, const Json& mine);

// The rows of all ranks, in their order, on the host of each. Undefined where a rank has none; those of one at least are not.
Tensor gather_rows(ProcessGroup& group, const Tensor& mine);

std::string host_name();

// "4 ranks (Open MPI v4.1.4)", and on how many machines.
std::string describe_ranks(ProcessGroup& group);

}  // namespace halfstep::app
