// "did you mean": the known name nearest to a mistyped one.
#pragma once

#include <string>
#include <vector>

namespace halfstep {

// Insertions, deletions and substitutions that turn `a` into `b`.
int edit_distance(const std::string& a, const std::string& b);

// The name among `known` with the least edit distance, if that is at most a third of the length of `name` (and at least one
// edit is granted); else "".
std::string nearest_name(const std::string& name, const std::vector<std::string>& known);

}  // namespace halfstep
