// SPDX-License-Identifier: Apache-2.0
// Rows of self-attention, of stacks of such layers, and of positions.
#include "apps/catalog/rows/layer_rows.h"

namespace halfstep::app {
namespace {

// Makes a row whose width `key` is that of the input. batch_first is true by default: in configs the batch is the first dimension.
template <class M>
ModuleRow batch_first_row(const char* doc, const char* key) {
  typename M::Options defaults;
  defaults.batch_first = true;
  return from_input(class_row<M>(doc, defaults), key, -1);
}

std::shared_ptr<TransformerEncoder> encoder(const Json& self) {
  const int64_t d_model = self["d_model"];
  TransformerLayerOptions o;
  read_options(self, o);
  std::shared_ptr<LayerNorm> norm;
  if (self["norm"].get<bool>()) norm = make<LayerNorm>(Sizes(d_model), LayerNormOptions{.eps = o.layer_norm_eps, .bias = o.bias});
  return std::make_shared<TransformerEncoder>(make<TransformerEncoderLayer>(d_model, self["nhead"].get<int64_t>(), o),
                                              self["num_layers"].get<int64_t>(), norm);
}

}  // namespace

void add_attention_rows(Catalog<ModuleRow>& catalog) {
  catalog.add(batch_first_row<MultiheadAttention>("attention of [L, E] to itself", "embed_dim"));
  const ModuleRow layer =
      batch_first_row<TransformerEncoderLayer>("attention of [L, E] to itself, then a feed-forward net", "d_model");
  catalog.add(layer);
  std::vector<Field> fields = layer.component.fields;
  fields.push_back(field_of(TransformerEncoder::arguments().each[0], {}, {.most = kMaxCopies}));
  fields.push_back(boolean("norm", false, "a LayerNorm at the end"));
  catalog.add(
      {{"TransformerEncoder", "TransformerEncoderLayers one after the other, with equal initial weights", fields}, encoder});
  catalog.add(batch_first_row<PositionalEncoding>("x + sines and cosines of the position, and dropout", "d_model"));
  catalog.add(batch_first_row<PositionEmbedding>("x + a learned row for each position", "d_model"));
  catalog.add(from_input(class_row<RotaryEmbedding>("pairs of features of [L, E], turned by their position"), "dim", -1,
                         "those of the input"));
}

}  // namespace halfstep::app
