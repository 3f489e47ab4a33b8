// SPDX-License-Identifier: Apache-2.0
// Reading a whole config: messages, its parts, and that nothing gets lost on the way.
#include <doctest/doctest.h>

#include <cstdlib>
#include <set>

#include "tests/apps/config/load.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

TEST_CASE("five mistakes give five messages, with places and suggestions") {
  TempDir dir;
  const auto file = write(dir / "c.json", R"({
  // a comment
  "model": {"type": "MLP", "hidden": [8, 0], "out_features": "auto", "activation": "Relu6"},
  "loss": "CrossEntropyLoss",
  "optimizer": {"type": "SGD", "learning_rate": 0.1, "momentum": 1.5},
  "data": {"train": {"type": "Digits"}, "loader": {"batchsize": 16}},
  "train": {"epochs": 1}
})");
  const std::string error = error_of(file);
  const std::string at = "\n  " + file.string();
  CHECK(contains(error, "[config] 5 errors in " + file.string()));
  CHECK(count(error, "\n") == 5);
  CHECK(contains(error, at + ":3:42: model.hidden.1: must be an integer >= 1, got 0"));
  CHECK(contains(error, at + ":3:84: model.activation: unknown layer \"Relu6\"; did you mean \"ReLU6\"?"));
  CHECK(contains(error, at + ":5:32: optimizer.learning_rate: unknown key of SGD; did you mean \"lr\"?"));
  CHECK(contains(error, at + ":5:66: optimizer.momentum: must be a number in [0, 1), got 1.5"));
  CHECK(contains(error, at + ":6:52: data.loader.batchsize: unknown key of loader; did you mean \"batch_size\"?"));
}

TEST_CASE("the schema explains itself") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);
  const auto with = [&](const std::string& set) { return error_of(file, {.sets = {set}}); };
  CHECK(error_of(file) == "");
  CHECK(contains(with("epochs=3"), "--set epochs=3: epochs: unknown key; did you mean \"train.epochs\"?"));
  CHECK(contains(with("lr=3"), "did you mean \"optimizer.lr\"?"));
  CHECK(contains(with("model.type=TransformerDecoder"), "model.type: TransformerDecoder takes several tensors, where a config has "
                                                        "one: it is for C++ only (docs/layers.md)"));
  CHECK(contains(with("loss=GaussianNLLLoss"), "loss: GaussianNLLLoss takes several tensors"));
  CHECK(contains(with("distributed.backend=gloo"),
                 "distributed.backend: must be \"auto\", \"host\", \"nccl\" or \"mpi\", got \"gloo\""));
  CHECK(contains(with("performance.fused_optimizer=false"), "an unfused optimizer is not supported yet; only true works"));
  CHECK(with("performance.cuda_graph=true") == "");
  CHECK(with("performance.cuda_graph=false") == "");
  CHECK(contains(with("amp.dtype=bf16"),
                 "amp.dtype: must be \"auto\", \"float16\" or \"bfloat16\", got \"bf16\"; did you mean \"bfloat16\"?"));
  for (const char* name : {"f16", "fp16", "half"})
    CHECK(contains(with("amp.dtype=" + std::string(name)), "; did you mean \"float16\"?"));
  CHECK(contains(with("amp=bf16"), "amp: must be true, false or an object, got \"bf16\"; did you mean amp.dtype, \"bfloat16\"?"));
  CHECK(with("amp=hello").ends_with("amp: must be true, false or an object, got \"hello\""));
  CHECK(contains(with("optimizer.otype=SGD"), "did you mean \"type\"?"));
  CHECK(contains(with("optimizer={\"otype\":\"SGD\"}"), "\"otype\" should be \"type\""));
  CHECK(contains(with("checkpoint.every=often"), "checkpoint.every: must be a number of steps, \"N steps\""));
  CHECK(contains(with("train.epochs=1.5"), "train.epochs: must be an integer >= 0, got 1.5"));
  CHECK(contains(with("device=tpu"), "device: must be \"auto\", \"cpu\", \"cuda\" or \"cuda:N\", got \"tpu\""));
  CHECK(contains(with("model=null"), "model: is missing: the network"));
  CHECK(contains(with("nonsense"), "must have the form key.key=value"));
  CHECK(contains(with("model.hidden.7=3"), "model.hidden is a list of 1, so it takes an index below that, got \"7\""));
}

