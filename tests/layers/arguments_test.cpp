// SPDX-License-Identifier: Apache-2.0
// Wrong arguments and inputs: a typed error with the layer's name, the rule, and what came.
#include <doctest/doctest.h>

#include "layers/layers.h"
#include "tests/support/errors.h"

using namespace halfstep;
using halfstep::testing::refuses;

TEST_CASE("convolutions refuse what does not fit") {
  refuses<ValueError>("[Conv2d] in_channels must be divisible by groups, got 3 and 2", [] { Conv2d(3, 4, 3, {.groups = 2}); });
  refuses<ValueError>("[Conv1d] out_channels must be divisible by groups, got 3 and 2", [] { Conv1d(4, 3, 3, {.groups = 2}); });
  refuses<ValueError>("[Conv3d] groups must be >= 1, got 0", [] { Conv3d(4, 3, 3, {.groups = 0}); });
  refuses<ValueError>("[Conv2d] in_channels must be >= 1, got 0", [] { Conv2d(0, 4, 3); });
  refuses<ValueError>("[Conv2d] kernel_size must be >= 1, got -3", [] { Conv2d(3, 4, -3); });
  refuses<ValueError>("[Conv2d] kernel_size must be one number or 2, got [1, 2, 3]", [] { Conv2d(3, 4, {1, 2, 3}); });
  refuses<ValueError>("[Conv2d] stride must be >= 1, got 0", [] { Conv2d(3, 4, 3, {.stride = 0}); });
  refuses<ValueError>("[Conv2d] padding must be >= 0, got -1", [] { Conv2d(3, 4, 3, {.padding = -1}); });
  refuses<ValueError>("[Conv2d] dilation must be >= 1, got 0", [] { Conv2d(3, 4, 3, {.dilation = {1, 0}}); });
  refuses<ValueError>("[Conv2d] padding must be numbers, \"same\" or \"valid\", got \"full\"",
                      [] { Conv2d(3, 4, 3, {.padding = "full"}); });
  refuses<ValueError>("[Conv2d] padding \"same\" needs stride 1, got [1, 2]", [] {
    Conv2d(3, 4, 3, {.stride = {1, 2}, .padding = "same"});
  });
  refuses<ValueError>("[Conv2d] padding_mode must be \"zeros\", \"reflect\", \"replicate\" or \"circular\", got \"mirror\"",
                      [] { Conv2d(3, 4, 3, {.padding_mode = "mirror"}); });
  refuses<ValueError>(
      "[ConvTranspose2d] output_padding must be less than stride or dilation, got [2, 2], stride [2, 2] and dilation [1, 1]",
      [] { ConvTranspose2d(3, 4, 3, {.stride = 2, .output_padding = 2}); });
  refuses<ValueError>("[ConvTranspose1d] in_channels must be divisible by groups, got 3 and 2",
                      [] { ConvTranspose1d(3, 4, 3, {.groups = 2}); });
  CHECK_THROWS_AS(Conv2d(3, 4, 3)(ones({5, 5})), ShapeError);        // rank
  CHECK_THROWS_AS(Conv2d(3, 4, 3)(ones({1, 2, 5, 5})), ShapeError);  // channels
  CHECK_THROWS_AS(Conv1d(3, 4, 3)(ones({1, 2, 3, 5, 5})), ShapeError);
}

TEST_CASE("pooling refuses what does not fit") {
  refuses<ValueError>("[MaxPool2d] kernel_size must be >= 1, got 0", [] { MaxPool2d(0); });
  refuses<ValueError>("[MaxPool2d] padding must be at most half of kernel_size, got [2, 2] and [3, 3]",
                      [] { MaxPool2d(3, {.padding = 2}); });
  refuses<ValueError>("[AvgPool3d] stride must be >= 1, got -1", [] { AvgPool3d(2, {.stride = -1}); });
  refuses<ValueError>("[AvgPool1d] has no divisor_override", [] { AvgPool1d(2, {.divisor_override = 3}); });
  refuses<ValueError>("[AvgPool2d] divisor_override must be >= 1, got 0", [] { AvgPool2d(2, {.divisor_override = 0}); });
  refuses<ValueError>("[LPPool1d] norm_type must be > 0, got 0", [] { LPPool1d(0, 2); });
  refuses<ValueError>("[AdaptiveAvgPool2d] output_size must be one number or 2, got 3 numbers", [] {
    AdaptiveAvgPool2d({1, 2, 3});
  });
  refuses<ValueError>("[AdaptiveMaxPool2d] output_size must be >= 0, got -1", [] { AdaptiveMaxPool2d(-1); });
  CHECK_THROWS_AS(MaxPool2d(2)(ones({4, 4})), ShapeError);
  CHECK_THROWS_AS(AvgPool1d(2)(ones({1, 2, 3, 4})), ShapeError);
}

