// SPDX-License-Identifier: Apache-2.0
// Layers made of layers in a config, and the keys for first values: init, weights, freeze.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "apps/catalog/modules.h"
#include "apps/catalog/optimizers.h"
#include "apps/catalog/weights.h"
#include "apps/config/config.h"
#include "framework/io/checkpoint/checkpoint.h"
#include "framework/ops/ops.h"
#include "layers/layers.h"
#include "layers/module/save.h"
#include "tests/apps/support.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

Config config(const std::string& model, const std::string& input = "[3, 8, 8]", const std::string& target = R"("classes": 4)") {
  const TempDir dir;
  return load_config(write(dir / "net.json", R"({"model": )" + model + R"(, "loss": ")" +
                                                 (contains(target, "classes") ? "CrossEntropyLoss" : "MSELoss") +
                                                 R"(", "optimizer": "SGD", "device": "cpu",
      "data": {"train": {"type": "Random", "input_shape": )" +
                                                 input + ", " + target + R"(}}, "train": {"epochs": 1}})"));
}

std::string error(const std::string& model) {
  try {
    config(model);
  } catch (const ConfigError& e) { return e.what(); }
  return "";
}
// Of a config whose model is this layer, and what makes classes of its output.
std::string before_head(const std::string& layer) {
  return R"({"type": "Sequential", "layers": [)" + layer + R"(, "Flatten", {"type": "Linear", "out_features": "auto"}]})";
}

std::vector<std::string> names(const Module& m) {
  std::vector<std::string> out;
  for (const NamedTensor& p : m.named_parameters()) out.push_back(p.name);
  return out;
}
std::map<std::string, Tensor> parameters(const Module& m) {
  std::map<std::string, Tensor> out;
  for (const NamedTensor& p : m.named_parameters()) out[p.name] = p.tensor;
  return out;
}
using Names = std::vector<std::string>;

const std::string kTowers = R"({"type": "Graph", "inputs": [{"name": "user", "end": 6}, {"name": "item", "start": 6}], "nodes": [
    {"name": "u", "inputs": "user", "layer": {"type": "MLP", "hidden": [8], "out_features": 4}},
    {"name": "i", "inputs": "item", "layer_of": "u"},
    {"name": "score", "inputs": ["u", "i"], "combine": "cosine"}]})";

}  // namespace

TEST_CASE("a U-Net from a config: widths are followed through branches, names are those of nodes") {
  const Config c = config(R"({"type": "Graph", "nodes": [
    {"name": "down", "layer": [{"type": "Conv2d", "out_channels": 5, "kernel_size": 3, "padding": "same"}, "ReLU"]},
    {"name": "deep", "layer": [{"type": "MaxPool2d", "kernel_size": 2},
      {"type": "Repeat", "times": 2, "layers": {"type": "Conv2d", "out_channels": 5,
      "kernel_size": 1}}]},
    {"name": "up", "layer": {"type": "Upsample", "size": [8, 8]}},
    {"inputs": ["up", "down"], "combine": "concat", "layer": {"type": "Residual", "body": "BatchNorm2d", "shortcut": ["ReLU"]}},
    {"name": "head", "layer": [{"type": "Parallel", "combine": "mean", "branches": ["Identity", ["ReLU", "Tanh"]]}, "Flatten",
      {"type": "Linear", "out_features": "auto"}]}]})");
  const Json& nodes = c.json["model"]["nodes"];
  CHECK(nodes[0]["layer"][0]["in_channels"] == 3);
  CHECK(nodes[1]["layer"][1]["layers"]["in_channels"] == 5);
  CHECK(nodes[3]["layer"]["body"]["num_features"] == 10);
  CHECK(nodes[4]["layer"][2]["in_features"] == 10 * 64);
  const auto model = build_model(c.json["model"]);
  CHECK(names(*model) == Names{"down.0.weight", "down.0.bias", "deep.1.0.weight", "deep.1.0.bias", "deep.1.1.weight",
                               "deep.1.1.bias", "3.body.weight", "3.body.bias", "head.2.weight", "head.2.bias"});
  CHECK((*model)(ones({2, 3, 8, 8})).shape() == Shape{2, 4});
  CHECK(model->is_recordable());
  Names rows;
  for (const LayerRow& row : c.layers) rows.push_back(row.name + " " + row.what.substr(0, row.what.find('(')));
  CHECK(rows == Names{"down.0 Conv2d", "down.1 ReLU", "deep.0 MaxPool2d", "deep.1.0 Conv2d", "deep.1.1 Conv2d", "up Upsample",
                      "3 concat", "3.body BatchNorm2d", "3.shortcut.0 ReLU", "3 Residual", "head.0.0 Identity", "head.0.1.0 ReLU",
                      "head.0.1.1 Tanh", "head.0 Parallel", "head.1 Flatten", "head.2 Linear"});
}

