// SPDX-License-Identifier: Apache-2.0
// The JSON type of the program: keeps the order of keys.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace halfstep::app {

using Json = nlohmann::ordered_json;

// One line for another program to read. A message may quote bytes that are no UTF-8, such as a file's name.
inline std::string line_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace halfstep::app
