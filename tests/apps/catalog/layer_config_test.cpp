// SPDX-License-Identifier: Apache-2.0
// Layers in a config: widths that are left out, arguments as a number or a list, and errors for wrong ones.
#include <doctest/doctest.h>

#include <algorithm>

#include "apps/catalog/losses.h"
#include "apps/config/config.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

constexpr const char* kImages = R"({
  "model": {"type": "Sequential", "layers": [%, "Flatten", {"type": "Linear", "out_features": "auto"}]},
  "loss": "CrossEntropyLoss", "optimizer": "SGD", "device": "cpu",
  "data": {"train": {"type": "Random", "input_shape": [3, 9, 8], "classes": 4}}, "train": {"epochs": 1}})";

Config layers_config(const std::string& layers) {
  const TempDir dir;
  std::string text = kImages;
  return load_config(write(dir / "net.json", text.replace(text.find('%'), 1, layers)));
}

std::string layer_error(const std::string& layer) {
  try {
    layers_config(layer);
  } catch (const ConfigError& e) { return e.what(); }
  return "";
}

}  // namespace

TEST_CASE("channels and features that a config leaves out are those that come in") {
  const Config c = layers_config(R"({"type": "Conv2d", "out_channels": 6, "kernel_size": [3, 2], "padding": "same"}, "BatchNorm2d",
      {"type": "GroupNorm", "num_groups": 2}, {"type": "PReLU", "num_parameters": 6, "init": 0.1},
      {"type": "AdaptiveAvgPool2d", "output_size": [null, 2]}, {"type": "ConvTranspose2d", "out_channels": 5, "kernel_size": 2})");
  const Json& layers = c.json["model"]["layers"];
  CHECK(layers[0]["in_channels"] == 3);
  CHECK(layers[0]["kernel_size"] == Json{3, 2});
  CHECK(layers[1]["num_features"] == 6);
  CHECK(layers[2]["num_channels"] == 6);
  CHECK(layers[4]["output_size"] == Json{nullptr, 2});
  CHECK(layers[5]["in_channels"] == 6);
  CHECK(layers[7]["in_features"] == 5 * 10 * 3);
  const auto model = build_model(c.json["model"]);
  CHECK((*model)(ones({2, 3, 9, 8})).shape() == Shape{2, 4});
  CHECK(model->state_dict()[9].tensor.to_vector<float>() == std::vector<float>(6, 0.1f));  // PReLU's
}

TEST_CASE("normalisations that leave out their width take that of the input") {
  const Config c = layers_config(R"("LayerNorm", "RMSNorm", {"type": "LayerNorm", "normalized_shape": [9, 8]},
      {"type": "GroupNorm", "num_groups": 3}, "Flatten", {"type": "LayerNorm", "bias": false})");
  const Json& layers = c.json["model"]["layers"];
  CHECK(layers[0]["normalized_shape"] == 8);
  CHECK(layers[1]["normalized_shape"] == 8);
  CHECK(layers[2]["normalized_shape"] == Json{9, 8});
  CHECK(layers[3]["num_channels"] == 3);
  CHECK(layers[5]["normalized_shape"] == 3 * 9 * 8);
  const Tensor x = rand({2, 3, 9, 8});
  const auto same = [&](const Tensor& a, const Tensor& b) { return a.to_vector<float>() == b.to_vector<float>(); };
  CHECK(same((*build_model(layers[0]))(x), LayerNorm(8)(x)));
  CHECK(same((*build_model(layers[1]))(x), RMSNorm(8)(x)));
  CHECK(contains(layer_error(R"({"type": "LayerNorm", "normalized_shape": 9})"),
                 ".normalized_shape: must be 8 for an input of shape [3, 9, 8]"));
  CHECK(contains(layer_error(R"({"type": "RMSNorm", "normalized_shape": [9, 9]})"), ": [rms_norm] "));
}