TEST_CASE("normalisations refuse what does not fit") {
  refuses<ValueError>("[BatchNorm2d] num_features must be >= 1, got 0", [] { BatchNorm2d(0); });
  refuses<ValueError>("[BatchNorm1d] eps must be >= 0, got -1", [] { BatchNorm1d(2, {.eps = -1}); });
  refuses<ValueError>("[BatchNorm1d] momentum must be in [0, 1], got 2", [] { BatchNorm1d(2, {.momentum = 2}); });
  refuses<ValueError>("[GroupNorm] num_channels must be divisible by num_groups, got 4 and 3", [] { GroupNorm(3, 4); });
  refuses<ValueError>("[LayerNorm] normalized_shape must be >= 1, got 0", [] { LayerNorm({2, 0}); });
  refuses<ValueError>("[RMSNorm] normalized_shape must have a dimension", [] { RMSNorm{Sizes{}}; });
  refuses<ValueError>("[LocalResponseNorm] size must be >= 1, got 0", [] { LocalResponseNorm(0); });
  refuses<ShapeError>("[BatchNorm2d] needs an input of 4 dimensions, got [2, 3]", [] { BatchNorm2d(3)(ones({2, 3})); });
  refuses<ShapeError>("[BatchNorm1d] needs an input of 2 to 3 dimensions, got [2, 3, 4, 5]", [] {
    BatchNorm1d(3)(ones({2, 3, 4, 5}));
  });
  refuses<ShapeError>("[BatchNorm1d] needs 3 channels in dimension 1, got [2, 4]", [] { BatchNorm1d(3)(ones({2, 4})); });
  refuses<ShapeError>("[InstanceNorm2d] needs 3 channels in dimension 0, got [4, 5, 5]", [] {
    InstanceNorm2d(3)(ones({4, 5, 5}));
  });
  refuses<ShapeError>("[GroupNorm] needs 4 channels in dimension 1, got [2, 3]", [] { GroupNorm(2, 4)(ones({2, 3})); });
  CHECK_THROWS_AS(LayerNorm(3)(ones({2, 4})), ShapeError);
}

