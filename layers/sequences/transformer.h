// SPDX-License-Identifier: Apache-2.0
// The transformer ("Attention Is All You Need", Vaswani et al., 2017): blocks of attention and a feed-forward net, and stacks of
// them.
//
//   const auto layer = make<TransformerEncoderLayer>(512, 8, TransformerLayerOptions{.batch_first = true, .norm_first = true});
//   TransformerEncoder encoder(layer, 6, make<LayerNorm>(512));
//   Tensor y = encoder(x, {.src_key_padding_mask = padding});
//
// Sequences are [L, N, d_model], with batch_first [N, L, d_model], or [L, d_model]. Masks, autocast and errors are those of
// MultiheadAttention.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "layers/containers/containers.h"
#include "layers/feedforward/dropout.h"
#include "layers/feedforward/normalization.h"
#include "layers/sequences/attention.h"
#include "layers/sequences/residual_stream.h"

namespace halfstep {

// The activation of a block: "relu", "gelu" (by erf), "gelu_tanh" (GPT-2's) or a function of your own.
class TransformerActivation {
 public:
  TransformerActivation(const char* name) : TransformerActivation(std::string(name)) {}
  TransformerActivation(const std::string& name);  // throws ValueError for unknown names
  template <class F>
  requires std::is_invocable_r_v<Tensor, F, const Tensor&> TransformerActivation(F function) : function_(std::move(function)) {}
  const std::string& name() const { return name_; }  // empty for a function of your own
  // Computes activation(linear(x)), of which a ReLU is fused into linear().
  Tensor behind(Linear& linear, const Tensor& x) const { return function_ ? function_(linear(x)) : linear.relu(x); }

 private:
  std::string name_;
  std::function<Tensor(const Tensor&)> function_;  // empty: ReLU, which is fused into linear()
};

template <>
struct OptionMember<TransformerActivation> {
  static constexpr OptionKind kKind = OptionKind::text;
  static OptionValue get(const TransformerActivation& member);  // no value for a function of your own
  static bool put(TransformerActivation& member, const OptionValue& value);
};

struct TransformerLayerOptions {
  int64_t dim_feedforward = 2048;
  double dropout = 0.1;  // of attention probabilities, and after attention, activation and feed-forward net
  TransformerActivation activation = "relu";
  double layer_norm_eps = 1e-5;
  bool batch_first = false;
  bool norm_first = false;
  bool bias = true;
  bool is_causal = false;  // for layer(x)
  static const OptionList<TransformerLayerOptions>& list();
};

struct EncoderInputs {
  Tensor src_mask = {};
  Tensor src_key_padding_mask = {};
  bool is_causal = false;

  template <class F>
  void each_tensor(F&& f) {
    f(src_mask);
    f(src_key_padding_mask);
  }
};
struct DecoderInputs {
  Tensor tgt_mask = {}, memory_mask = {};
  Tensor tgt_key_padding_mask = {}, memory_key_padding_mask = {};
  bool tgt_is_causal = false, memory_is_causal = false;

  template <class F>
  void each_tensor(F&& f) {
    f(tgt_mask);
    f(memory_mask);
    f(tgt_key_padding_mask);
    f(memory_key_padding_mask);
  }
};

// The base of encoder and decoder layers, with the feed-forward net: dropout(linear2(dropout(activation(linear1(x))))).
class TransformerBlock : public Module {
 public:
  static const Arguments<int64_t, int64_t>& arguments();
  bool is_recordable() const override { return true; }
  Part<Linear> linear1, linear2;
  Part<Dropout> dropout;

