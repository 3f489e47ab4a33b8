// SPDX-License-Identifier: Apache-2.0
// Reads files packed by gzip.
#pragma once

#include <string>
#include <string_view>

namespace halfstep {

// Returns whether a file that begins with `head` is gzip data.
bool is_gzip(std::string_view head);

// Unpacks one or several members. Throws DataError "[where] name: ..." for data that is damaged or cut off.
std::string unpack_gzip(std::string_view packed, std::string_view where, const std::string& name);

}  // namespace halfstep
