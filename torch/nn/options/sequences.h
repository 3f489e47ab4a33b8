// SPDX-License-Identifier: Apache-2.0
// The options of recurrent layers and transformers.
#pragma once

#include "torch/nn/any.h"
#include "torch/nn/enums.h"

namespace torch::nn {

// ---- recurrent
#define HS_RNN_ARGS                       \
  TORCH_ARG(int64_t, input_size);         \
  TORCH_ARG(int64_t, hidden_size);        \
  HS_TORCH_ARG(int64_t, num_layers, 1);   \
  HS_TORCH_ARG(bool, bias, true);         \
  HS_TORCH_ARG(bool, batch_first, false); \
  HS_TORCH_ARG(double, dropout, 0.0);     \
  HS_TORCH_ARG(bool, bidirectional, false);
struct RNNOptions {
  using nonlinearity_t = std::variant<enumtype::kTanh, enumtype::kReLU>;
  RNNOptions(int64_t in, int64_t hidden) : input_size_(in), hidden_size_(hidden) {}
  HS_RNN_ARGS
  HS_TORCH_ARG(nonlinearity_t, nonlinearity, kTanh);
};
struct LSTMOptions {
  LSTMOptions(int64_t in, int64_t hidden) : input_size_(in), hidden_size_(hidden) {}
  HS_RNN_ARGS
  HS_TORCH_ARG(int64_t, proj_size, 0);
};
struct GRUOptions {
  GRUOptions(int64_t in, int64_t hidden) : input_size_(in), hidden_size_(hidden) {}
  HS_RNN_ARGS
};
// The options of any recurrent layer, to be read.
#define HS_RNN_GETTER(T, name)              \
 public:                                    \
  const T& name() const { return name##_; } \
                                            \
 private:                                   \
  T name##_
class RNNOptionsBase {
 public:
  template <class Options>
  explicit RNNOptionsBase(const Options& o)
      : input_size_(o.input_size()),
        hidden_size_(o.hidden_size()),
        num_layers_(o.num_layers()),
        bias_(o.bias()),
        batch_first_(o.batch_first()),
        dropout_(o.dropout()),
        bidirectional_(o.bidirectional()) {
    if constexpr (requires { o.proj_size(); }) proj_size_ = o.proj_size();
  }
  HS_RNN_GETTER(int64_t, input_size);
  HS_RNN_GETTER(int64_t, hidden_size);
  HS_RNN_GETTER(int64_t, num_layers);
  HS_RNN_GETTER(bool, bias);
  HS_RNN_GETTER(bool, batch_first);
  HS_RNN_GETTER(double, dropout);
  HS_RNN_GETTER(bool, bidirectional);
  HS_RNN_GETTER(int64_t, proj_size) = 0;
};
#undef HS_RNN_GETTER
#undef HS_RNN_ARGS
struct RNNCellOptions {
  using nonlinearity_t = std::variant<enumtype::kTanh, enumtype::kReLU>;
  RNNCellOptions(int64_t in, int64_t hidden) : input_size_(in), hidden_size_(hidden) {}
  TORCH_ARG(int64_t, input_size);
  TORCH_ARG(int64_t, hidden_size);
  HS_TORCH_ARG(bool, bias, true);
  HS_TORCH_ARG(nonlinearity_t, nonlinearity, kTanh);
};
struct LSTMCellOptions {
  LSTMCellOptions(int64_t in, int64_t hidden) : input_size_(in), hidden_size_(hidden) {}
  TORCH_ARG(int64_t, input_size);
  TORCH_ARG(int64_t, hidden_size);
  HS_TORCH_ARG(bool, bias, true);
};
using GRUCellOptions = LSTMCellOptions;

// ---- transformers
using activation_t = std::variant<enumtype::kReLU, enumtype::kGELU, std::function<Tensor(const Tensor&)>>;
#define HS_LAYER_ARGS                           \
  TORCH_ARG(int64_t, d_model);                  \
  TORCH_ARG(int64_t, nhead);                    \
  HS_TORCH_ARG(int64_t, dim_feedforward, 2048); \
  HS_TORCH_ARG(double, dropout, 0.1);           \
  HS_TORCH_ARG(activation_t, activation, kReLU);
struct TransformerEncoderLayerOptions {
  TransformerEncoderLayerOptions(int64_t d, int64_t h) : d_model_(d), nhead_(h) {}
  HS_LAYER_ARGS
};
struct TransformerDecoderLayerOptions {
  TransformerDecoderLayerOptions(int64_t d, int64_t h) : d_model_(d), nhead_(h) {}
  HS_LAYER_ARGS
};
struct TransformerOptions {
  TransformerOptions() = default;
  TransformerOptions(int64_t d, int64_t h) : d_model_(d), nhead_(h) {}
  TransformerOptions(int64_t d, int64_t h, int64_t e, int64_t dec)
      : d_model_(d), nhead_(h), num_encoder_layers_(e), num_decoder_layers_(dec) {}
  HS_TORCH_ARG(int64_t, d_model, 512);
  HS_TORCH_ARG(int64_t, nhead, 8);
  HS_TORCH_ARG(int64_t, num_encoder_layers, 6);
  HS_TORCH_ARG(int64_t, num_decoder_layers, 6);
  HS_TORCH_ARG(int64_t, dim_feedforward, 2048);
  HS_TORCH_ARG(double, dropout, 0.1);
  HS_TORCH_ARG(activation_t, activation, kReLU);
  HS_TORCH_ARG(AnyModule, custom_encoder, AnyModule());
  HS_TORCH_ARG(AnyModule, custom_decoder, AnyModule());
};
#undef HS_LAYER_ARGS

}  // namespace torch::nn
