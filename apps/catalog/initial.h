// SPDX-License-Identifier: Apache-2.0
// The values that a model begins with: what `init`, `weights` and `freeze` of a layer's config stand for.
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

// `weights` of a model and of the layers in it, those outside first. Throws ConfigError naming the key, which stands below `path`.
void load_weights(Module& module, const Json& model, const std::string& path);

}  // namespace halfstep::app
