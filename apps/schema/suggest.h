// SPDX-License-Identifier: Apache-2.0
// "Did you mean ...?"
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "framework/base/list_text.h"  // one_of

namespace halfstep::app {

// The candidate that `word` most probably means: one that another program spells so, or a similar one; "" when there is none.
std::string suggest(std::string_view word, const std::vector<std::string>& candidates);

// "; did you mean \"lr\"?", or "" when there is nothing to suggest.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

// What other programs call our key or type `name`: learning_rate, base_lr, ... for lr.
std::vector<std::string> other_names(std::string_view name);

}  // namespace halfstep::app
