// SPDX-License-Identifier: Apache-2.0
// Finds the known name nearest to a mistyped one, for "did you mean".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace halfstep {

// Counts the edits (insert, delete, replace, swap neighbours) that turn `a` into `b`; ignores case.
int edit_distance(std::string_view a, std::string_view b);

// Returns the name in `known` with the smallest edit distance, or "" if the distance exceeds both 1 and a third of the length of
// `name`, or reaches the known name's own length.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

}  // namespace halfstep