 protected:
  TransformerBlock(int64_t d_model, int64_t nhead, const TransformerLayerOptions& options);
  RegisteredPart<MultiheadAttention> add_attention(const char* name, int64_t d_model, int64_t nhead);
  void add_feed_forward(int64_t d_model);
  RegisteredPart<LayerNorm> add_norm(const char* name, int64_t d_model);
  RegisteredPart<Dropout> add_dropout(const char* name);
  // Computes x = norm(x + change(x)), or x += change(norm(x)) with norm_first. reader: the first module of `change`.
  template <class F>
  void add_residual(ResidualStream& x, LayerNorm& norm, const Module& reader, const F& change) const {
    const bool is_product = typeid(reader) == typeid(MultiheadAttention) || typeid(reader) == typeid(Linear);
    if (options_.norm_first) return x.add(change(x.through(norm, is_product ? &reader : nullptr)));
    x.add(change(x.value()));
    x = ResidualStream(x.through(norm));
  }
  Tensor feed_forward(const Tensor& x) const;
  TransformerLayerOptions options_;
};

// Computes x = norm1(x + dropout1(self_attn(x))), then norm2(x + ff(x)), where ff is the feed-forward net; with norm_first x +=
// dropout1(self_attn(norm1(x))), then x + ff(norm2(x)).
class TransformerEncoderLayer : public TransformerBlock {
 public:
  using Options = TransformerLayerOptions;
  static constexpr const char* kName = "TransformerEncoderLayer";
  using Call = Tensor(const Tensor&, const EncoderInputs&);
  TransformerEncoderLayer(Integer d_model, Integer nhead, const TransformerLayerOptions& options = {});
  Tensor forward(const Tensor& src, const EncoderInputs& inputs);
  Tensor forward(const Tensor& src) override { return forward(src, {.is_causal = options_.is_causal}); }
  using Module::operator();
  Tensor operator()(const Tensor& src, const EncoderInputs& inputs);
  // Compute x = layer(x, inputs), for ResidualStream::pass.
  void pass(ResidualStream& x, const EncoderInputs& inputs);
  void pass(ResidualStream& x) { pass(x, {.is_causal = options_.is_causal}); }
  std::string describe() const override { return "TransformerEncoderLayer"; }
  Part<MultiheadAttention> self_attn;
  Part<LayerNorm> norm1, norm2;
  Part<Dropout> dropout1, dropout2;

 private:
  void pass_parts(ResidualStream& x, const EncoderInputs& in);
};

// Adds to the encoder's layer, between its two parts, attention to `memory`, an encoder's output.
class TransformerDecoderLayer : public TransformerBlock {
 public:
  using Options = TransformerLayerOptions;
  static constexpr const char* kName = "TransformerDecoderLayer";
  using Call = Tensor(const Tensor&, const Tensor&, const DecoderInputs&);
  TransformerDecoderLayer(Integer d_model, Integer nhead, const TransformerLayerOptions& options = {});
  Tensor forward(const Tensor& tgt, const Tensor& memory, const DecoderInputs& inputs = {});
  using Module::forward;
  Tensor operator()(const Tensor& tgt, const Tensor& memory, const DecoderInputs& inputs = {});
  void pass(ResidualStream& x, const Tensor& memory, const DecoderInputs& inputs);  // x = layer(x, memory, inputs)
  std::string describe() const override { return "TransformerDecoderLayer"; }
  Part<MultiheadAttention> self_attn, multihead_attn;
  Part<LayerNorm> norm1, norm2, norm3;
  Part<Dropout> dropout1, dropout2, dropout3;

