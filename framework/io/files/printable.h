// SPDX-License-Identifier: Apache-2.0
// Makes text from files printable in messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace halfstep {

// Returns the first bytes of arbitrary text, up to the end of the UTF-8 character that reaches `max_bytes`, and "..." if more
// follow. Replaces by "?" invalid bytes and characters that a terminal would hide or act on (controls, and marks that turn or hide
// text).
std::string printable(std::string_view text, size_t max_bytes = 160);

}  // namespace halfstep
