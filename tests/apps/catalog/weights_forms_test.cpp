// SPDX-License-Identifier: Apache-2.0
// `weights` of a config: which part of a file is read, and tensors of the file that are parts of the model's, or are others' parts.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <map>

#include "apps/catalog/modules.h"
#include "apps/catalog/weights.h"
#include "apps/config/config.h"
#include "framework/io/checkpoint/checkpoint.h"
#include "framework/io/weights/safetensors.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"
#include "tests/apps/tiny_run.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

Json weights_config(const Json& layers, const Json& weights, const Json& input) {
  return {{"model", {{"type", "Sequential"}, {"weights", weights}, {"layers", layers}}},
          {"loss", "CrossEntropyLoss"},
          {"optimizer", "SGD"},
          {"device", "cpu"},
          {"data", {{"train", {{"type", "Random"}, {"input_shape", input}, {"classes", 2}}}, {"loader", {{"batch_size", 4}}}}},
          {"train", {{"epochs", 1}}}};
}

struct WithWeights {
  std::string said;  // by loading, or its error
  std::map<std::string, Tensor> tensors;
};
WithWeights with_weights(const TempDir& dir, const Json& config) {
  WithWeights out;
  try {
    const Config c = load_config(write(dir / "config.json", config.dump()));
    const auto model = build_model(c.model);
    for (const std::string& line : load_weights(*model, c.model, "model")) out.said += line;
    for (const NamedTensor& n : model->state_dict()) out.tensors[n.name] = n.tensor;
  } catch (const ConfigError& e) { out.said = e.what(); }
  return out;
}

// A model of the tensors of tests/io/torch: Linear(3, 2) and BatchNorm1d(2).
WithWeights of_layer(const TempDir& dir, const std::string& file, Json weights = Json::object()) {
  weights["path"] = fs::path(file).is_absolute() ? file : halfstep_source_dir() + "/tests/io/torch/" + file;
  return with_weights(dir, weights_config({{{"type", "Linear"}, {"out_features", 2}}, "BatchNorm1d"}, weights, {3}));
}

// Attention of width 4, and a head.
WithWeights of_attention(const TempDir& dir, const TensorMap& file, Json weights = Json::object(), bool bias = true) {
  weights["path"] = (dir / "w.safetensors").string();
  save_safetensors(dir / "w.safetensors", file);
  const Json attention = {{"type", "MultiheadAttention"}, {"name", "attn"}, {"num_heads", 2}, {"bias", bias}};
  return with_weights(
      dir, weights_config({attention, "Flatten", {{"type", "Linear"}, {"name", "fc"}, {"out_features", 2}}}, weights, {3, 4}));
}
TensorMap three_parts(const std::array<std::string, 3>& names, bool bias = true) {
  TensorMap out{{"attn.out_proj.weight", zeros({4, 4})}, {"fc.weight", zeros({2, 12})}, {"fc.bias", zeros({2})}};
  if (bias) out["attn.out_proj.bias"] = zeros({4});
  for (size_t i = 0; i < 3; ++i) {
    out["attn." + names[i] + ".weight"] = full({4, 4}, double(i));
    if (bias) out["attn." + names[i] + ".bias"] = full({4}, double(i));
  }
  return out;
}

}  // namespace