 private:
  void pass_parts(ResidualStream& x, const Tensor& memory, const DecoderInputs& in);
};

// Runs num_layers copies of a layer, and then `norm` if given. Throws ValueError for 0 layers.
class TransformerEncoder : public Module {
 public:
  static const Arguments<int64_t>& arguments();  // behind the layer
  using Call = Tensor(const Tensor&, const EncoderInputs&);
  TransformerEncoder(const std::shared_ptr<TransformerEncoderLayer>& encoder_layer, Integer num_layers,
                     std::shared_ptr<Module> norm = nullptr);
  TransformerEncoder(const TransformerEncoderLayer& encoder_layer, Integer num_layers, std::shared_ptr<Module> norm = nullptr)
      : TransformerEncoder(std::make_shared<TransformerEncoderLayer>(encoder_layer), num_layers, std::move(norm)) {}
  template <ModuleValue Norm>
  TransformerEncoder(const TransformerEncoderLayer& encoder_layer, Integer num_layers, Norm&& norm)
      : TransformerEncoder(encoder_layer, num_layers, as_shared(std::move(norm))) {}
  explicit TransformerEncoder(std::shared_ptr<ModuleList> layers, std::shared_ptr<Module> norm = nullptr);  // shares these layers
  Tensor forward(const Tensor& src, const EncoderInputs& inputs);
  Tensor forward(const Tensor& src) override;
  using Module::operator();
  Tensor operator()(const Tensor& src, const EncoderInputs& inputs);
  bool is_recordable() const override { return !norm || norm->is_recordable(); }
  std::string describe() const override { return "TransformerEncoder"; }
  Part<ModuleList> layers;
  Part<Module> norm;  // or null
};
class TransformerDecoder : public Module {
 public:
  using Call = Tensor(const Tensor&, const Tensor&, const DecoderInputs&);
  TransformerDecoder(const std::shared_ptr<TransformerDecoderLayer>& decoder_layer, Integer num_layers,
                     std::shared_ptr<Module> norm = nullptr);
  TransformerDecoder(const TransformerDecoderLayer& decoder_layer, Integer num_layers, std::shared_ptr<Module> norm = nullptr)
      : TransformerDecoder(std::make_shared<TransformerDecoderLayer>(decoder_layer), num_layers, std::move(norm)) {}
  template <ModuleValue Norm>
  TransformerDecoder(const TransformerDecoderLayer& decoder_layer, Integer num_layers, Norm&& norm)
      : TransformerDecoder(decoder_layer, num_layers, as_shared(std::move(norm))) {}
  explicit TransformerDecoder(std::shared_ptr<ModuleList> layers, std::shared_ptr<Module> norm = nullptr);  // shares these layers
  Tensor forward(const Tensor& tgt, const Tensor& memory, const DecoderInputs& inputs = {});
  using Module::forward;
  Tensor operator()(const Tensor& tgt, const Tensor& memory, const DecoderInputs& inputs = {});
  std::string describe() const override { return "TransformerDecoder"; }
  Part<ModuleList> layers;
  Part<Module> norm;
};

struct TransformerOptions {
  int64_t d_model = 512, nhead = 8;
  int64_t num_encoder_layers = 6, num_decoder_layers = 6;
  int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  TransformerActivation activation = "relu";
  double layer_norm_eps = 1e-5;
  bool batch_first = false, norm_first = false, bias = true;
  static const OptionList<TransformerOptions>& list();
};
struct TransformerInputs {
  Tensor src_mask = {}, tgt_mask = {}, memory_mask = {};
  Tensor src_key_padding_mask = {}, tgt_key_padding_mask = {}, memory_key_padding_mask = {};
  bool src_is_causal = false, tgt_is_causal = false, memory_is_causal = false;

  template <class F>
  void each_tensor(F&& f) {
    for (Tensor* t : {&src_mask, &tgt_mask, &memory_mask, &src_key_padding_mask, &tgt_key_padding_mask, &memory_key_padding_mask})
      f(*t);
  }
};

// Encoder and decoder, each with a norm at its end. Matrices are drawn by xavier_uniform_.
class Transformer : public Module {
 public:
  using Call = Tensor(const Tensor&, const Tensor&, const TransformerInputs&);
  using Options = TransformerOptions;
  static constexpr const char* kName = "Transformer";
  explicit Transformer(const TransformerOptions& options = {});
  Transformer(Integer d_model, Integer nhead) : Transformer(TransformerOptions{.d_model = d_model, .nhead = nhead}) {}
  Tensor forward(const Tensor& src, const Tensor& tgt, const TransformerInputs& inputs = {});
  using Module::forward;
  Tensor operator()(const Tensor& src, const Tensor& tgt, const TransformerInputs& inputs = {});
  std::string describe() const override { return "Transformer"; }
  // Returns [size, size] with -inf above the diagonal and 0 elsewhere.
  static Tensor generate_square_subsequent_mask(int64_t size, const TensorOptions& options = {});
  Part<TransformerEncoder> encoder;
  Part<TransformerDecoder> decoder;

 private:
  TransformerOptions options_;
};

}  // namespace halfstep
