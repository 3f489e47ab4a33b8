// SPDX-License-Identifier: Apache-2.0
// Initial values of a model: `init`, `tie`, `freeze` and `freeze_statistics` of a layer's config; weights.h has `weights`.
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

// Returns the keys that every layer has.
std::vector<Field> initial_fields();

// Applies `init`, `tie`, `freeze` and `freeze_statistics` of the config of `module`. Throws ConfigError for a pattern that matches
// no name, for an initialiser that does not fit a parameter, and for layers that cannot share a weight.
void initialise(Module& module, const Json& self);

}  // namespace halfstep::app