TEST_CASE("wrong layers of a config are named, with the rule") {
  const auto says = [](const std::string& layer, const std::string& text) {
    const std::string got = layer_error(layer);
    CAPTURE(got);
    CHECK(contains(got, "model.layers.0" + text));
  };
  says(R"({"type": "Conv2d", "out_channels": 4, "kernel_size": -3})",
       ".kernel_size: must be an integer >= 1 or a list of 2 integers >= 1, got -3");
  says(R"({"type": "Conv2d", "out_channels": 4, "kernel_size": [3, 3, 3]})", ".kernel_size: must be an integer");
  says(R"({"type": "Conv2d", "out_channels": 4, "kernel_size": 3, "padding": "some"})",
       ".padding: must be an integer >= 0 or a list of 2 integers >= 0 or \"same\" or \"valid\", got "
       "\"some\"");
  says(R"({"type": "Conv2d", "out_channels": 4, "kernel_size": 3, "groups": 2})",
       ": [Conv2d] in_channels must be divisible by groups, got 3 and 2");
  says(R"({"type": "Conv2d", "out_channels": 4, "kernel_size": 3, "in_channels": 2})",
       ".in_channels: must be 3 for an input of shape [3, 9, 8], got 2");
  says(R"({"type": "Conv2d", "out_channels": 4, "kernel_size": 10})", ": [conv2d] ");
  says(R"({"type": "Conv3d", "out_channels": 4, "kernel_size": 2})", ": [conv3d] ");
  says(R"({"type": "MaxPool2d", "kernel_size": 3, "padding": 2})", ": [MaxPool2d] padding must be at most half of kernel_size");
  says(R"({"type": "Dropout2d", "p": 1.5})", ".p: must be a number in [0, 1], got 1.5");
  says(R"("BatchNorm1d")", ": [BatchNorm1d] needs an input of 2 to 3 dimensions, got [7, 3, 9, 8]");
  says(R"({"type": "GroupNorm", "num_groups": 2})", ": [GroupNorm] num_channels must be divisible by num_groups, got 3 and 2");
  says(R"({"type": "Upsample"})", ": [Upsample] needs exactly one of size and scale_factor");
  says(R"({"type": "LayerNorm", "normalized_shape": [null]})", ".normalized_shape.0: must be an integer");
  says(R"({"type": "BatchNorm2d", "momentum": "none"})", ".momentum: must be a number in [0, 1] or \"cumulative\", got \"none\"");
  says(R"({"type": "ReLU", "init": 1})", ".init: must be the name of an initialiser or an object with \"type\", got 1");
}

TEST_CASE("what a config asks to build is bounded, and refused at once") {
  const std::string conv = R"({"type": "Conv2d", "out_channels": 3, "kernel_size": 1})";
  const auto repeat = [](int times, const std::string& layers) {
    return R"({"type": "Repeat", "times": )" + std::to_string(times) + R"(, "layers": )" + layers + "}";
  };
  for (const char* layer : {R"({"type": "LSTM", "hidden_size": 2, "num_layers": 2147483647})",
                            R"({"type": "TransformerEncoder", "nhead": 1, "num_layers": 2147483647})"})
    CHECK(contains(layer_error(layer), ".num_layers: must be an integer in [1, 1000], got 2147483647"));
  CHECK(contains(layer_error(repeat(1000, repeat(1000, repeat(1000, conv)))),
                 "the model may have 100000 layers and parameter tensors up to here, got more"));
  CHECK(layer_error(repeat(20, repeat(20, conv))) == "");
}

TEST_CASE("losses of a config take class weights as numbers") {
  const TempDir dir;
  std::string text = kImages;
  text.replace(text.find('%'), 1, "\"ReLU\"");
  const auto with = [&](const std::string& loss) {
    std::string changed = text;
    return load_config(write(dir / "net.json", changed.replace(changed.find("\"CrossEntropyLoss\""), 18, loss)));
  };
  const Config c = with(R"({"type": "CrossEntropyLoss", "weight": [1, 2, 0, 0.5]})");
  const Tensor x = tensor({1, 2, 3, 4, 4, 3, 2, 1}, {2, 4}), y = from_vector(std::vector<int64_t>{1, 3}, {2});
  CHECK((*build_loss(c.json["loss"]))(x, y).item<float>() == cross_entropy(x, y, {.weight = tensor({1, 2, 0, 0.5})}).item<float>());
  CHECK_NOTHROW(with(R"("NLLLoss")"));
  CHECK_NOTHROW(with(R"({"type": "MultiMarginLoss", "p": 2})"));
  CHECK_THROWS_AS(with(R"({"type": "CrossEntropyLoss", "weight": [1, 2]})"), ConfigError);
  CHECK_THROWS_AS(with(R"({"type": "CrossEntropyLoss", "reduction": "sum"})"), ConfigError);
  CHECK_THROWS_AS(with(R"("L1Loss")"), ConfigError);
}