TEST_CASE("extends merges, null deletes, lists are replaced, --set comes last") {
  TempDir dir;
  write(dir / "base.json", kGood);
  write(dir / "middle.json",
        R"({"extends": "base.json", "optimizer": {"momentum": 0.9}, "model": {"hidden": [4, 4]}, "train": {"clip_grad_norm": 2}})");
  const auto file = write(dir / "top.json", R"({"extends": "middle.json", "train": {"clip_grad_norm": null}, "seed": 7,
    "output_dir": "out/${name}-${seed}", "data": {"root": "${config_dir}/x"}})");
  const Config c =
      load_config(file, {.sets = {"optimizer.lr=0.5", "optimizer.lr=0.25", "loss.label_smoothing=0.1", "model.hidden.0=6"}});
  CHECK(c.json["optimizer"]["momentum"] == 0.9);
  CHECK(c.json["optimizer"]["lr"] == 0.25);
  CHECK(c.json["loss"]["type"] == "CrossEntropyLoss");
  CHECK(c.json["loss"]["label_smoothing"] == 0.1);
  CHECK(c.json["model"]["hidden"] == Json::parse("[6, 4]"));
  CHECK(c.json["train"]["clip_grad_norm"].is_null());
  CHECK(c.json["name"] == "top");
  CHECK(c.json["output_dir"] == "out/top-7");
  CHECK(c.json["data"]["root"] == dir.path().string() + "/x");

  write(dir / "a.json", R"({"extends": "b.json"})");
  write(dir / "b.json", R"({"extends": "a.json"})");
  CHECK(contains(error_of(dir / "a.json"), "extends must not form a circle, got a.json -> b.json -> a.json"));
  const auto odd =
      write(dir / "odd.json", R"({"extends": "base.json", "name": "${env:HALFSTEP_NOT_SET}", "output_dir": "${nmae}"})");
  CHECK(contains(error_of(odd), "the environment variable HALFSTEP_NOT_SET is not set"));
  CHECK(contains(error_of(odd), "unknown variable ${nmae}"));
  // An error of the base is reported at its place in the base.
  write(dir / "bad.json", R"({"extends": "base.json",
  "seed": -1})");
  const auto over = write(dir / "over.json", R"({"extends": "bad.json"})");
  CHECK(contains(error_of(over), (dir / "bad.json").string() + ":2:11: seed: must be an integer >= 0, got -1"));
}

TEST_CASE("a key of a section that is switched off is an error: it would change nothing") {
  TempDir dir;
  const auto off = write(dir / "off.json", std::string(kGood).insert(1, "\"amp\": false, "));
  const auto with = [&](std::vector<std::string> sets, bool no_amp = false) {
    return error_of(off, {.sets = std::move(sets), .no_amp = no_amp});
  };
  CHECK(contains(with({"amp.dtype=bfloat16"}), "--set amp.dtype=bfloat16: amp.dtype: has no effect while amp is switched off; add "
                                               "--set amp.enabled=true"));
  CHECK(contains(with({"amp.scaler.init_scale=2"}), "amp.scaler.init_scale: has no effect while amp is switched off"));
  CHECK(with({"amp.dtype=bfloat16", "amp.enabled=true"}) == "");
  CHECK(with({"amp.enabled=true", "amp.dtype=bfloat16"}) == "");
  CHECK(with({"amp.dtype=bfloat16", "amp.enabled=false"}) == "");  // switched off in so many words
  CHECK(with({"amp.dtype=bfloat16"}, /*no_amp=*/true) == "");
  CHECK(with({R"(amp={"dtype":"bfloat16"})"}) == "");
  CHECK(contains(with({"amp=false", "amp.dtype=bfloat16"}), "amp.dtype: has no effect"));
  CHECK(with({"train.ema.decay=0.5"}) == "");  // which was left out
  CHECK(contains(with({"train.ema=false", "train.ema.decay=0.5"}), "add --set train.ema.enabled=true"));

  write(dir / "base.json", std::string(kGood).insert(1, "\"amp\": {\"enabled\": false}, "));
  const auto top = write(dir / "top.json", R"({"extends": "base.json",
    "amp": {"dtype": "bfloat16"}})");
  CHECK(contains(error_of(top), (dir / "top.json").string() + ":2:22: amp.dtype: has no effect: the config that this one extends "
                                                              "has amp switched off; add \"enabled\": true"));
  const auto on = write(dir / "on.json", R"({"extends": "base.json", "amp": {"enabled": true, "dtype": "float16"}})");
  CHECK(load_config(on).low == DType::f16);
  const auto from_false = write(dir / "from_false.json", R"({"extends": "off.json", "amp": {"dtype": "float16"}})");
  CHECK(load_config(from_false).low == DType::f16);
}

