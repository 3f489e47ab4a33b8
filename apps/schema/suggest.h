// SPDX-License-Identifier: Apache-2.0
// Suggestions: "Did you mean ...?"
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "framework/base/list_text.h"  // one_of

namespace halfstep::app {

// Returns the candidate that `word` probably means: another program's name for it, or a similar name; "" if there is none.
std::string suggest(std::string_view word, const std::vector<std::string>& candidates);

// Returns "; did you mean \"lr\"?", or "" if there is no suggestion.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

// Returns other programs' names of our key or type `name`: learning_rate, base_lr, ... for lr.
std::vector<std::string> other_names(std::string_view name);

}  // namespace halfstep::app
