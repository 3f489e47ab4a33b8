// SPDX-License-Identifier: Apache-2.0
// Finds the default number of threads of the CPU backend.
#pragma once

#include <filesystem>

namespace halfstep {

// Returns how many cores the control group of this process may keep busy, rounded up; 0: no limit. That is the lowest limit of the
// group and those around it, read from cpu.max (version 2), or cpu.cfs_quota_us and cpu.cfs_period_us (version 1). `root` is the
// folder that contains proc and sys.
int cores_of_group(const std::filesystem::path& root = "/");

// Returns the first number of OMP_NUM_THREADS or, without one, the number of processors or of cores_of_group(), whichever is less.
// At least 1.
int default_threads(const char* omp_num_threads, int processors, int of_group);

}  // namespace halfstep
