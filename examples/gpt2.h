// SPDX-License-Identifier: Apache-2.0
// GPT-2 (Radford et al., 2019) with the names of Hugging Face's checkpoints.
#pragma once

#include <cmath>
#include <cstdint>

#include "halfstep.h"

using namespace halfstep;

struct GptConfig {
  int64_t tokens = 50257, positions = 1024, width = 768, blocks = 12, heads = 12;
  double dropout = 0.1;
};

struct Conv1D : Module {  // a Linear whose weight is [in, out]
  Parameter weight, bias;
  Conv1D(int64_t in, int64_t out, double std)
      : weight(register_parameter("weight", empty({in, out}))), bias(register_parameter("bias", zeros({out}))) {
    init::normal_(weight, 0, std);
  }
  Tensor forward(const Tensor& x) override {
    return addmm(bias, x.flatten(0, 1), weight).reshape({x.size(0), x.size(1), weight.size(1)});
  }
};

// Of weights whose results are added to the residual stream.
inline double residual_std(const GptConfig& c) { return 0.02 / std::sqrt(2.0 * double(c.blocks)); }

struct Attention : Module {
  GptConfig c;
  Part<Conv1D> c_attn{this, "c_attn", c.width, 3 * c.width, 0.02};
  Part<Conv1D> c_proj{this, "c_proj", c.width, c.width, residual_std(c)};
  explicit Attention(const GptConfig& config) : c(config) {}
  Tensor forward(const Tensor& x) override {
    Tensors qkv = split(c_attn(x), c.width, 2);
    for (Tensor& t : qkv) t = unflatten(t, 2, {c.heads, c.width / c.heads}).transpose(1, 2);
    const double p = training() ? c.dropout : 0;
    const Tensor seen = scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {.dropout_p = p, .is_causal = true});
    return dropout(c_proj(seen.transpose(1, 2).flatten(2)), p);
  }
};

struct Mlp : Module {
  GptConfig c;
  Part<Conv1D> c_fc{this, "c_fc", c.width, 4 * c.width, 0.02};
  Part<Conv1D> c_proj{this, "c_proj", 4 * c.width, c.width, residual_std(c)};
  explicit Mlp(const GptConfig& config) : c(config) {}
  Tensor forward(const Tensor& x) override { return dropout(c_proj(gelu_tanh(c_fc(x))), c.dropout, training()); }
};

struct Block : Module {
  GptConfig c;
  Part<LayerNorm> ln_1{this, "ln_1", c.width};
  Part<Attention> attn{this, "attn", c};
  Part<LayerNorm> ln_2{this, "ln_2", c.width};
  Part<Mlp> mlp{this, "mlp", c};
  explicit Block(const GptConfig& config) : c(config) {}
  void pass(ResidualStream& x) {
    x.add(attn(x.through(*ln_1, &*attn)));  // x += attn(ln_1(x)); the next norm adds the branch in its own pass
    x.add(mlp(x.through(*ln_2, &*mlp)));
  }
  Tensor forward(const Tensor& in) override {
    ResidualStream x(in);
    pass(x);
    return x.value();
  }
};

struct Body : Module {
  GptConfig c;
  Part<Embedding> wte{this, "wte", c.tokens, c.width};
  Part<Embedding> wpe{this, "wpe", c.positions, c.width};
  Part<ModuleList> h{this, "h"};
  Part<LayerNorm> ln_f{this, "ln_f", c.width};
  explicit Body(const GptConfig& config) : c(config) {
    for (int64_t i = 0; i < c.blocks; ++i) h->append(Block(c));
    for (const Tensor& weight : {wte->weight, wpe->weight}) init::normal_(weight, 0, 0.02);
  }
  Tensor forward(const Tensor& ids) override {  // [batch, length] -> [batch, length, width]
    const Tensor places = arange(double(ids.size(1)), {.dtype = DType::i64, .device = ids.device()});
    ResidualStream x(dropout(wte(ids) + wpe(places), c.dropout, training()));
    for (size_t i = 0; i < h->size(); ++i) x.pass(h->at<Block>(i));
    return x.through(*ln_f);
  }
};

struct Gpt2 : Module {
  GptConfig c;
  Part<Body> transformer{this, "transformer", c};
  Part<Linear> lm_head{this, "lm_head", c.width, c.tokens, false};
  explicit Gpt2(const GptConfig& config) : c(config) { lm_head->weight = transformer->wte->weight; }
  Tensor forward(const Tensor& ids) override { return lm_head(transformer(ids)); }  // -> [batch, length, tokens]
};
