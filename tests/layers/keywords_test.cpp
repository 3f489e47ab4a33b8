// SPDX-License-Identifier: Apache-2.0
// Layers whose required arguments are given by name are those with the same arguments by position.
#include <doctest/doctest.h>

#include <optional>

#include "layers/layers.h"
#include "tests/support/errors.h"

using namespace halfstep;
using halfstep::testing::refuses;

namespace {

void same(const Module& named, const Module& other) {
  CHECK(named.str() == other.str());
  const StateDict a = named.state_dict(), b = other.state_dict();
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    CHECK(a[i].name == b[i].name);
    CHECK(a[i].tensor.shape() == b[i].tensor.shape());
  }
}

// Does a call compile that leaves out a required argument, or gives a fraction for it?
template <class M>
constexpr bool kTakesHalf = requires {
  M({.in_features = 5});
};
template <class M>
constexpr bool kTakesFraction = requires {
  M({.in_features = 5.5, .out_features = 2});
};
template <class M>
constexpr bool kTakesBool = requires {
  M({.in_features = true, .out_features = 2});
};
template <class M>
constexpr bool kTakesAll = requires {
  M({.in_features = 5, .out_features = 2});
};
template <class M>
constexpr bool kTakesNoKernel = requires {
  M({.in_channels = 3, .out_channels = 4});
};
template <class M>
constexpr bool kTakesNoSize = requires {
  M({.by_name = ByName()});
};

}  // namespace

TEST_CASE("a required argument that is left out does not compile") {
  CHECK(kTakesAll<Linear>);
  CHECK(!kTakesHalf<Linear>);
  CHECK(!kTakesFraction<Linear>);
  CHECK(!kTakesBool<Linear>);
  CHECK(!kTakesNoKernel<Conv2d>);
  CHECK(!kTakesNoSize<MaxPool2d>);
  CHECK(!kTakesNoSize<AdaptiveAvgPool2d>);
  CHECK(!kTakesNoSize<BatchNorm2d>);
}

