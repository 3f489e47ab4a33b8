// SPDX-License-Identifier: Apache-2.0
// Converts a model's config to source code; parts common to both languages. The catalogue's fields are the constructor arguments
// of PyTorch's layers, by name and in order, and those of halfstep's classes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "apps/schema/json.h"
#include "apps/schema/shell_word.h"

namespace halfstep::app {

// An argument of a constructor.
struct Argument {
  std::string name;
  Json value;
  bool is_default = false;  // the value is the class's default
};

// Returns a layer's arguments in order. Omits keys that are not constructor arguments (type, name, init, weights, freeze), and
// those that only halfstep's configs have: sync, stateful.
std::vector<Argument> arguments_of(const Json& layer);

// Layers with their names in the state_dict.
using NamedLayers = std::vector<std::pair<std::string, Json>>;
// Names the layers of a list, by numbers unless the config has a name.
NamedLayers named_layers(const Json& layers);
// Returns whether the names are "0", "1", ...
bool are_numbered(const NamedLayers& layers);
// Returns the names of the branches; an empty list if they are "0", "1", ...
Json branch_names(const Json& parallel);
// Returns the copies of a Repeat.
NamedLayers layers_of_repeat(const Json& repeat);
// Returns the arguments of the layer that an encoder repeats.
std::vector<Argument> arguments_of_encoder_layer(const Json& encoder);

// Returns the blanks before a line at this depth.
std::string indented(int depth, int width = 2);
std::string number_code(double v);  // shortest text that parses to the double v
std::string number_code(float v);   // and to the float v: 0.1307, not 0.1307000070810318

// Returns Python classes, by name, for layers that PyTorch lacks or that return several tensors.
const std::map<std::string, std::string>& torch_classes();

// Returns the first lines of a source file: its origin, and that its user may change it.
std::string origin_lines(const std::string& comment, const std::string& from, int64_t step);

}  // namespace halfstep::app
