// SPDX-License-Identifier: Apache-2.0
// The initial values of a model: `init`, `tie`, `freeze` and `freeze_statistics` of a layer's config; `weights` is in weights.h.
#pragma once

#include <functional>
#include <vector>

#include "apps/catalog/catalog.h"
#include "layers/module/module.h"

namespace halfstep::app {

// An initialiser, named as in torch.nn.init without the last underscore.
struct InitRow {
  Component component;
  std::function<void(const Json& self, const Tensor& parameter)> fill;
};
Catalog<InitRow>& init_catalog();

// The keys of every layer.
std::vector<Field> initial_fields();

// `init`, `tie`, `freeze` and `freeze_statistics` of the layer that `module` was made from. Throws ConfigError for a pattern that
// no name has, for an initialiser that does not fit a parameter, and for layers that cannot share a weight.
void initialise(Module& module, const Json& self);

}  // namespace halfstep::app
