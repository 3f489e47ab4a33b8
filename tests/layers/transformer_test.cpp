// SPDX-License-Identifier: Apache-2.0
// Attention and transformers: errors for wrong arguments and inputs, initial weights, masks, dropout and memory. Their values are
// held against PyTorch's in calls_test.cpp.
#include "layers/sequences/transformer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "framework/autograd/grad_mode.h"
#include "framework/tensor/memory.h"
#include "layers/containers/sequential.h"
#include "tests/layers/support.h"
#include "tests/support/errors.h"

using namespace halfstep;
using namespace halfstep::testing;
using halfstep::testing::refuses;

namespace {

double difference(const Tensor& a, const Tensor& b) { return largest(a - b); }

}  // namespace

TEST_CASE("attention refuses heads, widths and lengths that do not fit") {
  refuses<ValueError>("[MultiheadAttention] embed_dim must be divisible by num_heads, got 6 and 4",
                      [] { MultiheadAttention(6, 4); });
  refuses<ValueError>("[MultiheadAttention] num_heads must be >= 1, got 0", [] { MultiheadAttention(6, 0); });
  refuses<ValueError>("[MultiheadAttention] dropout must be in [0, 1], got 1.5",
                      [] { MultiheadAttention(6, 2, {.dropout = 1.5}); });
  refuses<ValueError>("[MultiheadAttention] kdim must be >= 1, got 0",
                      [] { MultiheadAttention(6, 2, {.kdim = 0}); });
  MultiheadAttention a(4, 2, {.kdim = 3, .batch_first = true});
  const Tensor q = ones({2, 5, 4}), k = ones({2, 7, 3}), v = ones({2, 7, 4});
  refuses<ShapeError>(
      "[MultiheadAttention] query, key and value must all have 2 dimensions, or 3 with a batch, got [2, 5, 4], [7, 3] and [2, 7, "
      "4]",
      [&] { a(q, k[0], v); });
  refuses<ShapeError>("[MultiheadAttention] query's last dimension must be embed_dim, 4, got [2, 5, 3]", [&] {
    a(ones({2, 5, 3}), k, v);
  });
  refuses<ShapeError>("[MultiheadAttention] key's last dimension must be kdim, 3, got [2, 7, 4]", [&] { a(q, v, v); });
  refuses<ShapeError>("[MultiheadAttention] value's last dimension must be vdim, 4, got [2, 7, 3]", [&] { a(q, k, k); });
  refuses<ShapeError>(
      "[MultiheadAttention] query, key and value must have one batch, key and value one length, with batch_first=true, got "
      "[2, 5, 4], [2, 7, 3] and [2, 6, 4]",
      [&] { a(q, k, v.narrow(1, 0, 6)); });
  refuses<ShapeError>(
      "[MultiheadAttention] query, key and value must have one batch, key and value one length, with batch_first=true, got "
      "[1, 5, 4], [2, 7, 3] and [2, 7, 4]",
      [&] { a(q.narrow(0, 0, 1), k, v); });
}

TEST_CASE("attention refuses masks of other shapes and of integers") {
  MultiheadAttention a(4, 2, {.batch_first = true});
  const Tensor q = ones({2, 5, 4}), k = ones({2, 7, 4});
  const auto mask = [](const Shape& shape) { return zeros(shape, {.dtype = DType::boolean}); };
  refuses<ShapeError>("[MultiheadAttention] attn_mask must be [L, S], [5, 7], or [N num_heads, L, S], [4, 5, 7], got [7, 5]", [&] {
    a(q, k, k, {.attn_mask = mask({7, 5})});
  });
  refuses<ShapeError>("[MultiheadAttention] attn_mask must be [L, S], [5, 7], or [N num_heads, L, S], [4, 5, 7], got [2, 5, 7]",
                      [&] {
                        a(q, k, k, {.attn_mask = mask({2, 5, 7})});
                      });
  refuses<ShapeError>("[MultiheadAttention] key_padding_mask must be [N, S], [2, 7], got [7, 2]", [&] {
    a(q, k, k, {.key_padding_mask = mask({7, 2})});
  });
  refuses<ShapeError>("[MultiheadAttention] key_padding_mask must be [S], [7], got [1, 7]", [&] {
    a(q[0], k[0], k[0], {.key_padding_mask = mask({1, 7})});
  });
  refuses<DTypeError>("[MultiheadAttention] attn_mask must be bool or floating, got int64", [&] {
    a(q, k, k, {.attn_mask = zeros({5, 7}, {.dtype = DType::i64})});
  });
}

