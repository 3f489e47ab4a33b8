// SPDX-License-Identifier: Apache-2.0
// Parameter groups by kind: biases and normalisations, and others.
#pragma once

#include <string>
#include <vector>

#include "layers/module/module.h"
#include "optim/optimizer.h"

namespace halfstep {

// Returns the names of parameters that should not decay, in alphabetic order: all of normalisations, and biases (of recurrent and
// attention layers too). Embeddings are not among them.
std::vector<std::string> norms_and_biases(const Module& model);

// Splits all parameters of a model into two groups, of which the second, norms_and_biases, has no weight decay:
//   AdamW opt(groups_without_decay(net), {.lr = 1e-3, .weight_decay = 0.1});
// Omits an empty group.
std::vector<ParamGroup> groups_without_decay(const Module& model);

}  // namespace halfstep