TEST_CASE("weights: the dictionary of tensors of a checkpoint is found, or named by `key`") {
  const TempDir dir;
  CHECK(of_layer(dir, "student.pt").said.ends_with("student.pt: 7 tensors of \"student\""));
  const WithWeights objects = of_layer(dir, "objects.pt");
  CHECK(objects.said.ends_with("objects.pt: 7 tensors of \"model_state\""));
  CHECK(objects.tensors.at("0.weight").to_vector<float>() == std::vector<float>{0, 1, 2, 3, 4, 5});
  CHECK(of_layer(dir, "layer.pt").said.ends_with("layer.pt: 7 tensors"));
  const std::string several = of_layer(dir, "two_models.pt").said;
  CHECK_MESSAGE(contains(several,
                         "\"model\" (7 tensors), \"state_dict\" (7 tensors)\nhelp: \"key\": \"model\" and \"key\": "
                         "\"state_dict\" fit this model: each has 7 of its 7 tensors"),
                several);
  // The one that fits the model, whatever its place and its letters.
  for (const char* file : {"two_unlike.pt", "two_unlike.old.pt"}) {
    const std::string unlike = of_layer(dir, file).said;
    CHECK_MESSAGE(contains(unlike,
                           "\"maler\" (2 tensors), \"pr\u00fcfer\" (7 tensors)\nhelp: \"key\": \"pr\u00fcfer\" fits this "
                           "model: it has 7 of its 7 tensors"),
                  unlike);
    CHECK(of_layer(dir, file, {{"key", "pr\u00fcfer"}}).said.ends_with("7 tensors of \"pr\u00fcfer\""));
  }
  CHECK(of_layer(dir, "two_models.pt", {{"key", "state_dict"}}).said.ends_with("7 tensors of \"state_dict\""));
  CHECK(contains(of_layer(dir, "two_models.pt", {{"key", "ema"}}).said,
                 "must have the key \"ema\"; its dictionaries of tensors are"));
  CHECK(contains(of_layer(dir, "two_models.pt", {{"key", 3}}).said, "model.weights.key: must be a string"));
  save_safetensors(dir / "a.safetensors", {{"0.bias", zeros({2})}});
  CHECK(contains(of_layer(dir, (dir / "a.safetensors").string(), {{"key", "model"}}).said,
                 "a key is for files of torch.save, and this is none, got \"model\""));
}

TEST_CASE("weights: NaN and infinity in a file are named by validate, inspect and training") {
  const TempDir dir;
  Tensor weight = rand({2, 3});
  weight.data_ptr<float>()[4] = NAN, weight.data_ptr<float>()[5] = -INFINITY;
  save_safetensors(dir / "w.safetensors", {{"0.bias", zeros({2})}, {"0.weight", weight}});
  write(dir / "c.json", weights_config(Json::array({{{"type", "Linear"}, {"out_features", 2}}}), "w.safetensors", {3}).dump());
  const char* const said =
      "w.safetensors: 1 tensor holds NaN or infinity: 0.weight (2 of 6); a model with such weights answers NaN";
  const Ran valid = run(dir, "validate c.json"), trained = run(dir, "train c.json --quiet");
  CHECK(valid.code == 0);
  CHECK_MESSAGE(contains(valid.err, said), valid.err);
  CHECK_MESSAGE(contains(trained.err, said), trained.err);
  for (const std::string values : {"", " --values"})
    CHECK_MESSAGE(contains(run(dir, "inspect w.safetensors" + values).out,
                           "warning: 1 tensor holds values that are NaN or infinite: 0.weight"),
                  values);
  save_safetensors(dir / "w.safetensors", {{"0.bias", zeros({2})}, {"0.weight", ones({2, 3})}});
  CHECK(!contains(run(dir, "validate c.json").err, "NaN"));
  CHECK(!contains(run(dir, "inspect w.safetensors").out, "NaN"));
}

