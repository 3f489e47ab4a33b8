// SPDX-License-Identifier: Apache-2.0
// Layers compute what halfstep's layers and functions compute, to the bit, and print as libtorch's.
#include <doctest/doctest.h>

#include "halfstep.h"
#include "tests/torch/support.h"

namespace F = torch::nn::functional;
namespace hs = halfstep;

namespace {

// Whether a layer prints `text`, and gives the result of `expected`, with its gradient, on x.
template <class Layer, class E>
void check_layer(Layer layer, const char* text, const torch::Tensor& x, const E& expected) {
  CHECK(printed(layer) == text);
  const torch::Tensor a = x.clone().requires_grad_(), b = x.clone().requires_grad_();
  const torch::Tensor y = layer(a);
  const hs::Tensor z = expected(b.h());
  CHECK(y.equal(torch::Tensor(z)));
  (y * y).sum().backward();
  (z * z).sum().backward();
  CHECK(a.grad().equal(b.grad()));
}

}  // namespace

TEST_CASE("torch: layers with parameters") {
  torch::manual_seed(3);
  torch::nn::Linear linear(4, 3);
  check_layer(linear, "torch::nn::Linear(in_features=4, out_features=3, bias=true)", torch::randn({2, 4}),
              [&](const hs::Tensor& x) { return hs::linear(x, linear->weight, linear->bias); });
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(2, 4, 3).stride(2).padding(1).groups(2).bias(false));
  check_layer(conv, "torch::nn::Conv2d(2, 4, kernel_size=[3, 3], stride=[2, 2], padding=[1, 1], groups=2, bias=false)",
              torch::randn({1, 2, 6, 6}),
              [&](const hs::Tensor& x) { return hs::conv2d(x, conv->weight, {}, {.stride = 2, .padding = 1, .groups = 2}); });
  torch::nn::Conv1d same(torch::nn::Conv1dOptions(1, 1, 3).padding(torch::kSame));
  CHECK(same(torch::ones({1, 1, 5})).size(2) == 5);
  torch::nn::Conv1d circular(torch::nn::Conv1dOptions(1, 1, 3).padding(1).padding_mode(torch::kCircular));
  check_layer(circular, "torch::nn::Conv1d(1, 1, kernel_size=3, stride=1, padding=1, padding_mode=kCircular)",
              torch::randn({1, 1, 5}), [&](const hs::Tensor& x) {
                return hs::conv1d(hs::pad(x, {1, 1}, "circular"), circular->weight, circular->bias);
              });
  torch::nn::ConvTranspose2d up(torch::nn::ConvTranspose2dOptions(2, 1, 2).stride(2));
  CHECK(up(torch::ones({1, 2, 3, 3})).sizes() == torch::IntArrayRef({1, 1, 6, 6}));
  const std::vector<int64_t> wanted{7, 7};
  CHECK(up->forward(torch::ones({1, 2, 3, 3}), torch::IntArrayRef(wanted)).size(3) == 7);
  const std::vector<int64_t> impossible{9, 9};
  CHECK(has(message_of([&] {
              up->forward(torch::ones({1, 2, 3, 3}), torch::IntArrayRef(impossible));
            }),
            "valid sizes range from 6"));
  CHECK(has(message_of([] { torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3).groups(2)); }), "divisible by groups"));
}

TEST_CASE("torch: a seed gives libtorch's weights and draws") {  // the numbers are PyTorch 2.15's for the seed 0
  const auto begins = [](const torch::Tensor& x, const std::vector<float>& wanted) {
    const torch::Tensor flat = x.detach().flatten();
    for (size_t i = 0; i < wanted.size(); ++i) CHECK(flat[int64_t(i)].item<float>() == wanted[i]);
  };
  torch::manual_seed(0);
  begins(torch::rand({2}), {0.49625658988952637f, 0.7682217955589294f});
  begins(torch::randn({2}), {-0.29050925374031067f, -1.0703703165054321f});
  torch::manual_seed(0);
  torch::nn::Linear linear(2, 1);
  begins(linear->weight, {-0.005293981172144413f, 0.37932288646698f});
  begins(linear->bias, {-0.5819807648658752f});
  torch::manual_seed(0);
  torch::nn::Conv2d conv(1, 1, 2);
  begins(conv->weight, {-0.003743410110473633f, 0.26822179555892944f});
  begins(conv->bias, {-0.19257718324661255f});
  torch::manual_seed(0);
  begins(torch::nn::Embedding(2, 2)->weight, {1.5409960746765137f, -0.293428897857666f});
  torch::manual_seed(0);
  begins(torch::nn::LSTM(1, 1)->named_parameters()["weight_hh_l0"], {-0.3851543664932251f, 0.26815736293792725f});
  torch::manual_seed(0);
  begins(torch::dropout(torch::ones({8}), 0.5, true), {0, 0, 2, 0, 0, 0, 2, 2});
}