TEST_CASE("a config says a GPT, whose letters see only those before them") {
  const TempDir dir;
  const Config c = load_config(write(dir / "gpt.json", R"({
    "model": {"type": "Sequential", "layers": [{"type": "Linear", "out_features": 8, "name": "embed"},
        {"type": "PositionEmbedding", "max_len": 6}, {"type": "PositionalEncoding", "dropout": 0.0}, "RotaryEmbedding",
        {"type": "TransformerEncoder", "nhead": 2, "num_layers": 2, "dim_feedforward": 16, "activation": "gelu", "norm_first": true,
         "norm": true, "is_causal": true, "dropout": 0.0},
        {"type": "MultiheadAttention", "num_heads": 4, "is_causal": true}, "Flatten", {"type": "Linear", "out_features": "auto"}]},
    "loss": "CrossEntropyLoss", "optimizer": "SGD", "device": "cpu",
    "data": {"train": {"type": "Random", "input_shape": [5, 3], "classes": 4}}, "train": {"epochs": 1}})"));
  const Json& layers = c.json["model"]["layers"];
  CHECK(layers[1]["d_model"] == 8);
  CHECK(layers[3]["dim"] == 8);
  CHECK(layers[4]["d_model"] == 8);
  CHECK(layers[5]["embed_dim"] == 8);
  manual_seed(1);
  const auto model = build_model(c.json["model"]);
  std::vector<std::string> names;
  for (const NamedTensor& n : model->state_dict()) names.push_back(n.name);
  CHECK(std::count(names.begin(), names.end(), "4.layers.1.self_attn.in_proj_weight") == 1);
  CHECK(std::count(names.begin(), names.end(), "4.norm.weight") == 1);
  const Tensor x = randn({2, 5, 3}), other = x.clone();
  other.narrow(1, 3, 2).fill_(7);
  const auto until = [&](const Tensor& in) {
    Tensor y = in;
    for (size_t i = 0; i < 6; ++i) y = (*model->children()[i])(y);
    return y.narrow(1, 0, 3).to_vector<float>();
  };
  CHECK(until(x) == until(other));
}

TEST_CASE("attention in a config: what does not fit is named with its place") {
  const auto says = [](const std::string& layer, const std::string& text) {
    const std::string got =
        layer_error("\"Flatten\", {\"type\": \"Unflatten\", \"dim\": 1, \"unflattened_size\": [36, 6]}, " + layer);
    CAPTURE(got);
    CHECK(contains(got, "model.layers.2" + text));
  };
  says(R"({"type": "MultiheadAttention", "num_heads": 4})",
       ": [MultiheadAttention] embed_dim must be divisible by num_heads, got 6 and 4");
  says(R"({"type": "TransformerEncoder", "nhead": 5, "num_layers": 1})",
       ": [MultiheadAttention] embed_dim must be divisible by num_heads, got 6 and 5");
  says(R"({"type": "MultiheadAttention", "num_heads": 2, "kdim": 3})",
       ": [MultiheadAttention] key's last dimension must be kdim, 3, got [7, 36, 6]");
  says(R"({"type": "TransformerEncoderLayer", "nhead": 2, "activation": "tanh"})",
       ".activation: must be \"relu\", \"gelu\" or \"gelu_tanh\"");
  says(R"({"type": "PositionEmbedding", "max_len": 35})", ": [PositionEmbedding] takes at most max_len, 35, positions");
  says(R"({"type": "RotaryEmbedding", "dim": 3})", ".dim: must be 6 for an input of shape [36, 6], got 3");
}
