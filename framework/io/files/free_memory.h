// SPDX-License-Identifier: Apache-2.0
// Checks whether there is enough memory before a file is read.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace halfstep {

// Returns the bytes that this process may still allocate before the machine swaps or its control group's limit ends it. 0:
// unknown.
double free_memory();

// Throws MemoryError "[where] path: reading ... needs 12.3 GB, but 4.5 GB are free" if `bytes` exceed the free memory.
void check_room(std::string_view where, const std::filesystem::path& path, double bytes, const std::string& what,
                std::string_view remedy);

}  // namespace halfstep
