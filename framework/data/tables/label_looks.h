// SPDX-License-Identifier: Apache-2.0
// What a label looks like to people, to whom "1e3" and "1,000", or "a-b" with another hyphen, are one. Not a public header.
#pragma once

#include <string>
#include <string_view>

namespace halfstep {

// Returns a text that is equal for labels of one look: numbers by their value, "true" as 1; other labels with plain characters for
// full-width letters, ligatures, digits of other scripts, dashes and quotation marks, and without invisible ones. key: in lower
// case.
std::string look_of(std::string_view key, char decimal);

// Returns the label between quotes, with escapes for all characters beyond ASCII but letters and numbers.
std::string spelled_apart(std::string_view label);

}  // namespace halfstep
