// SPDX-License-Identifier: Apache-2.0
// What a key of configs, or a type, means: the text of `halfstep explain`.
#pragma once

#include <string>

namespace halfstep::app {

// `what`: a key by its path ("optimizer.momentum", "model.layers.0.bias"), a type ("Conv2d"), a type's key ("Conv2d.padding"), or
// a key alone ("momentum"), which is explained wherever it occurs; "" gives the sections of a config. Other programs' names are
// understood. Throws ConfigError with the nearest names for anything else.
std::string explain(const std::string& what);

}  // namespace halfstep::app