TEST_CASE("torch: norms keep running statistics") {
  torch::nn::BatchNorm2d norm(3);
  CHECK(printed(norm) == "torch::nn::BatchNorm2d(3, eps=1e-05, momentum=0.1, affine=true, track_running_stats=true)");
  const torch::Tensor x = torch::randn({4, 3, 5, 5});
  norm(x);
  CHECK(norm->num_batches_tracked.item<int64_t>() == 1);
  CHECK(norm->running_mean.allclose(x.mean({0, 2, 3}) * 0.1, 1e-4, 1e-6));
  norm->eval();
  norm(x);
  CHECK(norm->num_batches_tracked.item<int64_t>() == 1);
  CHECK(has(message_of([&] { norm(torch::ones({2, 3})); }), "expected 4D input (got 2D input)"));
  torch::nn::LayerNorm layer(torch::nn::LayerNormOptions({5}));
  check_layer(layer, "torch::nn::LayerNorm([5], eps=1e-05, elementwise_affine=true)", torch::randn({2, 5}),
              [&](const hs::Tensor& v) { return hs::layer_norm(v, {5}, layer->weight, layer->bias); });
}

TEST_CASE("torch: functions as layers, some in place") {
  const torch::Tensor x = torch::tensor({-2.0, -0.5, 0.5, 2.0});
  check_layer(torch::nn::LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.2)), "torch::nn::LeakyReLU(negative_slope=0.2)",
              x, [](const hs::Tensor& v) { return hs::leaky_relu(v, 0.2); });
  check_layer(torch::nn::Softmax(0), "torch::nn::Softmax(dim=0)", x, [](const hs::Tensor& v) { return hs::softmax(v, 0); });
  torch::Tensor y = x.clone();
  torch::nn::ReLU(torch::nn::ReLUOptions(true))(y);
  CHECK(y.equal(torch::tensor({0.0, 0.0, 0.5, 2.0})));
  CHECK(printed(torch::nn::ELU(torch::nn::ELUOptions().alpha(2).inplace(true))) == "torch::nn::ELU(alpha=2, inplace=true)");
  torch::nn::Dropout drop(0.5);
  drop->eval();
  CHECK(drop(x).equal(x));
  CHECK(has(message_of([] { torch::nn::Dropout(1.5); }), "has to be between 0 and 1, but got 1.5"));
  CHECK(F::max_pool1d(torch::arange(6, torch::kFloat).view({1, 1, 6}), F::MaxPool1dFuncOptions(2))
            .equal(torch::tensor({{{1.0, 3.0, 5.0}}})));
  CHECK(torch::nn::AdaptiveAvgPool2d(torch::nn::AdaptiveAvgPool2dOptions({2, 3}))(torch::ones({1, 1, 6, 6})).size(3) == 3);
  CHECK(F::pad(torch::ones({1, 2}), F::PadFuncOptions({1, 1}).value(5)).equal(torch::tensor({{5.0, 1.0, 1.0, 5.0}})));
}

