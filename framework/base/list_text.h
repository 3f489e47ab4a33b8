// SPDX-License-Identifier: Apache-2.0
// Joins lists for messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace halfstep {

// Returns "a, b, c and 3 more", with at most `most` elements.
std::string list_text(const std::vector<std::string>& all, size_t most = 8, std::string_view between = ", ");

// Returns "\"a\", \"b\" or \"c\"".
std::string one_of(const std::vector<std::string>& words);

}  // namespace halfstep
