// SPDX-License-Identifier: Apache-2.0
// Reads files packed by gzip.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace halfstep {

// Returns whether a file that begins with `head` is gzip data.
bool is_gzip(std::string_view head);

struct Unpacked {
  std::string_view bytes{};
  std::shared_ptr<const void> owner{};  // memory that holds the bytes
  bool mapped = false;                  // whether it is the pages of a temporary file
  std::string note{};                   // "unpacked by gzip", and the folder of the temporary file
};
inline constexpr size_t kUnpackedInMemory = size_t(1) << 26;  // bytes

// Returns the unpacked bytes of one or several members. More than `most_in_memory` bytes go into a file without a name in $TMPDIR,
// or else in /var/tmp, which is mapped; if no file can be made, they stay in memory. mapped: the packed bytes are the pages of a
// file, which are unloaded once they are read. Throws DataError "[where] name: ..." for data that is damaged or cut off, IoError
// for a full disk, and MemoryError for bytes that must stay in memory and have no room there.
Unpacked unpack_gzip(std::string_view packed, bool mapped, std::string_view where, const std::string& name,
                     size_t most_in_memory = kUnpackedInMemory);

}  // namespace halfstep