TEST_CASE("two towers from a config: parts of the batch by name, and one layer in two places") {
  const Config c = config(kTowers, "[12]", R"("target_shape": [1])");
  const auto model = build_model(c.json["model"]);
  CHECK(names(*model) == Names{"u.0.weight", "u.0.bias", "u.2.weight", "u.2.bias"});
  const Tensor half = randn({5, 6});
  for (float v : (*model)(cat({half, half}, 1)).to_vector<float>()) CHECK(v == doctest::Approx(1));
}

TEST_CASE("a layer that is a branch of Parallel by itself has its own name, a list its index") {
  const Config c = config(before_head(R"({"type": "Parallel", "branches": [
    {"type": "Conv2d", "name": "left", "out_channels": 2, "kernel_size": 1},
    [{"type": "Conv2d", "name": "inner", "out_channels": 2, "kernel_size": 1}],
    {"type": "Residual", "body": {"type": "Conv2d", "name": "unused", "out_channels": 3, "kernel_size": 1}}]})"));
  Names got = names(*build_model(c.json["model"]));
  got.resize(6);
  CHECK(got == Names{"0.left.weight", "0.left.bias", "0.1.inner.weight", "0.1.inner.bias", "0.2.body.weight", "0.2.body.bias"});
  REQUIRE(c.warnings.size() == 1);
  CHECK(contains(c.warnings[0], "model.layers.0.branches.2.body.name: is not used: a single layer is called \"body\""));
}

