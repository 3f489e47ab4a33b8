// SPDX-License-Identifier: Apache-2.0
// How many threads the CPU backend has where nobody says it.
#pragma once

#include <filesystem>

namespace halfstep {

// How many cores the control group of this process may keep busy, rounded up: of cpu.max (version 2), or cpu.cfs_quota_us by
// cpu.cfs_period_us (version 1), the least of the group and those around it. 0: it has no limit. Below `root` are proc and sys.
int cores_of_group(const std::filesystem::path& root = "/");

// OMP_NUM_THREADS, of whose list the first number counts; without it, as many as there are processors, or as cores_of_group() says
// if those are fewer. At least 1.
int default_threads(const char* omp_num_threads, int processors, int of_group);

}  // namespace halfstep