TEST_CASE("torch: losses") {
  const torch::Tensor x = torch::tensor({{0.5, -1.0}, {2.0, 0.0}}), classes = torch::tensor({0, 1});
  CHECK(torch::nn::CrossEntropyLoss()(x, classes).equal(torch::Tensor(hs::cross_entropy(x, classes))));
  CHECK(torch::nn::MSELoss(torch::nn::MSELossOptions(torch::kSum))(x, torch::zeros({2, 2})).item<float>() == 5.25f);
  CHECK(F::l1_loss(x, torch::zeros({2, 2}), F::L1LossFuncOptions(torch::kNone)).equal(x.abs()));
  CHECK(torch::nll_loss(x.log_softmax(1), classes, {}, torch::Reduction::Sum)
            .allclose(F::cross_entropy(x, classes, F::CrossEntropyFuncOptions().reduction(torch::kSum))));
  // The outputs of a discriminator, [N, 1, 1, 1], against N labels.
  const torch::Tensor p = x.sigmoid().flatten(), y = torch::tensor({1.0, 0.0, 1.0, 0.0});
  CHECK(torch::binary_cross_entropy(p.reshape({4, 1, 1, 1}), y).equal(torch::binary_cross_entropy(p, y)));
  CHECK_THROWS(torch::binary_cross_entropy(p, y.narrow(0, 0, 1)));
  torch::nn::NLLLoss weighted(torch::nn::NLLLossOptions().weight(torch::tensor({1.0, 0.0})));
  CHECK(weighted(x.log_softmax(1), classes).allclose(-x.log_softmax(1)[0][0]));
  CHECK(weighted->named_buffers().contains("weight"));
}

TEST_CASE("torch: embeddings have dense gradients, and say so") {
  torch::nn::Embedding table(torch::nn::EmbeddingOptions(4, 2).padding_idx(-1));
  CHECK(table->weight[3].abs().sum().item<float>() == 0);
  CHECK(table->options.padding_idx() == 3);
  CHECK(table(torch::tensor({0, 3})).size(0) == 2);
  CHECK(has(message_of([] { torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 2).sparse(true)); }), "leave out sparse(true)"));
  CHECK(has(message_of([] { torch::nn::EmbeddingBag(torch::nn::EmbeddingBagOptions(4, 2).sparse(true)); }), "sparse"));
  const auto frozen = torch::nn::Embedding::from_pretrained(torch::ones({3, 2}));
  CHECK(!frozen->weight.requires_grad());
}

TEST_CASE("torch: recurrent layers, packed sequences and attention agree with halfstep's ops") {
  torch::manual_seed(5);
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(3, 4).num_layers(2).bidirectional(true));
  CHECK(lstm->named_parameters().keys()[7] == "bias_hh_l0_reverse");
  const torch::Tensor x = torch::randn({5, 2, 3});
  auto [y, state] = lstm(x);
  CHECK(y.sizes() == torch::IntArrayRef({5, 2, 8}));
  CHECK(std::get<1>(state).sizes() == torch::IntArrayRef({4, 2, 4}));
  const auto packed = torch::nn::utils::rnn::pack_padded_sequence(x, torch::tensor({5, 3}));
  const auto of_packed = std::get<0>(lstm->forward_with_packed_input(packed));
  auto [padded, lengths] = torch::nn::utils::rnn::pad_packed_sequence(of_packed);
  CHECK(lengths.equal(torch::tensor({5, 3})));
  CHECK(padded.select(1, 0).allclose(y.select(1, 0), 1e-5, 1e-6));
  torch::nn::GRUCell cell(3, 4);
  CHECK(cell(x[0]).sizes() == torch::IntArrayRef({2, 4}));
  CHECK(has(message_of([&] { cell(torch::ones({2, 5})); }), "got 5 expected 3"));
  torch::nn::MultiheadAttention attention(torch::nn::MultiheadAttentionOptions(8, 2));
  auto [out, weights] = attention(y, y, y);
  CHECK(out.sizes() == y.sizes());
  CHECK(weights.sum(-1).allclose(torch::ones({2, 5})));
  auto [same, by_head] = attention->forward(y, y, y, {}, true, {}, false);
  CHECK(by_head.sizes() == torch::IntArrayRef({2, 2, 5, 5}));
  torch::nn::Transformer transformer(torch::nn::TransformerOptions(8, 2, 1, 1).dim_feedforward(16).dropout(0));
  CHECK(transformer(y, y).sizes() == y.sizes());
}

