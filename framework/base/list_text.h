// SPDX-License-Identifier: Apache-2.0
// Names in messages: lists of them, and the nearest to a mistyped one, for "did you mean".
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

// Convert A to Z to small letters, and no others: the same in every locale.
inline char lower_case(char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; }
std::string lower_case(std::string_view text);

// Counts the edits (insert, delete, replace, swap neighbours) that turn `a` into `b`; ignores case.
int edit_distance(std::string_view a, std::string_view b);

// Returns the name in `known` with the smallest edit distance, or "" if the distance exceeds both 1 and a third of the length of
// `name`, or reaches the known name's own length.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

}  // namespace halfstep
