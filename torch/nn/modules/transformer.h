// SPDX-License-Identifier: Apache-2.0
// Transformers.
#pragma once

#include "torch/nn/modules/activation.h"
#include "torch/nn/modules/norm.h"
#include "torch/nn/modules/other.h"
#include "torch/nn/options/sequences.h"

namespace torch::nn {

class TransformerEncoderLayerImpl : public Cloneable<TransformerEncoderLayerImpl> {
 public:
  TransformerEncoderLayerImpl(int64_t d_model, int64_t nhead)
      : TransformerEncoderLayerImpl(TransformerEncoderLayerOptions(d_model, nhead)) {}
  explicit TransformerEncoderLayerImpl(TransformerEncoderLayerOptions o);
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& src, const Tensor& src_mask = {}, const Tensor& src_key_padding_mask = {});
  TransformerEncoderLayerOptions options;
  MultiheadAttention self_attn = nullptr;
  Linear linear1 = nullptr, linear2 = nullptr;
  Dropout dropout = nullptr, dropout1 = nullptr, dropout2 = nullptr;
  LayerNorm norm1 = nullptr, norm2 = nullptr;
  FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(Tensor())}, {2, AnyValue(Tensor())})
};
HS_TORCH_HOLDER(TransformerEncoderLayer)

class TransformerDecoderLayerImpl : public Cloneable<TransformerDecoderLayerImpl> {
 public:
  TransformerDecoderLayerImpl(int64_t d_model, int64_t nhead)
      : TransformerDecoderLayerImpl(TransformerDecoderLayerOptions(d_model, nhead)) {}
  explicit TransformerDecoderLayerImpl(TransformerDecoderLayerOptions o);
  void reset() override;
  void reset_parameters();
  Tensor forward(Tensor tgt, const Tensor& memory, const Tensor& tgt_mask = {}, const Tensor& memory_mask = {},
                 const Tensor& tgt_key_padding_mask = {}, const Tensor& memory_key_padding_mask = {});
  TransformerDecoderLayerOptions options;
  MultiheadAttention self_attn = nullptr, multihead_attn = nullptr;
  Linear linear1 = nullptr, linear2 = nullptr;
  Dropout dropout = nullptr, dropout1 = nullptr, dropout2 = nullptr, dropout3 = nullptr;
  LayerNorm norm1 = nullptr, norm2 = nullptr, norm3 = nullptr;
  FORWARD_HAS_DEFAULT_ARGS({2, AnyValue(Tensor())}, {3, AnyValue(Tensor())}, {4, AnyValue(Tensor())}, {5, AnyValue(Tensor())})
};
HS_TORCH_HOLDER(TransformerDecoderLayer)

struct TransformerEncoderOptions {
  TransformerEncoderOptions(TransformerEncoderLayer layer, int64_t n) : encoder_layer_(std::move(layer)), num_layers_(n) {}
  TransformerEncoderOptions(const TransformerEncoderLayerOptions& o, int64_t n) : encoder_layer_(o), num_layers_(n) {}
  TORCH_ARG(TransformerEncoderLayer, encoder_layer);
  TORCH_ARG(int64_t, num_layers);
  HS_TORCH_ARG(AnyModule, norm, AnyModule());
};
struct TransformerDecoderOptions {
  TransformerDecoderOptions(TransformerDecoderLayer layer, int64_t n) : decoder_layer_(std::move(layer)), num_layers_(n) {}
  TransformerDecoderOptions(const TransformerDecoderLayerOptions& o, int64_t n) : decoder_layer_(o), num_layers_(n) {}
  TORCH_ARG(TransformerDecoderLayer, decoder_layer);
  TORCH_ARG(int64_t, num_layers);
  HS_TORCH_ARG(AnyModule, norm, AnyModule());
};

class TransformerEncoderImpl : public Cloneable<TransformerEncoderImpl> {
 public:
  TransformerEncoderImpl(TransformerEncoderLayer layer, int64_t n)
      : TransformerEncoderImpl(TransformerEncoderOptions(std::move(layer), n)) {}
  explicit TransformerEncoderImpl(TransformerEncoderOptions o);
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& src, const Tensor& src_mask = {}, const Tensor& src_key_padding_mask = {});
  TransformerEncoderOptions options;
  ModuleList layers = nullptr;
  FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(Tensor())}, {2, AnyValue(Tensor())})
};
HS_TORCH_HOLDER(TransformerEncoder)

class TransformerDecoderImpl : public Cloneable<TransformerDecoderImpl> {
 public:
  TransformerDecoderImpl(TransformerDecoderLayer layer, int64_t n)
      : TransformerDecoderImpl(TransformerDecoderOptions(std::move(layer), n)) {}
  explicit TransformerDecoderImpl(TransformerDecoderOptions o);
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& tgt, const Tensor& memory, const Tensor& tgt_mask = {}, const Tensor& memory_mask = {},
                 const Tensor& tgt_key_padding_mask = {}, const Tensor& memory_key_padding_mask = {});
  TransformerDecoderOptions options;
  ModuleList layers = nullptr;
  FORWARD_HAS_DEFAULT_ARGS({2, AnyValue(Tensor())}, {3, AnyValue(Tensor())}, {4, AnyValue(Tensor())}, {5, AnyValue(Tensor())})
};
HS_TORCH_HOLDER(TransformerDecoder)

class TransformerImpl : public Cloneable<TransformerImpl> {
 public:
  TransformerImpl() : TransformerImpl(TransformerOptions()) {}
  TransformerImpl(int64_t d_model, int64_t nhead) : TransformerImpl(TransformerOptions(d_model, nhead)) {}
  explicit TransformerImpl(TransformerOptions o);
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& src, const Tensor& tgt, const Tensor& src_mask = {}, const Tensor& tgt_mask = {},
                 const Tensor& memory_mask = {}, const Tensor& src_key_padding_mask = {}, const Tensor& tgt_key_padding_mask = {},
                 const Tensor& memory_key_padding_mask = {});
  static Tensor generate_square_subsequent_mask(int64_t size);
  TransformerOptions options;
  AnyModule encoder, decoder;
  FORWARD_HAS_DEFAULT_ARGS({2, AnyValue(Tensor())}, {3, AnyValue(Tensor())}, {4, AnyValue(Tensor())}, {5, AnyValue(Tensor())},
                           {6, AnyValue(Tensor())}, {7, AnyValue(Tensor())})
};
HS_TORCH_HOLDER(Transformer)

}  // namespace torch::nn
