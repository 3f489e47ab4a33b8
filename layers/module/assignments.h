// SPDX-License-Identifier: Apache-2.0
// Whether modules, or their tensors, may have been replaced where they stand.
#pragma once

#include <atomic>
#include <cstdint>

namespace halfstep {

// Counts the modules that were moved into others, and the tensors assigned to members of modules, in the whole program: what keeps
// something that it read from a module, such as a recording, reads it again after a change of the count.
inline std::atomic<uint64_t> module_assignments{0};

}  // namespace halfstep