TEST_CASE("required arguments by name") {
  same(Linear({.in_features = 5, .out_features = 4}), Linear(5, 4));
  same(Linear({.in_features = 5, .out_features = 4, .bias = false}), Linear(5, 4, false));
  same(Conv1d({.in_channels = 3, .out_channels = 8, .kernel_size = 3}), Conv1d(3, 8, 3));
  same(Conv2d({.in_channels = 4,
               .out_channels = 8,
               .kernel_size = {3, 1},
               .stride = {1, 1},
               .padding = "same",
               .dilation = 2,
               .groups = 2,
               .bias = false,
               .padding_mode = "circular"}),
       Conv2d(4, 8, {3, 1}, {.padding = "same", .dilation = 2, .groups = 2, .bias = false, .padding_mode = "circular"}));
  same(Conv3d({.in_channels = 3, .out_channels = 8, .kernel_size = 3, .stride = 2, .padding = 1}), Conv3d(3, 8, 3, 2, 1));
  same(ConvTranspose1d({.in_channels = 3, .out_channels = 8, .kernel_size = 3}), ConvTranspose1d(3, 8, 3));
  same(ConvTranspose2d({.in_channels = 4,
                        .out_channels = 8,
                        .kernel_size = 3,
                        .stride = 3,
                        .padding = 1,
                        .output_padding = 2,
                        .groups = 2,
                        .bias = false,
                        .dilation = 2}),
       ConvTranspose2d(4, 8, 3, {.stride = 3, .padding = 1, .output_padding = 2, .groups = 2, .bias = false, .dilation = 2}));
  same(ConvTranspose3d({.in_channels = 3, .out_channels = 8, .kernel_size = 3}), ConvTranspose3d(3, 8, 3));
  same(Embedding({.num_embeddings = 10,
                  .embedding_dim = 3,
                  .padding_idx = 1,
                  .max_norm = 2.0,
                  .norm_type = 1,
                  .scale_grad_by_freq = true}),
       Embedding(10, 3, {.padding_idx = 1, .max_norm = 2.0, .norm_type = 1, .scale_grad_by_freq = true}));
  same(EmbeddingBag({.num_embeddings = 10, .embedding_dim = 3, .mode = "sum", .include_last_offset = true, .padding_idx = 2}),
       EmbeddingBag(10, 3, {.mode = "sum", .include_last_offset = true, .padding_idx = 2}));
  same(BatchNorm1d({.num_features = 8}), BatchNorm1d(8));
  same(BatchNorm2d({.num_features = 8, .eps = 1e-3, .momentum = 0.2, .track_running_stats = false, .bias = false}),
       BatchNorm2d(8, {.eps = 1e-3, .momentum = 0.2, .track_running_stats = false, .bias = false}));
  same(BatchNorm3d({.num_features = 8}), BatchNorm3d(8));
  same(InstanceNorm1d({.num_features = 8}), InstanceNorm1d(8));
  same(InstanceNorm2d({.num_features = 8, .eps = 1e-3, .momentum = 0.2, .affine = true, .track_running_stats = true}),
       InstanceNorm2d(8, {.eps = 1e-3, .momentum = 0.2, .affine = true, .track_running_stats = true}));
  same(InstanceNorm3d({.num_features = 8}), InstanceNorm3d(8));
  same(LayerNorm({.normalized_shape = 8}), LayerNorm(8));
  same(LayerNorm({.normalized_shape = {8, 2}, .eps = 1e-6, .elementwise_affine = true, .bias = false}),
       LayerNorm({8, 2}, {.eps = 1e-6, .bias = false}));
  same(GroupNorm({.num_groups = 2, .num_channels = 4, .eps = 1e-3, .affine = false}),
       GroupNorm(2, 4, {.eps = 1e-3, .affine = false}));
  same(RNN({.input_size = 3, .hidden_size = 4, .num_layers = 2, .nonlinearity = "relu", .bias = false, .bidirectional = true}),
       RNN(3, 4, {.num_layers = 2, .nonlinearity = "relu", .bias = false, .bidirectional = true}));
  same(GRU({.input_size = 3, .hidden_size = 4, .num_layers = 2, .batch_first = true, .dropout = 0.1}),
       GRU(3, 4, {.num_layers = 2, .batch_first = true, .dropout = 0.1}));
  same(LSTM({.input_size = 3, .hidden_size = 4, .batch_first = true, .bidirectional = true, .proj_size = 2}),
       LSTM(3, 4, {.batch_first = true, .bidirectional = true, .proj_size = 2}));
  refuses<ValueError>("[GRU] has no projections, got a proj_size of 2",
                      [] { GRU({.input_size = 3, .hidden_size = 4, .proj_size = 2}); });
  refuses<ValueError>("[RNN] has no projections, got a proj_size of 2",
                      [] { RNN({.input_size = 3, .hidden_size = 4, .proj_size = 2}); });
  refuses<ValueError>("[LSTM] has its own functions, got a nonlinearity relu",
                      [] { LSTM({.input_size = 3, .hidden_size = 4, .nonlinearity = "relu"}); });
  same(MultiheadAttention({.embed_dim = 8,
                           .num_heads = 2,
                           .dropout = 0.1,
                           .bias = false,
                           .add_bias_kv = true,
                           .add_zero_attn = true,
                           .kdim = 4,
                           .vdim = 5,
                           .batch_first = true}),
       MultiheadAttention(
           8, 2,
           {.dropout = 0.1, .bias = false, .add_bias_kv = true, .add_zero_attn = true, .kdim = 4, .vdim = 5, .batch_first = true}));
  const TransformerLayerOptions few{
      .dim_feedforward = 16, .dropout = 0.2, .activation = "gelu", .layer_norm_eps = 1e-3, .norm_first = true, .bias = false};
  same(TransformerEncoderLayer({.d_model = 8,
                                .nhead = 2,
                                .dim_feedforward = 16,
                                .dropout = 0.2,
                                .activation = "gelu",
                                .layer_norm_eps = 1e-3,
                                .norm_first = true,
                                .bias = false}),
       TransformerEncoderLayer(8, 2, few));
  same(TransformerDecoderLayer({.d_model = 8, .nhead = 2}), TransformerDecoderLayer(8, 2));
  const TransformerEncoderLayer layer(8, 2);
  const TransformerDecoderLayer back(8, 2);
  same(TransformerEncoder(layer, {.num_layers = 2}), TransformerEncoder(layer, 2));
  same(TransformerEncoder(layer, {.num_layers = 2, .norm = LayerNorm(8)}), TransformerEncoder(layer, 2, LayerNorm(8)));
  same(TransformerDecoder(back, {.num_layers = 2, .norm = LayerNorm(8)}), TransformerDecoder(back, 2, LayerNorm(8)));
  same(MaxPool1d({.kernel_size = 2}), MaxPool1d(2));
  same(MaxPool2d({.kernel_size = {2, 3}, .stride = 2, .padding = 1, .dilation = 2, .ceil_mode = true}),
       MaxPool2d({2, 3}, {.stride = 2, .padding = 1, .dilation = 2, .ceil_mode = true}));
  same(MaxPool3d({.kernel_size = 2}), MaxPool3d(2));
  same(AvgPool1d({.kernel_size = 2}), AvgPool1d(2));
  same(AvgPool2d({.kernel_size = 2, .stride = 1, .padding = 1, .ceil_mode = true}),
       AvgPool2d(2, {.stride = 1, .padding = 1, .ceil_mode = true}));
  const Tensor x = rand({1, 2, 6, 6});
  const auto mean = AvgPool2d({.kernel_size = 2, .padding = 1, .count_include_pad = false})(x);
  CHECK(mean.equal(AvgPool2d(2, {.padding = 1, .count_include_pad = false})(x)));
  CHECK(AvgPool2d({.kernel_size = 2, .divisor_override = 3})(x).equal(AvgPool2d(2, {.divisor_override = 3})(x)));
  same(AvgPool3d({.kernel_size = 2}), AvgPool3d(2));
  same(AdaptiveAvgPool1d({.output_size = 2}), AdaptiveAvgPool1d(2));
  same(AdaptiveAvgPool2d({.output_size = {1, 2}}), AdaptiveAvgPool2d({1, 2}));
  same(AdaptiveAvgPool2d({.output_size = {std::nullopt, 2}}), AdaptiveAvgPool2d({std::nullopt, 2}));
  same(AdaptiveAvgPool3d({.output_size = 2}), AdaptiveAvgPool3d(2));
  same(AdaptiveMaxPool1d({.output_size = 2}), AdaptiveMaxPool1d(2));
  same(AdaptiveMaxPool2d({.output_size = 2}), AdaptiveMaxPool2d(2));
  same(AdaptiveMaxPool3d({.output_size = 2}), AdaptiveMaxPool3d(2));
}