TEST_CASE("wrong containers are named, with the rule") {
  const auto says = [](const std::string& layer, const std::string& text) {
    const std::string got = error(before_head(layer));
    CAPTURE(got);
    CHECK(contains(got, "model.layers.0" + text));
  };
  says(R"({"type": "Residual"})", ".body: is missing");
  says(R"({"type": "Residual", "body": {"type": "Conv2d", "out_channels": 2, "kernel_size": 1}})",
       ": [add] shapes must broadcast, got [7, 2, 8, 8] and [7, 3, 8, 8]");
  says(R"({"type": "Residual", "body": {"type": "Conv3d", "out_channels": 2, "kernel_size": 1}})", ".body: [conv3d]");
  says(R"({"type": "Residual", "body": "ReLu6"})", ".body: unknown layer \"ReLu6\"; did you mean \"ReLU6\"?");
  says(R"({"type": "Residual", "body": [{"type": "Conv2d", "kernel_size": 1}]})", ".body.0.out_channels: is missing");
  says(R"({"type": "Residual", "body": [{"type": "ReLU", "name": "a"}, {"type": "ReLU", "name": "a"}]})",
       ".body.1.name: two layers are called \"a\"");
  says(R"({"type": "Parallel", "branches": ["ReLU", "Flatten"]})", ": [cat]");
  says(R"({"type": "Parallel", "branches": ["ReLU", {"type": "ReLU", "name": "a.b"}]})",
       ".branches.1.name: must not be empty or contain a dot, got \"a.b\"");
  says(R"({"type": "Parallel", "branches": [{"type": "ReLU", "name": "a"}, {"type": "ReLU", "name": "a"}]})",
       ".branches.1.name: two layers are called \"a\"");
  says(R"({"type": "Parallel", "branches": [{"type": "ReLU", "name": "1"}, "ReLU"]})",
       ".branches.1.name: two layers are called \"1\"");
  says(R"({"type": "Parallel", "branches": []})", ".branches: must be a list");
  says(R"({"type": "Parallel", "branches": ["ReLU", ["Tanh", 3]]})", ".branches.1.1: must be the name of a layer");
  says(R"({"type": "Repeat", "times": 3, "layers": [{"type": "Conv2d", "out_channels": 5, "kernel_size": 1}]})",
       ": copy 2 does not fit: layers.0.in_channels: must be 5 for an input of shape [5, 8, 8], got 3");
  says(R"({"type": "Repeat", "times": 0, "layers": "ReLU"})", ".times: must be an integer in [1, 1000], got 0");
  says(R"({"type": "Repeat", "times": 9, "layers": {"type": "MaxPool2d", "kernel_size": 2}})", ": copy 4 does not fit: ");
  says(R"({"type": "Graph", "nodes": []})", ".nodes: must be a list");
  says(R"({"type": "Graph", "nodes": [{"inputs": ["input", "imput"], "combine": "add"}]})",
       ": [Graph] node \"0\" takes \"imput\", which no input and no node before it is called; did you mean \"input\"?");
  says(R"({"type": "Graph", "nodes": [{"layer": "ReLU"}, {"inputs": ["0", "input"]}]})",
       ": [Graph] node \"1\" has 2 inputs and must say how to combine them");
  says(R"({"type": "Graph", "nodes": [{"layer": "ReLU"}, {"layer_of": "1"}]})",
       ": [Graph] node \"1\" has the layer of \"1\", but no node before it with a layer is called that");
  says(R"({"type": "Graph", "nodes": [{"layer": "ReLU", "name": "a"}, {"layer_of": "a", "layer": "ReLU"}]})",
       ": [Graph] node \"1\" has both a layer and layer_of");
  says(R"({"type": "Graph", "nodes": [{"layer": "Flatten"}, {"inputs": ["0", "input"], "combine": "concat"}]})", ".nodes.1: [cat]");
  says(R"({"type": "Graph", "nodes": [{"layer": "ReLU"}, {"layer": [{"type": "Linear", "out_features": 2, "in_features": 3}]}]})",
       ".nodes.1.layer.0.in_features: must be 8");
  says(R"({"type": "Graph", "inputs": [{"name": "x", "dim": 1, "end": 4}], "nodes": [{"layer": "ReLU"}]})",
       ": [Graph] input \"x\" must be a part of the 3 places along dimension 1, got 0 to 4");
}

TEST_CASE("init: a parameter takes the first entry that its name matches") {
  const auto made = [](const std::string& init) {
    return build_model(config(R"({"type": "Sequential", "init": )" + init + R"(, "layers": ["Flatten",
      {"type": "Linear", "name": "body", "out_features": 6, "init": "ones"}, {"type": "PReLU", "init": 0.5},
      {"type": "Linear", "name": "head", "out_features": "auto"}]})")
                           .json["model"]);
  };
  manual_seed(7);
  const auto some = parameters(*made(R"([{"match": "^head.*weight", "type": "normal", "std": 0.01},
    {"match": "weight", "type": "constant", "val": 3}, {"match": "^head", "type": "zeros"}])"));
  CHECK(some.at("head.bias").to_vector<float>() == std::vector<float>(4, 0));
  CHECK(some.at("body.weight").to_vector<float>()[5] == 3);
  CHECK(some.at("2.weight").item<float>() == 3);                               // the outer one has the last word
  CHECK(some.at("body.bias").to_vector<float>() == std::vector<float>(6, 1));  // the layer's own
  const float drawn = some.at("head.weight").to_vector<float>()[0];
  CHECK((drawn != 0 && std::abs(drawn) < 0.1f));
  CHECK(parameters(*made(R"({"match": "weight$", "type": "ones"})")).at("2.weight").item<float>() == 1);
  CHECK(parameters(*made(R"({"match": "bias", "type": "ones"})")).at("2.weight").item<float>() == 0.5f);  // PReLU's own init
  const auto all = [](const char* type) {
    return config(before_head(R"({"type": "Conv2d", "out_channels": 3, "kernel_size": 3, "init": {"match": "weight", "type": ")" +
                              std::string(type) + R"("}})"));
  };
  for (const char* type : {"zeros", "ones", "uniform", "normal", "trunc_normal", "dirac", "xavier_uniform", "xavier_normal",
                           "kaiming_uniform", "kaiming_normal", "orthogonal"})
    CHECK_NOTHROW(build_model(all(type).json["model"]));
}

