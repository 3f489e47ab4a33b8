// SPDX-License-Identifier: Apache-2.0
// Converts statements to instructions: one kernel with all functions that it calls, in one list.
#pragma once

#include "tests/emulators/ptx/code.h"

namespace halfstep::ptx {

// Throws Fault, which names the line, the instruction and the function, for unsupported statements.
void build(Program& program, const Function& entry, Kernel::Code& code);

}  // namespace halfstep::ptx