TEST_CASE("weights: a tensor that halfstep cannot have is an error only where it is wanted") {
  const TempDir dir;
  const auto entry = [](const std::string& dtype, const Json& shape, int from, int to) {
    return Json{{"dtype", dtype}, {"shape", shape}, {"data_offsets", {from, to}}};
  };
  const auto file = [&](const Json& header, size_t bytes) {
    const std::string text = header.dump();
    const uint64_t size = text.size();
    write(dir / "f.safetensors", std::string(reinterpret_cast<const char*>(&size), 8) + text + std::string(bytes, '\0'));
    return (dir / "f.safetensors").string();
  };
  const auto linear = [&](const Json& weights) {
    return with_weights(dir, weights_config(Json::array({{{"type", "Linear"}, {"out_features", 2}}}), weights, {3})).said;
  };
  Json header{
      {"0.bias", entry("F32", {2}, 0, 8)}, {"0.weight", entry("F32", {2, 3}, 8, 32)}, {"scale", entry("F8_E8M0", {5}, 32, 37)}};
  const std::string path = file(header, 37);
  CHECK(contains(linear({{"path", path}}), "unexpected: scale\nhelp: "));
  CHECK(linear({{"path", path}, {"skip", "^scale$"}}).ends_with("f.safetensors: 2 tensors"));
  CHECK(linear({{"path", path}, {"strict", false}}).ends_with("2 tensors; 1 of the file are not in the model"));
  CHECK(contains(linear({{"path", path}, {"strict", false}, {"rename", {{{"match", "scale"}, {"replace", "0.weight"}}}}}),
                 "tensor \"scale\" has the dtype \"F8_E8M0\", which is not supported\nhelp: in Python, "));
  header["scale"] = entry("F4", {800}, 32, 37);
  CHECK(contains(linear({{"path", file(header, 37)}}), "[safetensors]"));  // more elements than bits

  // {"w": tensor, "array": of NumPy, "z": complex, "lr": 0.1}
  const auto mixed = [&](const Json& rename) {
    return with_weights(
               dir, weights_config(
                        Json::array({{{"type", "Linear"}, {"name", "fc"}, {"out_features", 2}}, {{"type", "UnitNorm"}}}),
                        {{"path", halfstep_source_dir() + "/tests/io/torch/mixed.pt"}, {"strict", false}, {"rename", rename}}, {3}))
        .said;
  };
  CHECK(contains(mixed(Json::array()), "nothing would be read"));
  CHECK(contains(mixed({{{"match", "^z$"}, {"replace", "fc.bias"}}}), "\"z\" must be a dense tensor of float32"));
  CHECK(contains(mixed({{{"match", "^array$"}, {"replace", "fc.bias"}}}),
                 "\"array\" must be a tensor, got the Python object numpy."));
}

TEST_CASE("weights: queries, keys and values under their usual names become in_proj") {
  const TempDir dir;
  using Names = std::array<std::string, 3>;
  for (const Names& names : {Names{"q_proj", "k_proj", "v_proj"}, Names{"query", "key", "value"}, Names{"to_q", "to_k", "to_v"}}) {
    CAPTURE(names[0]);
    const WithWeights got = of_attention(dir, three_parts(names));
    CHECK(contains(got.said, "6 tensors; 2 are joined: attn.in_proj_weight of attn." + names[0] + ".weight, attn." + names[1] +
                                 ".weight, attn." + names[2] + ".weight, and 1 more"));
    for (int64_t i = 0; i < 12; ++i) {
      CHECK(got.tensors.at("attn.in_proj_weight")[i][3].item<float>() == float(i / 4));
      CHECK(got.tensors.at("attn.in_proj_bias")[i].item<float>() == float(i / 4));
    }
  }
  CHECK(contains(of_attention(dir, three_parts({"wq", "wk", "wv"}, false), Json::object(), false).said,
                 "; 1 is joined: attn.in_proj_weight"));
  TensorMap fewer = three_parts({"q_proj", "k_proj", "v_proj"});
  fewer["attn.k_proj.weight"] = fewer["attn.v_proj.weight"] = ones({2, 4});
  CHECK(contains(of_attention(dir, fewer).said, "help: the file's attention has fewer heads for keys and values than for queries"));
  TensorMap lacking = three_parts({"q_proj", "k_proj", "v_proj"});
  lacking.erase("attn.k_proj.weight");
  CHECK(contains(of_attention(dir, lacking).said, "missing: attn.in_proj_weight"));
}

