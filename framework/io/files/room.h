// SPDX-License-Identifier: Apache-2.0
// Is there memory for what is to be read?
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace halfstep {

// Bytes that this process may still take before the machine swaps, or its control group's limit ends it. 0: not known.
double free_memory();

// Throws MemoryError "[where] path: reading ... needs 12.3 GB, but 4.5 GB are free" if `bytes` are more than are free.
void check_room(std::string_view where, const std::filesystem::path& path, double bytes, const std::string& what,
                std::string_view remedy);

}  // namespace halfstep
