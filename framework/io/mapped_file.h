// SPDX-License-Identifier: Apache-2.0
// Files that come into memory as they are looked at, and can leave it again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

namespace halfstep {

// The pages of a file of `bytes` bytes, more than 0. Writing to one makes a copy of it, in memory alone. The file may be replaced
// or removed meanwhile, but not shortened: the system ends a program that looks at what is gone. Throws IoError "[where] ..." when
// the file cannot be mapped or has another size.
std::shared_ptr<void> map_file(const std::filesystem::path& path, uint64_t bytes, std::string_view where);

}  // namespace halfstep
