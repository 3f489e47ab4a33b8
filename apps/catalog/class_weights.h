// SPDX-License-Identifier: Apache-2.0
// Weights of classes beside the classes' names: a config gives them by number, and the order of names may surprise.
#pragma once

#include <string>
#include <vector>

#include "apps/schema/json.h"
#include "framework/data/sets/dataset.h"

namespace halfstep::app {

// Returns "class weights of the loss: cat 1, dog 5", and the same of the sampler, if the config has such weights. names: of the
// classes, in the order of their numbers. data: data.train, of which the weights of a "balanced" sampler are computed, with a mean
// of 1 over the samples; null: they are left out.
std::vector<std::string> class_weight_lines(const Json& config, const std::vector<std::string>& names, const Dataset* data);

}  // namespace halfstep::app
