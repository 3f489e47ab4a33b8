// SPDX-License-Identifier: Apache-2.0
// `weights` of a layer's config: values from a file that halfstep, PyTorch or another program wrote.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/catalog/catalog.h"
#include "apps/catalog/meanings.h"
#include "apps/schema/json.h"
#include "framework/io/weights/weight_file.h"
#include "layers/module/module.h"

namespace halfstep::app {

Field weights_field();

// Returns facts about the data on which a model will be trained; called if the file is of a run. Empty: they are not compared.
using DataOfModel = std::function<StoredData()>;

// Reads `weights` of a model and of its layers, outer layers first. Returns one line for each file: "weights: resnet18.pt: 120
// tensors; fc.weight, fc.bias keep their first values". Throws ConfigError naming the key, which is below `path`, with the lines
// to write if the file's names or shapes are not the model's. If the file is of a run whose classes, tokens or inputs have other
// numbers than those of `data`, throws ConfigError too, and adds a line about other names and scales.
std::vector<std::string> load_weights(Module& module, const Json& model, const std::string& path, const DataOfModel& data = {});

// Compares the files with a model on Device::meta, and warns of values that are not finite. Returns the same lines; that of a
// missing file says that it was not checked. data: see load_weights.
std::vector<std::string> check_weights(const Json& model, const std::string& path, const DataOfModel& data = {});

// Returns the config line with which a file of weights would fit the model, or empty if no line would. `state`: the file's
// tensors under the names that `weights` gives them.
std::string weights_help(Module& module, const WeightFile& file, const Json& weights, const StateDict& state);

}  // namespace halfstep::app
