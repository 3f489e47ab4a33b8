// SPDX-License-Identifier: Apache-2.0
// A model's config as source code: what both languages share. The catalogue's fields are the constructor arguments of PyTorch's
// layers, by name and in order, and halfstep's classes have them, too.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "apps/schema/json.h"
#include "apps/schema/shell_word.h"

namespace halfstep::app {

struct Argument {
  std::string name;
  Json value;
  bool is_default = false;  // the value is what the class takes by itself
};

// A layer's arguments in order. Keys that are no constructor's arguments (type, name, init, weights, freeze) are left out, and so
// is what only halfstep's configs have: sync, stateful.
std::vector<Argument> arguments_of(const Json& layer);

// The layers of a list, or one layer, with their names in the state_dict.
using NamedLayers = std::vector<std::pair<std::string, Json>>;
NamedLayers named_layers(const Json& layers);
// The names are "0", "1", ...
bool are_numbered(const NamedLayers& layers);
Json branch_names(const Json& parallel);                                // of its branches; none, if they are "0", "1", ...
NamedLayers layers_of_repeat(const Json& repeat);                       // its copies
std::vector<Argument> arguments_of_encoder_layer(const Json& encoder);  // of the layer that a TransformerEncoder repeats

std::string indented(int depth, int width = 2);
std::string number_code(double v);  // shortest text that a double reads as v
std::string number_code(float v);   // and that a float does: 0.1307, not 0.1307000070810318

// What PyTorch has no layer for, or one that gives several tensors: a name and its Python code.
const std::map<std::string, std::string>& torch_classes();

// A source file: lines that say where it is from, and that it is its user's own.
std::string origin_lines(const std::string& comment, const std::string& from, int64_t step);

}  // namespace halfstep::app
