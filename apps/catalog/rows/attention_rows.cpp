// SPDX-License-Identifier: Apache-2.0
// Rows of self-attention, of stacks of such layers, and of positions.
#include "apps/catalog/rows/layer_rows.h"

namespace halfstep::app {
namespace {

Arg<int64_t> model_width(const char* key) {
  return arg<int64_t>(width(key, "width of the input; left out: that of the input").from_input_dim(-1));
}
Arg<int64_t> heads(const char* key) { return arg<int64_t>(width(key, "heads, which divide the width").required()); }

// Makes a row with batch_first true by default: in configs the batch is the first dimension.
template <class M, class... Ts>
ModuleRow batch_first_row(const char* doc, Arg<Ts>... args) {
  typename M::Options defaults;
  defaults.batch_first = true;
  return option_row<M>(doc, defaults, args...);
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

void add_attention_rows(Catalog<ModuleRow>& all) {
  all.add(batch_first_row<MultiheadAttention>("attention of [L, E] to itself", model_width("embed_dim"), heads("num_heads")));
  const ModuleRow layer = batch_first_row<TransformerEncoderLayer>("attention of [L, E] to itself, then a feed-forward net",
                                                                   model_width("d_model"), heads("nhead"));
  all.add(layer);
  std::vector<Field> fields = layer.component.fields;
  fields.push_back(copies("num_layers", "how many layers").required());
  fields.push_back(boolean("norm", false, "a LayerNorm at the end"));
  all.add({{"TransformerEncoder", "TransformerEncoderLayers one after the other, with equal initial weights", fields}, encoder});
  all.add(batch_first_row<PositionalEncoding>("x + sines and cosines of the position, and dropout", model_width("d_model")));
  all.add(batch_first_row<PositionEmbedding>("x + a learned row for each position",
                                             arg<int64_t>(width("max_len", "positions, at most").required()),
                                             model_width("d_model")));
  all.add(option_row<RotaryEmbedding>(
      "pairs of features of [L, E], turned by their position",
      arg<int64_t>(width("dim", "features of the input, an even number; left out: those of the input").from_input_dim(-1))));
}

}  // namespace halfstep::app
