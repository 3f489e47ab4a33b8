// SPDX-License-Identifier: Apache-2.0
// CPUs that are older than the instructions that the code was compiled for.
#pragma once

namespace halfstep {

// On such a CPU prints a line to stderr and ends the process with exit code 5, where the first newer instruction would raise
// SIGILL. Runs before static objects are made. make_cpu_backend() calls it once more, so that the linker puts this file into every
// program.
void stop_on_an_old_cpu() noexcept;

}  // namespace halfstep
