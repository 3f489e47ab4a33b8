// SPDX-License-Identifier: Apache-2.0
#include "torch/nn/modules/transformer.h"

#include "torch/nn/init.h"
#include "torch/nn/modules/define.h"

namespace torch::nn {
namespace {

Tensor activated(const activation_t& a, const Tensor& x) {
  if (a.index() == 0) return x.relu();
  if (a.index() == 1) return x.gelu();
  return std::get<2>(a)(x);
}
// Draws the weights of all layers below anew.
void reset_all(const Module& root) {
  for (const auto& m : root.modules(false)) {
    if (auto* linear = m->as<Linear>()) linear->reset_parameters();
    if (auto* norm = m->as<LayerNorm>()) norm->reset_parameters();
  }
  for (const auto& m : root.modules(false)) {
    if (auto* attention = m->as<MultiheadAttention>()) attention->_reset_parameters();
  }
}
// What both kinds of layers have.
template <class Layer>
void register_common(Layer& m) {
  const auto& o = m.options;
  const int64_t d = o.d_model(), f = o.dim_feedforward();
  auto attention = [&] { return MultiheadAttention(MultiheadAttentionOptions(d, o.nhead()).dropout(o.dropout())); };
  m.self_attn = m.register_module("self_attn", attention());
  if constexpr (requires { m.multihead_attn; }) m.multihead_attn = m.register_module("multihead_attn", attention());
  m.linear1 = m.register_module("linear1", Linear(d, f));
  m.dropout = m.register_module("dropout", Dropout(o.dropout()));
  m.linear2 = m.register_module("linear2", Linear(f, d));
  auto norm = [&](const char* name) { return m.register_module(name, LayerNorm(std::vector<int64_t>{d})); };
  auto drop = [&](const char* name) { return m.register_module(name, Dropout(o.dropout())); };
  m.norm1 = norm("norm1");
  m.norm2 = norm("norm2");
  if constexpr (requires { m.norm3; }) m.norm3 = norm("norm3");
  m.dropout1 = drop("dropout1");
  m.dropout2 = drop("dropout2");
  if constexpr (requires { m.dropout3; }) m.dropout3 = drop("dropout3");
}
// Gives a stack its layers, which are clones of one, and its norm.
template <class Stack, class Layer>
void register_stack(Stack& m, const Layer& layer) {
  m.layers = m.register_module("layers", ModuleList());
  for (int64_t i = 0; i < m.options.num_layers(); ++i) m.layers->push_back(layer->clone());
  if (m.options.norm().is_empty()) return;
  m.options.norm(m.options.norm().clone());
  m.register_module("norm", m.options.norm().ptr());
}

}  // namespace

template class Cloneable<TransformerEncoderLayerImpl>;
TransformerEncoderLayerImpl::TransformerEncoderLayerImpl(TransformerEncoderLayerOptions o) : options(std::move(o)) {
  TransformerEncoderLayerImpl::reset();
}
void TransformerEncoderLayerImpl::reset() { register_common(*this); }
void TransformerEncoderLayerImpl::reset_parameters() { reset_all(*this); }
Tensor TransformerEncoderLayerImpl::forward(const Tensor& src, const Tensor& src_mask, const Tensor& src_key_padding_mask) {
  const Tensor x = norm1(src + dropout1(std::get<0>(self_attn(src, src, src, src_key_padding_mask, false, src_mask))));
  return norm2(x + dropout2(linear2(dropout(activated(options.activation(), linear1(x))))));
}

template class Cloneable<TransformerDecoderLayerImpl>;
TransformerDecoderLayerImpl::TransformerDecoderLayerImpl(TransformerDecoderLayerOptions o) : options(std::move(o)) {
  TransformerDecoderLayerImpl::reset();
}
void TransformerDecoderLayerImpl::reset() { register_common(*this); }
void TransformerDecoderLayerImpl::reset_parameters() { reset_all(*this); }
Tensor TransformerDecoderLayerImpl::forward(Tensor tgt, const Tensor& memory, const Tensor& tgt_mask, const Tensor& memory_mask,
                                            const Tensor& tgt_key_padding_mask, const Tensor& memory_key_padding_mask) {
  Tensor x = norm1(tgt + dropout1(std::get<0>(self_attn(tgt, tgt, tgt, tgt_key_padding_mask, false, tgt_mask))));
  x = norm2(x + dropout2(std::get<0>(multihead_attn(x, memory, memory, memory_key_padding_mask, false, memory_mask))));
  return norm3(x + dropout3(linear2(dropout(activated(options.activation(), linear1(x))))));
}

template class Cloneable<TransformerEncoderImpl>;
TransformerEncoderImpl::TransformerEncoderImpl(TransformerEncoderOptions o) : options(std::move(o)) {
  TransformerEncoderImpl::reset();
}
void TransformerEncoderImpl::reset() { register_stack(*this, options.encoder_layer()); }
void TransformerEncoderImpl::reset_parameters() { reset_all(*this); }
Tensor TransformerEncoderImpl::forward(const Tensor& src, const Tensor& src_mask, const Tensor& src_key_padding_mask) {
  TORCH_CHECK(layers->size() > 0, "TransformerEncoder should have at least one encoder layer.");
  Tensor x = src;
  for (size_t i = 0; i < layers->size(); ++i) {
    x = layers->at<TransformerEncoderLayerImpl>(i).forward(x, src_mask, src_key_padding_mask);
  }
  return options.norm().is_empty() ? x : options.norm().forward<Tensor>(x);
}

template class Cloneable<TransformerDecoderImpl>;
TransformerDecoderImpl::TransformerDecoderImpl(TransformerDecoderOptions o) : options(std::move(o)) {
  TransformerDecoderImpl::reset();
}
void TransformerDecoderImpl::reset() { register_stack(*this, options.decoder_layer()); }
void TransformerDecoderImpl::reset_parameters() { reset_all(*this); }
Tensor TransformerDecoderImpl::forward(const Tensor& tgt, const Tensor& memory, const Tensor& tgt_mask, const Tensor& memory_mask,
                                       const Tensor& tgt_key_padding_mask, const Tensor& memory_key_padding_mask) {
  TORCH_CHECK(layers->size() > 0, "TransformerDecoder should have at least one decoder layer.");
  Tensor x = tgt;
  for (size_t i = 0; i < layers->size(); ++i) {
    x = layers->at<TransformerDecoderLayerImpl>(i).forward(x, memory, tgt_mask, memory_mask, tgt_key_padding_mask,
                                                           memory_key_padding_mask);
  }
  return options.norm().is_empty() ? x : options.norm().forward<Tensor>(x);
}

template class Cloneable<TransformerImpl>;
TransformerImpl::TransformerImpl(TransformerOptions o) : options(std::move(o)) { TransformerImpl::reset(); }
void TransformerImpl::reset() {
  const AnyModule norm(LayerNorm(std::vector<int64_t>{options.d_model()}));
  auto with_options = [&](auto layer) {
    layer.dim_feedforward(options.dim_feedforward()).dropout(options.dropout()).activation(options.activation());
    return layer;
  };
  if (options.custom_encoder().is_empty()) {
    const auto layer = with_options(TransformerEncoderLayerOptions(options.d_model(), options.nhead()));
    encoder = AnyModule(TransformerEncoder(TransformerEncoderOptions(layer, options.num_encoder_layers()).norm(norm)));
  } else {
    encoder = options.custom_encoder().clone();
  }
  register_module("encoder", encoder.ptr());
  if (options.custom_decoder().is_empty()) {
    const auto layer = with_options(TransformerDecoderLayerOptions(options.d_model(), options.nhead()));
    decoder = AnyModule(TransformerDecoder(TransformerDecoderOptions(layer, options.num_decoder_layers()).norm(norm)));
  } else {
    decoder = options.custom_decoder().clone();
  }
  register_module("decoder", decoder.ptr());
  reset_parameters();
}
void TransformerImpl::reset_parameters() {
  NoGradGuard off;
  for (const Tensor& p : parameters()) {
    if (p.dim() > 1) init::xavier_uniform_(p);
  }
}
Tensor TransformerImpl::forward(const Tensor& src, const Tensor& tgt, const Tensor& src_mask, const Tensor& tgt_mask,
                                const Tensor& memory_mask, const Tensor& src_key_padding_mask, const Tensor& tgt_key_padding_mask,
                                const Tensor& memory_key_padding_mask) {
  TORCH_CHECK(src.dim() == 3 && tgt.dim() == 3, "src and tgt should have 3 dimensions, but got ", src.dim(), " and ", tgt.dim());
  TORCH_CHECK(src.size(1) == tgt.size(1), "src and tgt should have equal batch size (at dim 1), but got ", src.size(1), " and ",
              tgt.size(1));
  TORCH_CHECK(src.size(2) == options.d_model() && tgt.size(2) == options.d_model(),
              "src and tgt should have same feature size as d_model (at dim 2), but got ", src.size(2), " and ", tgt.size(2),
              " while d_model is ", options.d_model());
  const Tensor memory = encoder.forward<Tensor>(src, src_mask, src_key_padding_mask);
  return decoder.forward<Tensor>(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask);
}
Tensor TransformerImpl::generate_square_subsequent_mask(int64_t size) {
  return torch::triu(torch::full({size, size}, -std::numeric_limits<float>::infinity()), 1);
}

}  // namespace torch::nn