TEST_CASE("weights: `join` puts parts together in the order of its patterns, and `part` takes some rows") {
  const TempDir dir;
  const TensorMap file = three_parts({"c", "a", "b"});
  const Json join = {{"match", {"\\.c\\.", "\\.a\\.", "\\.b\\."}}, {"to", ".in_proj_"}};
  const WithWeights got = of_attention(dir, file, {{"join", Json::array({join})}});
  CHECK(contains(got.said, "; 2 are joined: attn.in_proj_bias of attn.c.bias, attn.a.bias, attn.b.bias, and 1 more"));
  CHECK(got.tensors.at("attn.in_proj_weight")[11][0].item<float>() == 2);
  CHECK(got.tensors.at("attn.in_proj_weight")[0][0].item<float>() == 0);

  TensorMap more = file;
  more["fc.weight"] = ones({5, 12});
  more["row"] = full({3, 12}, 4.0);
  const Json rows = {{{"match", "^fc\\.weight$"}, {"start", 3}}, {{"match", "^row$"}, {"start", 1}, {"end", 2}}};
  const Json sum = {{"match", {"^fc\\.weight$", "^row$"}}, {"to", "fc.weight"}, {"combine", "add"}};
  const WithWeights added = of_attention(dir, more, {{"join", {join, sum}}, {"part", rows}});
  CHECK_MESSAGE(added.tensors.contains("fc.weight"), added.said);
  if (added.tensors.contains("fc.weight")) CHECK(added.tensors.at("fc.weight")[1][11].item<float>() == 5);

  const auto fault = [&](const Json& weights) { return of_attention(dir, more, weights).said; };
  CHECK(contains(fault({{"join", {join, sum}}}), "[load] fc.weight must be joined of tensors that fit: fc.weight, row: "));
  const Json beyond = {{{"match", "^row$"}, {"start", 1}, {"end", 4}}};
  CHECK(contains(fault({{"part", beyond}}), "[load] row must have a part from 1 to 4 along dimension 0, got [3, 12]"));
  const Json flat = {{{"match", "^row$"}, {"dim", 2}}};
  CHECK(contains(fault({{"part", flat}}), "[load] row must have the dimension of which a part is taken, 2, got [3, 12]"));
  Json absent = join;
  absent["match"].push_back("\\.d\\.");
  CHECK(contains(fault({{"join", Json::array({absent})}}),
                 "attn.in_proj_bias must be joined of 4 tensors, but the file has only attn.c.bias, attn.a.bias, attn.b.bias"));
  Json twice = join;
  twice["match"] = {"\\.[ca]\\.", "\\.b\\."};
  CHECK(contains(fault({{"join", Json::array({twice})}}), "\"join\" must give each part of attn.in_proj_bias a place of its own"));
  Json one = join;
  one["match"] = Json::array({"a"});
  CHECK(contains(fault({{"join", Json::array({one})}}), "model.weights.join.0.match: must be a list of regular expressions"));
}

TEST_CASE("weights: a run's are those that eval takes, of its best checkpoint and averaged; a line says which") {
  const Folder dir;
  REQUIRE(dir.train("--set 'train.ema={\"decay\": 0.9}'").code == 0);
  REQUIRE(dir.train("--set output_dir=plain").code == 0);
  mark_best(dir / "r", 6);
  mark_best(dir / "plain", 9);
  // Trains a new run for no step, with the line about its weights. Returns its first values of the weight.
  const auto first_values = [&](const std::string& path, const std::string& line) {
    const Ran r = run(
        dir, "train tiny.json --overwrite --threads 1 --set output_dir=v --set train.epochs=0 --set model.weights.path=" + path);
    CAPTURE(r.out);
    CAPTURE(r.err);
    REQUIRE(r.code == 0);
    CHECK(contains(r.out, "weights: " + line + ": 2 tensors\n"));
    return load_checkpoint(dir / "v").model.at("weight").to_vector<float>();
  };
  const auto trained = [&](const std::string& at) { return load_checkpoint(dir / at).model.at("weight").to_vector<float>(); };
  const auto average = [&](const std::string& at) {
    return load_checkpoint(dir / at).state.at("optimizer.weight.average").to_vector<float>();
  };
  const std::string third = "r/step-00000003", sixth = "r/step-00000006", last = "r/step-00000012";
  CHECK(average(sixth) != trained(sixth));
  CHECK(first_values("r", sixth + " (best, averaged)") == average(sixth));
  CHECK(first_values("r/best", sixth + " (best, averaged)") == average(sixth));
  CHECK(first_values("r/latest", last + " (latest, averaged)") == average(last));
  CHECK(first_values(third, third + " (averaged)") == average(third));
  CHECK(first_values(third + "/model.safetensors", third + "/model.safetensors") == trained(third));
  CHECK(first_values("plain", "plain/step-00000009 (best)") == trained("plain/step-00000009"));
  fs::remove(dir / "plain/best");
  CHECK(first_values("plain", "plain/step-00000012 (latest)") == trained("plain/step-00000012"));
  CHECK(contains(run(dir, "validate tiny.json --set model.weights.path=r").out,
                 "weights: " + sixth + " (best, averaged): 2 tensors\n"));
}
