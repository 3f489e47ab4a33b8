// SPDX-License-Identifier: Apache-2.0
// CPUs that are older than the instructions that this was compiled for.
#pragma once

namespace halfstep {

// Returns an instruction set that the code needs and the CPU lacks, such as "SSE4.2"; nullptr if it has all. May be called before
// static objects are made: the function itself runs on any x86-64.
const char* lacking_instructions() noexcept;

}  // namespace halfstep