TEST_CASE("torch: GELU's approximation, and padding by zeros and reflection in each number of dimensions") {
  namespace F = torch::nn::functional;
  const torch::Tensor x = torch::tensor({-1.0, 0.5, 2.0});
  const torch::Tensor near = torch::nn::GELU(torch::nn::GELUOptions().approximate("tanh"))->forward(x);
  CHECK(near.allclose(torch::tensor({-0.158808, 0.345714, 1.954598}), 1e-5));
  CHECK(torch::nn::GELU()->forward(x).allclose(torch::tensor({-0.158655, 0.345731, 1.954500}), 1e-5));
  CHECK(torch::gelu(x, "tanh").equal(near));
  CHECK(F::gelu(x, F::GELUFuncOptions().approximate("none")).equal(torch::gelu(x)));
  CHECK(has(message_of([&] { x.gelu("erf"); }), "must be either none or tanh, got erf"));
  CHECK(printed(torch::nn::GELU()) == "torch::nn::GELU()");

  CHECK(torch::nn::ZeroPad1d(1)->forward(torch::ones({1, 1, 2})).equal(torch::tensor({{{0.0, 1.0, 1.0, 0.0}}})));
  CHECK(torch::nn::ZeroPad3d(torch::nn::ZeroPad3dOptions({1, 0, 0, 1, 0, 0}))
            ->forward(torch::ones({1, 1, 1, 1, 1}))
            .view({-1})
            .equal(torch::tensor({0.0, 1.0, 0.0, 0.0})));
  CHECK(torch::nn::ReflectionPad3d(1)->forward(torch::arange(8.0).view({1, 1, 2, 2, 2})).sum().item<double>() == 224);
}

TEST_CASE("torch: an adaptive softmax takes one sample") {
  torch::nn::AdaptiveLogSoftmaxWithLoss softmax(torch::nn::AdaptiveLogSoftmaxWithLossOptions(4, 6, {2}));
  const torch::Tensor x = torch::ones({4}), target = torch::tensor(3);
  const auto one = softmax(x, target), batch = softmax(x.unsqueeze(0), target.unsqueeze(0));
  CHECK(one.output.dim() == 0);
  CHECK(one.output.item<float>() == batch.output[0].item<float>());
  CHECK(one.loss == batch.loss);
  CHECK(has(message_of([&] { softmax(x.unsqueeze(0), target); }), "0D target tensor expects 1D input"));
}

TEST_CASE("torch: functions check what libtorch's check, in its words") {
  CHECK(has(message_of([] { F::fold(torch::ones({1, 1, 2, 2}), F::FoldFuncOptions({2, 2}, {1, 1})); }), "(2D) or batched (3D)"));
  CHECK(has(message_of([] { F::unfold(torch::ones({1, 2, 2}), F::UnfoldFuncOptions({1, 1})); }), "Only 4D input"));
  CHECK(has(message_of([] { F::affine_grid(torch::ones({1, 2, 3}), {1, 1, 0, 2}); }), "Expected non-zero, positive output size"));
  CHECK(has(message_of([] {
              F::binary_cross_entropy_with_logits(torch::ones({2, 1}), torch::ones({2}));
            }),
            "Target size ([2]) must be the same as input size ([2, 1])"));
  CHECK(has(message_of([] {
              F::affine_grid(torch::ones({1, 2, 3}, torch::kInt), {1, 1, 2, 2});
            }),
            "floating point type, but got int"));
  CHECK(has(message_of([] { F::affine_grid(torch::ones({1, 2, 3}), {1, 1, 2}); }), "only supports 4D and 5D sizes"));
  CHECK(has(message_of([] { F::affine_grid(torch::ones({2, 3}), {1, 1, 2, 2}); }), "2D affine matrices of shape Nx2x3 for size"));
  torch::nn::ConvTranspose1d wrapped(torch::nn::ConvTranspose1dOptions(1, 1, 2).padding_mode(torch::kCircular));
  CHECK(has(message_of([&] { wrapped(torch::ones({1, 1, 4})); }), "Only `zeros` padding mode is supported for ConvTranspose1d"));
  namespace rnn = torch::nn::utils::rnn;
  CHECK(has(message_of([] {
              rnn::pack_padded_sequence(torch::ones({3, 2, 1}), torch::tensor({1, 3}));
            }),
            "`enforce_sorted=False`"));
  CHECK(has(message_of([] { rnn::pack_padded_sequence(torch::ones({0, 0}), torch::tensor({1})); }), "Cannot pack empty tensors"));
  CHECK(has(message_of([] { rnn::pack_sequence({torch::ones({1}), torch::ones({2})}); }), "sorted in decreasing order"));
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(3, 4).proj_size(2));
  CHECK(lstm->options_base.proj_size() == 2);
  CHECK(torch::nn::GRU(3, 4)->options_base.hidden_size() == 4);
}