TEST_CASE("freeze: parameters that do not learn") {
  const auto trained = [](const std::string& freeze) {
    const auto model = build_model(
        config(R"({"type": "Sequential", "freeze": )" + freeze + R"(, "layers": ["Flatten", {"type": "Linear", "out_features": 6},
      {"type": "Linear", "out_features": "auto"}]})")
            .json["model"]);
    Names out;
    for (const NamedTensor& p : model->named_parameters()) {
      if (p.tensor.requires_grad()) out.push_back(p.name);
    }
    return out;
  };
  CHECK(trained("false").size() == 4);
  CHECK_THROWS_WITH_AS(trained("true"), doctest::Contains("optimizer: the model has no parameters to train: all are frozen"),
                       ConfigError);
  CHECK(trained(R"(["^1\\."])") == Names{"2.weight", "2.bias"});
  CHECK(trained(R"(["^1\\.w", "bias"])") == Names{"2.weight"});
  const Config c = config(before_head(R"({"type": "Identity"})"));
  auto all = c.json["model"];
  all["freeze"] = true;
  CHECK_THROWS_WITH_AS(build_optimizer(c.json["optimizer"], *build_model(all)),
                       doctest::Contains("the model has no parameters to train: all are frozen"), ConfigError);
}

TEST_CASE("what init and freeze cannot do is said with the config") {
  const auto says = [](const std::string& keys, const std::string& text) {
    const std::string got = error(before_head(R"({"type": "Conv2d", "out_channels": 3, "kernel_size": 3, )" + keys + "}"));
    CAPTURE(got);
    CHECK(contains(got, "model.layers.0." + text));
  };
  says(R"("init": {"match": "wieght", "type": "zeros"})",
       "init: [init] match \"wieght\" must be found in the name of a parameter that no entry before it takes, but is in none");
  says(R"("init": [{"match": "", "type": "zeros"}, {"match": "bias", "type": "ones"}])",
       "init: [init] match \"bias\" must be found");
  says(R"("init": "xavier_norm")", "init: unknown initialiser \"xavier_norm\"; did you mean \"xavier_normal\"?");
  says(R"("init": "xavier_normal")", "init: [init] xavier_normal does not fit bias: [xavier_normal_] needs at least 2 dimensions");
  says(R"("init": {"type": "normal", "std": -1})", "init.std: must be a number >= 0, got -1");
  says(R"("init": {"type": "zeros", "match": "("})", "init.match: must be a regular expression, got \"(\"");
  says(R"("freeze": ["bias", "wieght"])", "freeze: [freeze] \"wieght\" must be found in a parameter's name, but is in none");
  says(R"("freeze": 1)", "freeze: must be true or false or a list of one or more regular expressions");
  says(R"("weights": {"pth": "x"})", "weights.path: is missing");
}

TEST_CASE("weights: a file's values, in the whole model or in one layer of it, under other names") {
  TempDir dir;
  manual_seed(11);
  Sequential from(std::make_shared<Flatten>(), std::make_shared<Linear>(192, 6), std::make_shared<Linear>(6, 4));
  const std::string file = (dir / "from.safetensors").string();
  save(from, file);
  const auto loaded = [&](const std::string& layers, const std::string& outer = "") {
    const Json model = config(R"({"type": "Sequential", )" + outer + R"("layers": )" + layers + "}").json["model"];
    const auto module = build_model(model);
    load_weights(*module, model, "model");
    return parameters(*module);
  };
  const auto first = from.parameters()[0].to_vector<float>();
  const std::string plain = R"(["Flatten", {"type": "Linear", "out_features": 6}, {"type": "Linear", "out_features": 4}])";
  CHECK(loaded(plain, R"("weights": ")" + file + R"(", )").at("1.weight").to_vector<float>() == first);
  // In a new model with another head: the prefix "1." removed, and the rest renamed.
  const std::string inner = R"([{"type": "Sequential", "name": "body", "layers": ["Flatten",
    {"type": "Linear", "name": "first", "out_features": 6, "weights": {"path": ")" +
                            file + R"(", "prefix": "1."}}]}, {"type": "Linear", "out_features": "auto"}])";
  CHECK(loaded(inner).at("body.first.weight").to_vector<float>() == first);
  const std::string renamed = R"([{"type": "Sequential", "layers": ["Flatten",
    {"type": "Linear", "name": "first", "out_features": 6}], "weights": {"path": ")" +
                              file + R"(", "strict": false, "rename": [{"match": "^1\\.(.*)$", "replace": "first.\\1"}]}},
    {"type": "Linear", "out_features": "auto"}])";
  CHECK(loaded(renamed).at("0.first.weight").to_vector<float>() == first);
  // A file of torch.save, whatever its name.
  const std::string torch = halfstep_source_dir() + "/tests/io/torch/";
  const auto last = [&](const std::string& name) {
    return R"(["Flatten", {"type": "Linear", "out_features": 3}, {"type": "Linear", "out_features": 2,
      "weights": {"path": ")" +
           torch + name + R"(", "prefix": "0."}}, "Tanh", {"type": "Linear", "out_features": 4}])";
  };
  CHECK(loaded(last("layer.pt")).at("2.weight").to_vector<float>() == std::vector<float>{0, 1, 2, 3, 4, 5});

  const auto says = [&](const std::string& layers, const std::string& text) {
    std::string got;
    try {
      loaded(layers);
    } catch (const ConfigError& e) { got = e.what(); }
    CAPTURE(got);
    CHECK(contains(got, text));
  };
  says(R"(["Flatten", {"type": "Linear", "out_features": 4, "weights": ")" + file + R"("}])",
       "[model.layers.1.weights] " + file + ": [load_state_dict] the state does not fit Linear");
  CHECK(loaded(last("whole_model.pt")).at("2.weight").to_vector<float>() == std::vector<float>{0, 1, 2, 3, 4, 5});
  says(last("command.pt"),
       "[model.layers.2.weights] [torch_file] " + torch + "command.pt: must be or have a dictionary of tensors");
  says(R"(["Flatten", {"type": "Linear", "out_features": 4, "weights": "/no/where.safetensors"}])",
       "[model.layers.1.weights] [safetensors] /no/where.safetensors: cannot read: No such file or directory");
}

