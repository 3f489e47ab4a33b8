// SPDX-License-Identifier: Apache-2.0
// The rows of layers that take a tensor and return one, and what rows of layers and losses share.
#pragma once

#include <optional>
#include <string>

#include "apps/catalog/modules.h"
#include "apps/catalog/option_fields.h"
#include "layers/layers.h"

namespace halfstep::app {

// Widths, channels and the like.
inline Field width(std::string key, std::string doc) {
  return integer(std::move(key), nullptr, std::move(doc)).at_least(1).at_most(kMaxSample);
}
// Copies of a layer. Each is built and followed when a config is checked, so one number must not ask for hours.
inline constexpr int kMaxCopies = 1000;
inline Field copies(std::string key, std::string doc) {
  return integer(std::move(key), nullptr, std::move(doc)).at_least(1).at_most(kMaxCopies);
}

// The Sequential that an MLP is short for: Linear, activation, Dropout... All its fields are known by now.
Json unfold_mlp(const Json& mlp);

void add_container_rows(Catalog<ModuleRow>& all);
void add_activation_rows(Catalog<ModuleRow>& all);
void add_window_rows(Catalog<ModuleRow>& all);  // convolutions and pooling
void add_norm_rows(Catalog<ModuleRow>& all);
void add_dropout_rows(Catalog<ModuleRow>& all);
void add_embedding_rows(Catalog<ModuleRow>& all);
void add_recurrent_rows(Catalog<ModuleRow>& all);
void add_shape_rows(Catalog<ModuleRow>& all);
void add_attention_rows(Catalog<ModuleRow>& all);

template <>
struct ReadArg<Sizes> {
  static Sizes from(const Json& value);
};
}  // namespace halfstep::app