TEST_CASE("the other layers refuse what does not fit") {
  refuses<ValueError>("[Dropout] p must be in [0, 1], got 1.5", [] { Dropout(1.5); });
  refuses<ValueError>("[Dropout2d] p must be in [0, 1], got -0.1", [] { Dropout2d(-0.1); });
  refuses<ValueError>("[FeatureAlphaDropout] p must be in [0, 1], got 2", [] { FeatureAlphaDropout(2); });
  refuses<ShapeError>("[Dropout2d] needs an input of 3 to 4 dimensions, got [2, 3]", [] { Dropout2d()(ones({2, 3})); });
  refuses<ValueError>("[CELU] alpha must not be 0", [] { CELU(0); });
  refuses<ValueError>("[Hardtanh] min_val must be below max_val, got 1 and 1", [] { Hardtanh({.min_val = 1}); });
  refuses<ValueError>("[Softshrink] lambd must be >= 0, got -1", [] { Softshrink(-1); });
  refuses<ValueError>("[RReLU] lower must not be above upper, got 1 and 0", [] { RReLU({.lower = 1, .upper = 0}); });
  refuses<ValueError>("[PReLU] num_parameters must be >= 1, got 0", [] { PReLU(0); });
  refuses<ShapeError>("[Softmax2d] needs an input of 3 to 4 dimensions, got [2, 3]", [] { Softmax2d()(ones({2, 3})); });
  refuses<ValueError>("[ZeroPad2d] padding must be one number or 4, got [1, 2]", [] { ZeroPad2d({1, 2}); });
  refuses<ShapeError>("[ReflectionPad1d] needs an input of 2 to 3 dimensions, got [3]", [] { ReflectionPad1d(1)(ones({3})); });
  refuses<ValueError>("[PixelShuffle] upscale_factor must be >= 1, got 0", [] { PixelShuffle(0); });
  refuses<ValueError>("[ChannelShuffle] groups must be >= 1, got -1", [] { ChannelShuffle(-1); });
  refuses<ValueError>("[Upsample] needs exactly one of size and scale_factor", [] { Upsample({}); });
  refuses<ValueError>("[Upsample] scale_factor must be > 0, got -2", [] { Upsample({.scale_factor = {-2}}); });
  refuses<ShapeError>("[UpsamplingNearest2d] needs an input of 4 dimensions, got [1, 2, 3]", [] {
    UpsamplingNearest2d({.scale_factor = {2}})(ones({1, 2, 3}));
  });
  refuses<ValueError>("[Unfold] kernel_size must be one number or 2, got [1, 2, 3]", [] { Unfold({1, 2, 3}); });
  refuses<ValueError>("[Fold] stride must be >= 1, got 0", [] { Fold(4, 2, {.stride = 0}); });
  refuses<ValueError>("[Unflatten] unflattened_size must have 1 to 7 numbers, got 0", [] { Unflatten(1, {}); });
  refuses<ValueError>("[Embedding] padding_idx must be within num_embeddings 4, got 4",
                      [] { Embedding(4, 2, {.padding_idx = 4}); });
  refuses<ValueError>("[Embedding] embedding_dim must be >= 1, got 0", [] { Embedding(4, 0); });
  refuses<ValueError>("[Embedding] max_norm must be > 0, got 0", [] { Embedding(4, 2, {.max_norm = 0}); });
  refuses<ShapeError>("[Embedding] weight must be [num_embeddings, embedding_dim], got [4]",
                      [] { Embedding::from_pretrained(ones({4})); });
  CHECK_THROWS_AS(Embedding(4, 2)(ones({2})), DTypeError);
  CHECK_THROWS_AS(Embedding(4, 2)(from_vector(std::vector<int64_t>{4}, {1})), IndexError);
  CHECK_THROWS_AS(PixelShuffle(2)(ones({1, 3, 2, 2})), Error);
  CHECK_THROWS_AS(Unflatten(1, {2, 4})(ones({1, 6})), Error);
}

TEST_CASE("losses refuse what does not fit") {
  refuses<ValueError>("[SmoothL1Loss] beta must be >= 0, got -1", [] { SmoothL1Loss({.beta = -1}); });
  refuses<ValueError>("[HuberLoss] delta must be > 0, got 0", [] { HuberLoss({.delta = 0}); });
  refuses<ValueError>("[MultiMarginLoss] p must be 1 or 2, got 3", [] { MultiMarginLoss({.p = 3}); });
  refuses<ValueError>("[CrossEntropyLoss] label_smoothing must be in [0, 1], got 2",
                      [] { CrossEntropyLoss({.label_smoothing = 2}); });
}

TEST_CASE("in a model the error names the layer's place") {
  Sequential net(std::make_shared<ReLU>(), std::make_shared<BatchNorm2d>(3));
  refuses<ShapeError>(
      "[BatchNorm2d] needs an input of 4 dimensions, got [2, 3]\n"
      "layer: 1, BatchNorm2d(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)",
      [&] {
        net(ones({2, 3}));
      });
}

