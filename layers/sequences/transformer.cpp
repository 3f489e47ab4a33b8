// SPDX-License-Identifier: Apache-2.0
#include "layers/sequences/transformer.h"

#include <limits>
#include <type_traits>
#include <typeinfo>

#include "layers/module/init.h"

namespace halfstep {

TransformerActivation::TransformerActivation(const std::string& name) : name_(name) {
  check<ValueError>(name == "relu" || name == "gelu" || name == "gelu_tanh", "TransformerActivation",
                    "must be \"relu\", \"gelu\", \"gelu_tanh\" or a function, got \"", name, '"');
  if (name == "gelu") function_ = [](const Tensor& x) { return gelu(x); };
  if (name == "gelu_tanh") function_ = [](const Tensor& x) { return gelu_tanh(x); };
}

OptionValue OptionMember<TransformerActivation>::get(const TransformerActivation& member) {
  return member.name().empty() ? OptionValue() : OptionValue(member.name());
}
bool OptionMember<TransformerActivation>::put(TransformerActivation& member, const OptionValue& value) {
  const auto* const text = std::get_if<std::string>(&value);
  if (text) member = *text;
  return text;
}

namespace {
template <class O>
OptionList<O> layer_list() {
  return {option("dim_feedforward", &O::dim_feedforward, "width of the feed-forward net").at_least(1),
          option("dropout", &O::dropout, "probability").at_least(0).at_most(1),
          option("activation", &O::activation, "activation of the feed-forward net; GPT-2 uses gelu_tanh")
              .one_of({"relu", "gelu", "gelu_tanh"}),
          option("layer_norm_eps", &O::layer_norm_eps, "added to variances").at_least(0),
          option("batch_first", &O::batch_first, "[N, L, E]; false: [L, N, E]"),
          option("norm_first", &O::norm_first, "normalise the inputs of attention and net instead of their outputs"),
          option("bias", &O::bias, "add biases")};
}
}  // namespace

HALFSTEP_OPTIONS(TransformerLayerOptions,
                 layer_list<O>() +
                     OptionList<O>{option("is_causal", &O::is_causal, "a position attends to itself and those before it")})
HALFSTEP_OPTIONS(TransformerOptions,
                 OptionList<O>{option("d_model", &O::d_model, "width of the sequences").at_least(1),
                               option("nhead", &O::nhead, "heads of each attention").at_least(1),
                               option("num_encoder_layers", &O::num_encoder_layers, "layers of the encoder").at_least(1),
                               option("num_decoder_layers", &O::num_decoder_layers, "layers of the decoder").at_least(1)} +
                     layer_list<O>())

HALFSTEP_ARGUMENTS(TransformerBlock, argument("d_model", "width of the input").at_least(1),
                   argument("nhead", "heads, which divide the width").at_least(1))
HALFSTEP_ARGUMENTS(TransformerEncoder, argument("num_layers", "how many layers").at_least(1))

TransformerBlock::TransformerBlock(int64_t d_model, int64_t nhead, const TransformerLayerOptions& o) : options_(o) {
  check_arguments("TransformerLayer", arguments(), d_model, nhead);
  check_options("TransformerLayer", o);
}

RegisteredPart<MultiheadAttention> TransformerBlock::add_attention(const char* name, int64_t d_model, int64_t nhead) {
  return add(name,
             MultiheadAttention(d_model, nhead,
                                MultiheadAttentionOptions{
                                    .dropout = options_.dropout, .bias = options_.bias, .batch_first = options_.batch_first}));
}

void TransformerBlock::add_feed_forward(int64_t d_model) {
  linear1 = add("linear1", Linear(d_model, options_.dim_feedforward, options_.bias));
  dropout = add_dropout("dropout");
  linear2 = add("linear2", Linear(options_.dim_feedforward, d_model, options_.bias));
}

RegisteredPart<LayerNorm> TransformerBlock::add_norm(const char* name, int64_t d_model) {
  return add(name, LayerNorm(d_model, LayerNormOptions{.eps = options_.layer_norm_eps, .bias = options_.bias}));
}

RegisteredPart<Dropout> TransformerBlock::add_dropout(const char* name) { return add(name, Dropout(options_.dropout)); }

Tensor TransformerBlock::feed_forward(const Tensor& x) const { return linear2(dropout(options_.activation.behind(*linear1, x))); }

TransformerEncoderLayer::TransformerEncoderLayer(Integer d_model, Integer nhead, const TransformerLayerOptions& o)
    : TransformerBlock(d_model, nhead, o) {
  self_attn = add_attention("self_attn", d_model, nhead);
  add_feed_forward(d_model);
  norm1 = add_norm("norm1", d_model);
  norm2 = add_norm("norm2", d_model);
  dropout1 = add_dropout("dropout1");
  dropout2 = add_dropout("dropout2");
}

Tensor TransformerEncoderLayer::forward(const Tensor& src, const EncoderInputs& in) {
  ResidualStream x(src);
  pass_parts(x, in);
  return x.value();
}

void TransformerEncoderLayer::pass_parts(ResidualStream& x, const EncoderInputs& in) {
  add_residual(x, *norm1, *self_attn, [&](const Tensor& y) {
    const AttentionInputs inputs{
        .key_padding_mask = in.src_key_padding_mask, .attn_mask = in.src_mask, .need_weights = false, .is_causal = in.is_causal};
    return dropout1(self_attn(y, y, y, inputs).first);
  });
  add_residual(x, *norm2, *linear1, [&](const Tensor& y) { return dropout2(feed_forward(y)); });
}

void TransformerEncoderLayer::pass(ResidualStream& x, const EncoderInputs& inputs) {
  run([&] { pass_parts(x, inputs); });
}

Tensor TransformerEncoderLayer::operator()(const Tensor& src, const EncoderInputs& inputs) {
  return run([this](const Tensor& x, const EncoderInputs& in) { return forward(x, in); }, src, inputs);
}

TransformerDecoderLayer::TransformerDecoderLayer(Integer d_model, Integer nhead, const TransformerLayerOptions& o)
    : TransformerBlock(d_model, nhead, o) {
  self_attn = add_attention("self_attn", d_model, nhead);
  multihead_attn = add_attention("multihead_attn", d_model, nhead);
  add_feed_forward(d_model);
  norm1 = add_norm("norm1", d_model);
  norm2 = add_norm("norm2", d_model);
  norm3 = add_norm("norm3", d_model);
  dropout1 = add_dropout("dropout1");
  dropout2 = add_dropout("dropout2");
  dropout3 = add_dropout("dropout3");
}

Tensor TransformerDecoderLayer::forward(const Tensor& tgt, const Tensor& memory, const DecoderInputs& in) {
  ResidualStream x(tgt);
  pass_parts(x, memory, in);
  return x.value();
}

void TransformerDecoderLayer::pass_parts(ResidualStream& x, const Tensor& memory, const DecoderInputs& in) {
  add_residual(x, *norm1, *self_attn, [&](const Tensor& y) {
    const AttentionInputs inputs{.key_padding_mask = in.tgt_key_padding_mask,
                                 .attn_mask = in.tgt_mask,
                                 .need_weights = false,
                                 .is_causal = in.tgt_is_causal};
    return dropout1(self_attn(y, y, y, inputs).first);
  });
  add_residual(x, *norm2, *multihead_attn, [&](const Tensor& y) {
    const AttentionInputs inputs{.key_padding_mask = in.memory_key_padding_mask,
                                 .attn_mask = in.memory_mask,
                                 .need_weights = false,
                                 .is_causal = in.memory_is_causal};
    return dropout2(multihead_attn(y, memory, memory, inputs).first);
  });
  add_residual(x, *norm3, *linear1, [&](const Tensor& y) { return dropout3(feed_forward(y)); });
}

void TransformerDecoderLayer::pass(ResidualStream& x, const Tensor& memory, const DecoderInputs& inputs) {
  run([&] { pass_parts(x, memory, inputs); });
}

Tensor TransformerDecoderLayer::operator()(const Tensor& tgt, const Tensor& memory, const DecoderInputs& inputs) {
  return run([this](const Tensor& x, const Tensor& m, const DecoderInputs& in) { return forward(x, m, in); }, tgt, memory, inputs);
}

namespace {

// Returns `count` copies of the layer.
template <class Layer>
std::shared_ptr<ModuleList> copies(const char* type, const std::shared_ptr<Layer>& layer, int64_t count) {
  check<ValueError>(layer != nullptr, type, "needs a layer to copy, got a null pointer");
  check_arguments(type, TransformerEncoder::arguments(), count);
  auto list = std::make_shared<ModuleList>();
  for (int64_t i = 0; i < count; ++i) list->push_back(layer->clone());
  return list;
}

// Computes x = layer(x, inputs...). A class derived from Layer may override its forward, which is then called.
template <class Layer, class... Inputs>
void pass_layer(ResidualStream& x, Layer& layer, const Inputs&... inputs) {
  using Own = std::conditional_t<sizeof...(Inputs) == 2, TransformerDecoderLayer, TransformerEncoderLayer>;
  if (typeid(layer) == typeid(Own))
    x.pass(static_cast<Own&>(layer), inputs...);
  else
    x = ResidualStream(layer(x.value(), inputs...));
}

}  // namespace

TransformerEncoder::TransformerEncoder(const std::shared_ptr<TransformerEncoderLayer>& encoder_layer, Integer num_layers,
                                       std::shared_ptr<Module> norm)
    : TransformerEncoder(copies("TransformerEncoder", encoder_layer, num_layers), std::move(norm)) {}

TransformerEncoder::TransformerEncoder(std::shared_ptr<ModuleList> list, std::shared_ptr<Module> last)
    : layers(this, "layers", std::move(list)), norm(this, "norm", std::move(last)) {
  check<ValueError>(layers->size() > 0, "TransformerEncoder", "num_layers must be >= 1, got 0");
}

Tensor TransformerEncoder::forward(const Tensor& src, const EncoderInputs& inputs) {
  ResidualStream x(src);
  for (size_t i = 0; i < layers->size(); ++i) pass_layer(x, layers->at<TransformerEncoderLayer>(i), inputs);
  return norm ? x.through(*norm) : x.value();
}

Tensor TransformerEncoder::forward(const Tensor& src) {
  ResidualStream x(src);
  for (const auto& layer : layers) pass_layer(x, *layer);
  return norm ? x.through(*norm) : x.value();
}

Tensor TransformerEncoder::operator()(const Tensor& src, const EncoderInputs& inputs) {
  return run([this](const Tensor& x, const EncoderInputs& in) { return forward(x, in); }, src, inputs);
}

TransformerDecoder::TransformerDecoder(const std::shared_ptr<TransformerDecoderLayer>& decoder_layer, Integer num_layers,
                                       std::shared_ptr<Module> norm)
    : TransformerDecoder(copies("TransformerDecoder", decoder_layer, num_layers), std::move(norm)) {}

TransformerDecoder::TransformerDecoder(std::shared_ptr<ModuleList> list, std::shared_ptr<Module> last)
    : layers(this, "layers", std::move(list)), norm(this, "norm", std::move(last)) {
  check<ValueError>(layers->size() > 0, "TransformerDecoder", "num_layers must be >= 1, got 0");
}

Tensor TransformerDecoder::forward(const Tensor& tgt, const Tensor& memory, const DecoderInputs& inputs) {
  ResidualStream x(tgt);
  for (size_t i = 0; i < layers->size(); ++i) pass_layer(x, layers->at<TransformerDecoderLayer>(i), memory, inputs);
  return norm ? x.through(*norm) : x.value();
}

Tensor TransformerDecoder::operator()(const Tensor& tgt, const Tensor& memory, const DecoderInputs& inputs) {
  return run([this](const Tensor& x, const Tensor& m, const DecoderInputs& in) { return forward(x, m, in); }, tgt, memory, inputs);
}

Transformer::Transformer(const TransformerOptions& o) : options_(o) {
  check_options(kName, o);
  const TransformerLayerOptions layer{.dim_feedforward = o.dim_feedforward,
                                      .dropout = o.dropout,
                                      .activation = o.activation,
                                      .layer_norm_eps = o.layer_norm_eps,
                                      .batch_first = o.batch_first,
                                      .norm_first = o.norm_first,
                                      .bias = o.bias};
  const auto norm = [&] { return make<LayerNorm>(Sizes(o.d_model), LayerNormOptions{.eps = o.layer_norm_eps, .bias = o.bias}); };
  encoder =
      add("encoder", TransformerEncoder(make<TransformerEncoderLayer>(o.d_model, o.nhead, layer), o.num_encoder_layers, norm()));
  decoder =
      add("decoder", TransformerDecoder(make<TransformerDecoderLayer>(o.d_model, o.nhead, layer), o.num_decoder_layers, norm()));
  for (const Tensor& p : parameters()) {
    if (p.dim() > 1) init::xavier_uniform_(p);
  }
}

Tensor Transformer::forward(const Tensor& src, const Tensor& tgt, const TransformerInputs& in) {
  for (const Tensor& t : {src, tgt})
    check<ShapeError>(t.dim() >= 2 && t.size(-1) == options_.d_model, "Transformer", "src and tgt must have d_model, ",
                      options_.d_model, ", as their last dimension, got ", src.shape(), " and ", tgt.shape());
  const int64_t batch = options_.batch_first ? 0 : 1;
  check<ShapeError>(src.dim() == tgt.dim() && (src.dim() == 2 || src.size(batch) == tgt.size(batch)), "Transformer",
                    "src and tgt must have one batch, got ", src.shape(), " and ", tgt.shape());
  const Tensor memory = encoder(src, {in.src_mask, in.src_key_padding_mask, in.src_is_causal});
  return decoder(
      tgt, memory,
      {in.tgt_mask, in.memory_mask, in.tgt_key_padding_mask, in.memory_key_padding_mask, in.tgt_is_causal, in.memory_is_causal});
}

Tensor Transformer::operator()(const Tensor& src, const Tensor& tgt, const TransformerInputs& inputs) {
  return run([this](const Tensor& s, const Tensor& t, const TransformerInputs& in) { return forward(s, t, in); }, src, tgt, inputs);
}

Tensor Transformer::generate_square_subsequent_mask(int64_t size, const TensorOptions& options) {
  return triu(full({size, size}, -std::numeric_limits<double>::infinity(), options), 1);
}

}  // namespace halfstep
