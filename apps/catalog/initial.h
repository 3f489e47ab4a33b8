// SPDX-License-Identifier: Apache-2.0
// The initial values of a model: `init`, `weights` and `freeze` of a layer's config.
#pragma once

#include <functional>
#include <vector>

#include "apps/catalog/catalog.h"
#include "layers/module.h"

namespace halfstep::app {

// An initialiser, named as in torch.nn.init without the last underscore.
struct InitRow {
  Component component;
  std::function<void(const Json& self, const Tensor& parameter)> fill;
};
Catalog<InitRow>& init_catalog();

// The keys of every layer.
std::vector<Field> initial_fields();

// `init` and `freeze` of the layer that `module` was made from. Throws ConfigError for a pattern that no parameter's name has, and
// for an initialiser that does not fit a parameter.
void initialise(Module& module, const Json& self);

// Reads `weights` of a model and of the layers in it, outer layers first. Throws ConfigError naming the key, which is below `path`.
void load_weights(Module& module, const Json& model, const std::string& path);

}  // namespace halfstep::app