TEST_CASE("layers of several tensors refuse what does not fit") {
  refuses<ValueError>("[Bilinear] in2_features must be >= 1, got 0",
                      [] { Bilinear(2, 0, 3); });
  CHECK_THROWS_AS(Bilinear(2, 3, 4)(ones({5, 2}), ones({5, 2})), ShapeError);
  refuses<ValueError>("[EmbeddingBag] mode must be \"mean\", \"sum\" or \"max\", got \"min\"", [] {
    EmbeddingBag(4, 2, {.mode = "min"})(zeros({1, 2}, {.dtype = DType::i64}));
  });
  refuses<ValueError>("[EmbeddingBag] num_embeddings must be >= 1, got 0", [] { EmbeddingBag(0, 2); });
  refuses<ValueError>("[EmbeddingBag] padding_idx must be within num_embeddings 4, got 4",
                      [] { EmbeddingBag(4, 2, {.padding_idx = 4}); });
  EmbeddingBag bag(4, 2);
  const auto whole = [](std::initializer_list<double> v) { return tensor(std::vector<double>(v), {.dtype = DType::i64}); };
  refuses<ValueError>("[embedding_bag] index [n] needs offsets", [&] { bag(whole({1, 2})); });
  refuses<IndexError>("[embedding_bag] offsets must begin with 0, got 1", [&] { bag(whole({1, 2}), whole({1, 2})); });
  refuses<IndexError>("[embedding_bag] offsets must not fall", [&] { bag(whole({1, 2}), whole({0, 2, 1})); });
  refuses<IndexError>("[embedding_bag] offsets must not exceed the number of indices, 2, got 3", [&] {
    bag(whole({1, 2}), whole({0, 3}));
  });
  refuses<IndexError>("[embedding_bag] index 4 at position 1 is outside [0, 4)", [&] { bag(whole({1, 4}), whole({0})); });
  refuses<ValueError>("[embedding_bag] per_sample_weights need mode sum", [&] { bag(whole({1, 2}), whole({0}), ones({2})); });
  refuses<ShapeError>("[MaxUnpool2d] output_size must lie between 2 and 6 in spatial dimension 1, got [5, 6]", [] {
    MaxUnpool2d(2)(ones({1, 2, 2}), zeros({1, 2, 2}, {.dtype = DType::i64}), {5, 6});
  });
  refuses<ValueError>("[FractionalMaxPool2d] takes exactly one of output_size and output_ratio",
                      [] { FractionalMaxPool2d(2, {}); });
  refuses<ValueError>("[FractionalMaxPool3d] output_ratio must be in (0, 1), got 1",
                      [] { FractionalMaxPool3d(2, {.output_ratio = 1}); });
  refuses<ShapeError>("[fractional_max_pool2d] output_size [4, 4] and kernel_size [2, 2] do not fit an input of [1, 4, 4]\n"
                      "help: output_size + kernel_size - 1 is at most the input's size",
                      [] { FractionalMaxPool2d(2, {.output_size = 4})(ones({1, 4, 4})); });
  refuses<ShapeError>("[ConvTranspose2d] output_size must be 5 to 6 in spatial dimension 0, got [7, 5]", [] {
    ConvTranspose2d(1, 1, 3, {.stride = 2})(ones({1, 2, 2}), {7, 5});
  });
  refuses<ShapeError>("[ConvTranspose2d] output_size must have 2 or 3 sizes, got [7]", [] {
    ConvTranspose2d(1, 1, 3, {.stride = 2})(ones({1, 2, 2}), {7});
  });
  refuses<ValueError>("[AdaptiveLogSoftmaxWithLoss] cutoffs must grow from 1 to less than n_classes, 10, got 10 after 4", [] {
    AdaptiveLogSoftmaxWithLoss(8, 10, {4, 10});
  });
  refuses<ValueError>("[AdaptiveLogSoftmaxWithLoss] cluster 1 would have no width: in_features 8 / div_value 4^2", [] {
    AdaptiveLogSoftmaxWithLoss(8, 10, {3, 6});
  });
  refuses<IndexError>("[AdaptiveLogSoftmaxWithLoss] targets must lie in [0, 10), got 10", [&] {
    AdaptiveLogSoftmaxWithLoss(8, 10, {3})(ones({1, 8}), whole({10}));
  });
  refuses<ShapeError>(
      "[AdaptiveLogSoftmaxWithLoss] needs [N, in_features] and [N], or [in_features] and [], with in_features 8, got [2, 8] and "
      "[3]",
      [&] {
        AdaptiveLogSoftmaxWithLoss(8, 10, {3})(ones({2, 8}), whole({1, 2, 3}));
      });
}
