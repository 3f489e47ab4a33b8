// The JSON type of the program: keeps the order of keys.
#pragma once

#include <nlohmann/json.hpp>

namespace halfstep::app {

using Json = nlohmann::ordered_json;

}  // namespace halfstep::app
