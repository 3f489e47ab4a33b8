// SPDX-License-Identifier: Apache-2.0
// Files mapped into memory: pages are loaded when they are accessed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

namespace halfstep {

// The pages of a file of `bytes` bytes, more than 0. Writing to one makes a copy of it, in memory alone. The file may be replaced
// or removed meanwhile, but not shortened: the system kills a program that accesses a missing part. Throws IoError "[where] ..."
// when the file cannot be mapped or has another size.
std::shared_ptr<void> map_file(const std::filesystem::path& path, uint64_t bytes, std::string_view where);

}  // namespace halfstep