TEST_CASE("a resolved config resolves to itself") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);
  const Config once = load_config(file, {.sets = {"amp=true"}});
  const Config twice = load_config(write(dir / "r.json", once.json.dump()));
  CHECK(once.json == twice.json);
  CHECK(resolve_config(once.json, "stored").json == once.json);
}

// The paths of a document's keys; components, whose keys are in tables of their own, as their keys alone.
void gather_keys(const Json& value, const std::string& path, std::set<std::string>& out) {
  if (value.is_array())
    for (const Json& item : value) gather_keys(item, path, out);
  if (!value.is_object()) return;
  const bool component = value.contains("type") && path != "data.loader.sampler";
  for (const auto& [key, below] : value.items()) {
    if (component && key == "type") continue;
    const std::string here = component || path.empty() ? key : path + "." + key;
    if (!below.is_object() || below.contains("type")) out.insert(here);
    gather_keys(below, component ? "" : here, out);
  }
}

TEST_CASE("a resolved config has no key that docs/reference/config_keys.md lacks") {
  const std::string docs = read(fs::path(halfstep_source_dir()) / "docs/reference/config_keys.md");
  TempDir dir;
  std::set<std::string> keys;
  gather_keys(load_config(write(dir / "c.json", kGood)).json, "", keys);
  for (const char* name : {"digits_mlp.json", "digits_resnet.json", "digits_lstm.json", "mlp_amp.json", "recipes/ctc_digits.json"})
    gather_keys(load_config(configs() / name).json, "", keys);
  CHECK(keys.size() > 90);
  for (const std::string& key : keys)  // a section that was left out has rows for its keys
    CHECK_MESSAGE((contains(docs, "\n| `" + key + "` |") || contains(docs, "\n| `" + key + ".")), key);
}

TEST_CASE("syntax errors and repeated keys have places") {
  TempDir dir;
  CHECK(contains(error_of(write(dir / "s.json", "{\n  \"seed\": 1,,\n}")), (dir / "s.json").string() + ":2:13: unexpected"));
  const std::string twice = std::string(kGood).insert(1, "\"seed\": 1,\n\"seed\": 2,");
  CHECK(contains(error_of(write(dir / "t.json", twice)), ":2:1: seed: given twice"));
  CHECK(contains(error_of(dir / "none.json"), "a config must be a readable file"));
  CHECK(error_of(write(dir / "mark.json", "\xef\xbb\xbf" + std::string(kGood))) == "");  // a byte order mark
  CHECK(contains(error_of(write(dir / "list.json", "[1]"), {.no_amp = true, .device = "cpu"}), "must be an object, got [1]"));
}

// ---- input from anywhere

TEST_CASE("every config of the repository is valid") {
  int n = 0;
  for (const auto& entry : fs::directory_iterator(configs())) {
    if (entry.path().extension() != ".json") continue;
    CAPTURE(entry.path().string());
    CHECK(error_of(entry.path()) == "");
    ++n;
  }
  CHECK(n >= 4);
}
