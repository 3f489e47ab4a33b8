// SPDX-License-Identifier: Apache-2.0
// The program's JSON type, which keeps the order of keys.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace halfstep::app {

using Json = nlohmann::ordered_json;

// Formats one line for another program. Replaces bytes that are not UTF-8, such as a file name's in a message.
inline std::string line_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace halfstep::app