TEST_CASE("transformers refuse what does not fit") {
  refuses<ValueError>("[TransformerActivation] must be \"relu\", \"gelu\", \"gelu_tanh\" or a function, got \"tanh\"",
                      [] { TransformerEncoderLayer(4, 2, {.activation = "tanh"}); });
  refuses<ValueError>("[TransformerLayer] dim_feedforward must be >= 1, got 0",
                      [] { TransformerEncoderLayer(4, 2, {.dim_feedforward = 0}); });
  refuses<ValueError>("[MultiheadAttention] embed_dim must be divisible by num_heads, got 4 and 3",
                      [] { TransformerDecoderLayer(4, 3); });
  refuses<ValueError>("[TransformerEncoder] num_layers must be >= 1, got -1",
                      [] { TransformerEncoder(make<TransformerEncoderLayer>(4, 2), -1); });
  refuses<ValueError>("[TransformerEncoder] num_layers must be >= 1, got 0",
                      [] { TransformerEncoder(make<TransformerEncoderLayer>(4, 2), 0); });
  refuses<ValueError>("[TransformerDecoder] num_layers must be >= 1, got 0",
                      [] { TransformerDecoder(make<TransformerDecoderLayer>(4, 2), 0); });
  Transformer t({.d_model = 4, .nhead = 2, .num_encoder_layers = 1, .num_decoder_layers = 1, .dim_feedforward = 8});
  refuses<ShapeError>("[Transformer] src and tgt must have d_model, 4, as their last dimension, got [3, 1, 5] and [3, 1, 4]", [&] {
    t(ones({3, 1, 5}), ones({3, 1, 4}));
  });
  refuses<ShapeError>("[Transformer] src and tgt must have one batch, got [3, 2, 4] and [3, 1, 4]", [&] {
    t(ones({3, 2, 4}), ones({3, 1, 4}));
  });
  Sequential net(make<TransformerDecoderLayer>(4, 2));
  CHECK_THROWS_AS(net(ones({3, 2, 4})), ValueError);  // it needs what an encoder gave
}

TEST_CASE("attention begins as PyTorch's: xavier matrices, biases of zeros") {
  Generator generator(3);
  MultiheadAttention a(64, 4, {.add_bias_kv = true}, &generator);
  const double bound = std::sqrt(6.0 / (64 + 3 * 64));
  CHECK(largest(a.in_proj_weight) <= bound);
  CHECK(largest(a.in_proj_weight) > 0.99 * bound);
  CHECK(largest(a.in_proj_bias) == 0);
  CHECK(largest(a.out_proj->bias) == 0);
  CHECK(largest(a.out_proj->weight) <= 1 / std::sqrt(64.0));
  CHECK(largest(a.out_proj->weight) > 0.99 / std::sqrt(64.0));
  const double expected = std::sqrt(2.0 / (64 + 64));  // of [1, 1, 64]: both fans are 64
  CHECK(a.bias_k.detach().square().mean().item<double>() > 0.2 * expected * expected);
  MultiheadAttention apart(64, 4, {.kdim = 32}, &generator);
  CHECK(largest(apart.k_proj_weight) <= std::sqrt(6.0 / 96));
  CHECK(largest(apart.k_proj_weight) > 0.99 * std::sqrt(6.0 / 96));
  Transformer t({.d_model = 32, .nhead = 2, .num_encoder_layers = 1, .num_decoder_layers = 1, .dim_feedforward = 96});
  const Tensor w = t.encoder->layers->at<TransformerEncoderLayer>(0).linear1->weight;
  CHECK(largest(w) <= std::sqrt(6.0 / 128));
  CHECK(largest(w) > 0.99 * std::sqrt(6.0 / 128));
}

TEST_CASE("a query that may see no key gets zeros, with weights and without, and no gradient is NaN") {
  manual_seed(1);
  MultiheadAttention a(4, 2, {.bias = false, .batch_first = true});
  const Tensor x = randn({1, 3, 4}), none = zeros({1, 3}, {.dtype = DType::boolean}), minus = zeros({3, 3});
  const NoGrad off;
  const Tensor blind = where(arange(3).unsqueeze(1) == 1, full({3, 3}, -INFINITY), 0.0);
  for (const Tensor& mask : {blind, blind != 0}) {
    for (bool weights : {true, false}) {
      const auto [y, w] = a(x, x, x, {.attn_mask = mask, .need_weights = weights});
      CHECK(largest(y[0][1]) == 0);
      CHECK(largest(y[0][0]) > 0);
      CHECK(w.defined() == weights);
      if (weights) CHECK(largest(w[0][1]) == 0);
    }
  }
  const EnableGrad on;
  const Tensor z = randn({1, 3, 4}).set_requires_grad();
  const auto [y, w] = a(z, z, z, {.attn_mask = blind});
  y.sum().backward();
  CHECK(std::isfinite(largest(z.grad())));
}