TEST_CASE("fine-tuning: a run takes another run's body, holds it and trains a new head; resuming and evaluating need no file") {
  TempDir dir;
  const auto text = [](const std::string& keys, int classes) {
    return R"({"model": {"type": "Sequential", "layers": [{"type": "Sequential", "name": "body", )" + keys +
           R"("layers": ["Flatten", {"type": "Linear", "out_features": 6}, "ReLU"]}, {"type": "Linear", "name": "head",
           "out_features": "auto"}]}, "loss": "CrossEntropyLoss", "optimizer": "SGD", "device": "cpu", "data": {"train":
           {"type": "Random", "num_batches": 2, "input_shape": [3, 2], "classes": )" +
           std::to_string(classes) + R"(}, "loader": {"batch_size": 4}}, "train": {"epochs": 2}})";
  };
  write(dir / "first.json", text("", 3));
  write(dir / "second.json", text(R"("weights": {"path": "runs/first", "prefix": "body."}, "freeze": true, )", 5));
  Ran ran = run(dir, "train first.json");
  CAPTURE(ran.err);
  REQUIRE(ran.code == 0);
  ran = run(dir, "train second.json --set train.epochs=1");
  CAPTURE(ran.err);
  REQUIRE(ran.code == 0);
  const auto saved = [&](const std::string& of) {
    return load_checkpoint(dir / ("runs/" + of)).model.at("body.1.weight").to_vector<float>();
  };
  CHECK(saved("second") == saved("first"));
  fs::remove_all(dir / "runs/first");
  ran = run(dir, "train second.json --resume auto");
  CAPTURE(ran.err);
  CHECK(ran.code == 0);
  CHECK(run(dir, "eval runs/second").code == 0);
  ran = run(dir, "train second.json --set output_dir=runs/third");
  CHECK(ran.code != 0);
  CHECK(contains(ran.err, "[model.layers.0.weights] [checkpoint] runs/first: there is no such file or directory"));
}
