// SPDX-License-Identifier: Apache-2.0
// A whole config for each data set, for `halfstep explain` and docs/reference/config_keys.md.
#pragma once

#include <string>
#include <string_view>

namespace halfstep::app {

// Returns an example config; empty for a data set that a program added.
std::string dataset_example(std::string_view type);

}  // namespace halfstep::app
