// SPDX-License-Identifier: Apache-2.0
// Files that gzip packed.
#pragma once

#include <string>
#include <string_view>

namespace halfstep {

// Does a file that begins so hold gzip's data?
bool is_gzip(std::string_view head);

// What was packed, of one or several members. Throws DataError "[where] name: ..." for data that is damaged or cut off.
std::string unpack_gzip(std::string_view packed, std::string_view where, const std::string& name);

}  // namespace halfstep
