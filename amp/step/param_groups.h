// SPDX-License-Identifier: Apache-2.0
// Groups of parameters by their kind: biases, normalisations and others.
#pragma once

#include <string>
#include <vector>

#include "layers/module/module.h"
#include "optim/optimizer.h"

namespace halfstep {

// The names of those parameters that weight decay does harm to: all of normalisations, and biases (of recurrent and attention
// layers as well). Embeddings are not among them. In alphabetic order.
std::vector<std::string> norms_and_biases(const Module& model);

// All parameters of a model in two groups, of which the second, those of norms_and_biases, has no weight decay:
//   AdamW opt(groups_without_decay(net), {.lr = 1e-3, .weight_decay = 0.1});
// A group that would be empty is left out.
std::vector<ParamGroup> groups_without_decay(const Module& model);

}  // namespace halfstep
