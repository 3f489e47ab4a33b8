// SPDX-License-Identifier: Apache-2.0
// Makes text from files printable in messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace halfstep {

// Returns at most about `n` bytes of arbitrary text, as whole UTF-8 characters. Replaces by "?" invalid bytes and characters that
// a terminal would hide or act on (controls, and marks that turn or hide text).
std::string printable(std::string_view text, size_t n = 160);

}  // namespace halfstep
