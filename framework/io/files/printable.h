// SPDX-License-Identifier: Apache-2.0
// Text of files in messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace halfstep {

// At most about `n` bytes of text that may hold anything, as whole characters of UTF-8. Bytes that are none, and characters that a
// terminal would not show or would act on (controls, and marks that turn or hide text), become "?".
std::string printable(std::string_view text, size_t n = 160);

}  // namespace halfstep
