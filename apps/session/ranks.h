// SPDX-License-Identifier: Apache-2.0
// Ranks of a run that a launcher started.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "apps/config/config.h"
#include "framework/comm/process_group.h"
#include "optim/optimizer.h"

namespace halfstep::app {

// Throws ConfigError for a config that trains in one process only.
void check_for_ranks(const Config& config);
// Joins the other ranks; null if this process is alone. Every rank must call it. Divides the threads of a machine among its ranks
// unless `threads` or the environment gives a number. Throws ConfigError, with the difference, if the ranks have different
// configs or command lines. options: of the command line, for the comparison.
std::unique_ptr<ProcessGroup> join_ranks(const Config& config, const std::optional<int>& threads, const std::string& options);

// Shares the optimizer's states over the ranks if the config says so. Throws ConfigError for an optimizer that cannot share.
void share_states(Optimizer& optimizer, const Config& config, ProcessGroup& group);

// Returns whether this rank writes files and stdout. True without a group.
inline bool writes(const ProcessGroup* group) { return !group || group->rank() == 0; }

// Returns rank 0's value on all ranks.
Json value_of_rank0(ProcessGroup& group, const Json& own);

// Returns the rows of all ranks, in their order, to each rank, on the CPU. own: undefined on a rank without rows; at least one rank
// must have some.
Tensor gather_rows(ProcessGroup& group, const Tensor& own);

std::string host_name();

// Returns "4 ranks on 2 machines (Open MPI v4.1.4), 8 threads each".
std::string describe_ranks(ProcessGroup& group);

}  // namespace halfstep::app
