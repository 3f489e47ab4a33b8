// SPDX-License-Identifier: Apache-2.0
// "did you mean": the known name nearest to a mistyped one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace halfstep {

// Edits (insert, delete, replace, swap neighbours) that turn `a` into `b`; upper and lower case count as equal.
int edit_distance(std::string_view a, std::string_view b);

// The name among `known` with the least edit distance, if that is at most a third of the length of `name` (and at least one
// edit is granted) and less than the known name's own length; else "".
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

}  // namespace halfstep