TEST_CASE("is_causal without a mask is the causal mask, whatever else is asked for") {
  manual_seed(2);
  for (const MultiheadAttentionOptions& o :
       {MultiheadAttentionOptions{.batch_first = true},
        MultiheadAttentionOptions{.add_bias_kv = true, .add_zero_attn = true, .batch_first = true}}) {
    MultiheadAttention a(4, 2, o);
    const Tensor x = randn({2, 5, 4}), mask = triu(ones({5, 5}, {.dtype = DType::boolean}), 1);
    for (bool weights : {true, false}) {
      const Tensor want = a(x, x, x, {.attn_mask = mask, .need_weights = weights}).first;
      CHECK(difference(a(x, x, x, {.need_weights = weights, .is_causal = true}).first, want) < 1e-6);
    }
    CHECK(difference(a(x, x, x, {.need_weights = true, .is_causal = true}).first,
                     a(x, x, x, {.need_weights = false, .is_causal = true}).first) < 1e-6);
  }
  const Tensor float_mask = Transformer::generate_square_subsequent_mask(3);
  CHECK(float_mask.to_vector<float>() == std::vector<float>{0, -INFINITY, -INFINITY, 0, 0, -INFINITY, 0, 0, 0});
}

TEST_CASE("dropout of attention's probabilities works in training alone, and keeps their mean") {
  manual_seed(3);
  MultiheadAttention a(8, 2, {.dropout = 0.5, .batch_first = true});
  const Tensor x = randn({64, 16, 8});
  const auto [y, w] = a(x, x, x, {.average_attn_weights = false});
  const double dropped = (w == 0).to(DType::f64).mean().item<double>();
  CHECK(std::abs(dropped - 0.5) < 0.02);
  CHECK(std::abs(w.sum(Dims{-1}).mean().item<double>() - 1) < 0.02);
  CHECK(difference(a(x, x, x).first, a(x, x, x).first) > 0.01);
  a.eval();
  CHECK(difference(a(x, x, x).first, a(x, x, x).first) == 0);
}

TEST_CASE("without weights the scores are never all in memory") {
  const NoGrad off;
  MultiheadAttention a(16, 4, {.batch_first = true});
  const Tensor x = randn({1, 2048, 16});
  const auto peak = [&](bool weights) {
    Allocator& memory = allocator(Device::cpu);
    const size_t before = memory.stats().live;
    memory.reset_peak();
    a(x, x, x, {.need_weights = weights});
    return memory.stats().peak - before;
  };
  const size_t scores = size_t(4) * 2048 * 2048 * 4;
  CHECK(peak(true) > scores);
  CHECK(peak(false) < scores / 8);
}

TEST_CASE("hooks of a block's layers see each layer's own tensors, and those of a call its masks") {
  manual_seed(4);
  TransformerEncoderLayer layer(4, 2, {.dim_feedforward = 8, .dropout = 0, .batch_first = true});
  const Tensor x = randn({2, 3, 4});
  const Tensor want = layer(x);
  bool negative = false;
  size_t given = 0;
  layer.linear1->register_forward_hook([&](Module&, const Tensors&, const Tensors& out) {
    negative = out[0].detach().min().item<double>() < 0;  // before the ReLU
  });
  layer.register_forward_pre_hook([&](Module&, const Tensors& in) { given = in.size(); });
  CHECK(difference(layer(x), want) == 0);
  CHECK(negative);
  CHECK(given == 1);
  layer(x, {.src_key_padding_mask = zeros({2, 3}, {.dtype = DType::boolean})});
  CHECK(given == 3);
}

TEST_CASE("an encoder's layers begin alike and are trained apart; functions are activations, too") {
  const auto layer = make<TransformerEncoderLayer>(
      4, 2, TransformerLayerOptions{.dim_feedforward = 8, .dropout = 0, .activation = [](const Tensor& x) { return silu(x); }});
  TransformerEncoder encoder(layer, 2);
  const auto& first = encoder.layers->at<TransformerEncoderLayer>(0);
  const auto& second = encoder.layers->at<TransformerEncoderLayer>(1);
  CHECK(difference(first.linear1->weight, second.linear1->weight) == 0);
  CHECK_FALSE(first.linear1->weight.same(second.linear1->weight));
  CHECK_FALSE(first.linear1->weight.same(layer->linear1->weight));
  encoder(randn({3, 2, 4})).square().sum().backward();
  CHECK(difference(first.linear1->weight.grad(), second.linear1->weight.grad()) > 0);
}
