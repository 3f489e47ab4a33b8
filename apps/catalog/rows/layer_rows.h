// SPDX-License-Identifier: Apache-2.0
// Rows of layers that take a tensor and return one, and helpers that rows of layers and losses share.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "apps/catalog/modules.h"
#include "layers/layers.h"

namespace halfstep::app {

// Makes a field for a width, a number of channels or the like.
inline Field width(std::string key, std::string doc) {
  return integer(std::move(key), nullptr, std::move(doc)).at_least(1).at_most(kMaxSample);
}
// Returns the row with a field that a config may leave out: the size of dimension `dim` of the input.
ModuleRow from_input(ModuleRow row, std::string_view key, int dim, std::string_view default_text = "that of the input");
ModuleRow linear_row();

// Largest number of copies of a layer. Each copy is constructed and run when a config is checked, so a number must not cost hours.
inline constexpr int kMaxCopies = 1000;
inline Field copies(std::string key, std::string doc) {
  return integer(std::move(key), nullptr, std::move(doc)).at_least(1).at_most(kMaxCopies);
}

// Expands an MLP into a Sequential: Linear, activation, Dropout... All its fields are filled in.
Json unfold_mlp(const Json& mlp);

void add_container_rows(Catalog<ModuleRow>& catalog);
void add_activation_rows(Catalog<ModuleRow>& catalog);
void add_window_rows(Catalog<ModuleRow>& catalog);  // convolutions and pooling
void add_norm_rows(Catalog<ModuleRow>& catalog);
void add_dropout_rows(Catalog<ModuleRow>& catalog);
void add_embedding_rows(Catalog<ModuleRow>& catalog);
void add_recurrent_rows(Catalog<ModuleRow>& catalog);
void add_shape_rows(Catalog<ModuleRow>& catalog);
void add_attention_rows(Catalog<ModuleRow>& catalog);

template <>
struct ReadArg<Sizes> {
  static Sizes from(const Json& value);
};
template <>
struct ReadArg<AdaptiveSizes> {
  static AdaptiveSizes from(const Json& value);
};
}  // namespace halfstep::app
