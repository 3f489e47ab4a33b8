// SPDX-License-Identifier: Apache-2.0
// Attention of a sequence to itself, stacks of such layers, and positions.
#include "apps/catalog/rows/layer_rows.h"

namespace halfstep::app {
namespace {

Field model_width(const char* key) { return width(key, "width of the input; left out: that of the input").from_input_dim(-1); }
Field heads(const char* key) { return width(key, "heads, which divide the width").required(); }
Field probability(double fallback) { return number("dropout", fallback, "probability").at_least(0).at_most(1); }
// A batch of samples comes in, so it is the first dimension unless a config says otherwise.
Field batch_first() { return boolean("batch_first", true, "[N, L, E]; false: [L, N, E]"); }
Field is_causal() { return boolean("is_causal", false, "a position attends to itself and those before it"); }

ModuleRow multihead_attention_row() {
  return {{"MultiheadAttention",
           "attention of [L, E] to itself",
           {model_width("embed_dim"), heads("num_heads"), probability(0), boolean("bias", true, "add biases"),
            boolean("add_bias_kv", false, "a key and a value that are learned"),
            boolean("add_zero_attn", false, "a key and a value of zeros"), width("kdim", "embed_dim, if anything"),
            width("vdim", "embed_dim, if anything"), batch_first(), is_causal()}},
          [](const Json& self) {
            const auto size = [&](const char* key) { return ReadArg<std::optional<int64_t>>::from(self[key]); };
            return make<MultiheadAttention>(self["embed_dim"].get<int64_t>(), self["num_heads"].get<int64_t>(),
                                            MultiheadAttentionOptions{.dropout = self["dropout"],
                                                                      .bias = self["bias"],
                                                                      .add_bias_kv = self["add_bias_kv"],
                                                                      .add_zero_attn = self["add_zero_attn"],
                                                                      .kdim = size("kdim"),
                                                                      .vdim = size("vdim"),
                                                                      .batch_first = self["batch_first"],
                                                                      .is_causal = self["is_causal"]});
          }};
}

std::vector<Field> encoder_fields() {
  return {model_width("d_model"),
          heads("nhead"),
          integer("dim_feedforward", 2048, "width of the feed-forward net").at_least(1).at_most(kMaxSample),
          probability(0.1),
          choice("activation", "relu", {"relu", "gelu", "gelu_tanh"}, "activation of the feed-forward net; GPT-2 uses gelu_tanh"),
          number("layer_norm_eps", 1e-5, "added to variances").at_least(0),
          batch_first(),
          boolean("norm_first", false, "normalise the inputs of attention and net instead of their outputs"),
          boolean("bias", true, "add biases"),
          is_causal()};
}

std::shared_ptr<TransformerEncoderLayer> encoder_layer(const Json& self) {
  return make<TransformerEncoderLayer>(self["d_model"].get<int64_t>(), self["nhead"].get<int64_t>(),
                                       TransformerLayerOptions{.dim_feedforward = self["dim_feedforward"],
                                                               .dropout = self["dropout"],
                                                               .activation = self["activation"].get<std::string>(),
                                                               .layer_norm_eps = self["layer_norm_eps"],
                                                               .batch_first = self["batch_first"],
                                                               .norm_first = self["norm_first"],
                                                               .bias = self["bias"],
                                                               .is_causal = self["is_causal"]});
}

std::shared_ptr<TransformerEncoder> encoder(const Json& self) {
  std::shared_ptr<LayerNorm> norm;
  if (self["norm"].get<bool>()) {
    norm = make<LayerNorm>(Sizes(self["d_model"].get<int64_t>()),
                           LayerNormOptions{.eps = self["layer_norm_eps"], .bias = self["bias"]});
  }
  return std::make_shared<TransformerEncoder>(encoder_layer(self), self["num_layers"].get<int64_t>(), norm);
}

}  // namespace

void add_attention_rows(Catalog<ModuleRow>& all) {
  all.add(multihead_attention_row());
  all.add({{"TransformerEncoderLayer", "attention of [L, E] to itself, then a feed-forward net", encoder_fields()}, encoder_layer});
  std::vector<Field> fields = encoder_fields();
  fields.push_back(copies("num_layers", "how many layers").required());
  fields.push_back(boolean("norm", false, "a LayerNorm at the end"));
  all.add({{"TransformerEncoder", "TransformerEncoderLayers one after the other, with equal initial weights", fields}, encoder});
  const Field max_len = width("max_len", "positions, at most");
  Field most = max_len;
  most.fallback = 5000;
  all.add({{"PositionalEncoding",
            "x + sines and cosines of the position, and dropout",
            {model_width("d_model"), probability(0.1), most, batch_first()}},
           [](const Json& self) {
             return make<PositionalEncoding>(self["d_model"].get<int64_t>(),
                                             PositionalEncodingOptions{self["dropout"], self["max_len"], self["batch_first"]});
           }});
  all.add({{"PositionEmbedding",
            "x + a learned row for each position",
            {width("max_len", "positions, at most").required(), model_width("d_model"), batch_first()}},
           [](const Json& self) {
             return make<PositionEmbedding>(self["max_len"].get<int64_t>(), self["d_model"].get<int64_t>(),
                                            PositionEmbeddingOptions{self["batch_first"]});
           }});
  all.add({{"RotaryEmbedding",
            "pairs of features of [L, E], turned by their position",
            {width("dim", "features of the input, an even number; left out: those of the input").from_input_dim(-1),
             number("base", 10000.0, "slowest turn, in 2 pi positions").above(0),
             boolean("interleaved", false, "pairs are neighbours; else from both halves")}},
           [](const Json& self) {
             return make<RotaryEmbedding>(self["dim"].get<int64_t>(), RotaryEmbeddingOptions{self["base"], self["interleaved"]});
           }});
}

}  // namespace halfstep::app
