// SPDX-License-Identifier: Apache-2.0
// Lists in messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace halfstep {

// "a, b, c and 3 more": the first `most` of all.
std::string list_text(const std::vector<std::string>& all, size_t most = 8, std::string_view between = ", ");

// "\"a\", \"b\" or \"c\"".
std::string one_of(const std::vector<std::string>& words);

}  // namespace halfstep
