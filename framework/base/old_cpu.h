// SPDX-License-Identifier: Apache-2.0
// CPUs that are older than the instructions that the code was compiled for.
#pragma once

namespace halfstep {

// Ends the process with a line and code 5 on such a CPU, in place of SIGILL. Runs before static objects are made, if the linker
// takes it: so what every program has calls it once more.
void stop_on_an_old_cpu() noexcept;

}  // namespace halfstep
