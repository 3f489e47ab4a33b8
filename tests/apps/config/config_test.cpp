// SPDX-License-Identifier: Apache-2.0
// Reading a whole config: messages, what it is made of, and that nothing gets lost on the way.
#include <doctest/doctest.h>

#include <cstdlib>

#include "tests/apps/config/load.h"

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
  CHECK(contains(error, at + ":3:42: model.hidden.1: must be an integer in [1, 2147483647], got 0"));
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
  CHECK(contains(with("model.type=TransformerDecoder"), "model.type: TransformerDecoder is not supported yet; use \"Sequential\""));
  CHECK(contains(with("distributed.backend=gloo"), "distributed.backend: must be \"auto\", \"host\", \"nccl\" or \"mpi\", got \"gloo\""));
  CHECK(contains(with("performance.profile=true"), "profile is not supported yet; only false works"));
  CHECK(with("performance.cuda_graph=true") == "");
  CHECK(with("performance.cuda_graph=false") == "");
  CHECK(contains(with("amp.dtype=bf16"),
                 "amp.dtype: must be \"auto\", \"float16\" or \"bfloat16\", got \"bf16\"; did you mean \"bfloat16\"?"));
  CHECK(contains(with("optimizer.otype=SGD"), "did you mean \"type\"?"));
  CHECK(contains(with("optimizer={\"otype\":\"SGD\"}"), "\"otype\" should be \"type\""));
  CHECK(contains(with("checkpoint.every=often"), "checkpoint.every: must be a number of steps, \"N steps\""));
  CHECK(contains(with("train.epochs=1.5"), "train.epochs: must be an integer in [1, 1000000000], got 1.5"));
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
  CHECK(contains(error_of(over), (dir / "bad.json").string() + ":2:11: seed: must be an integer in [0, 9e+15], got -1"));
}

TEST_CASE("a resolved config resolves to itself") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);
  const Config once = load_config(file, {.sets = {"amp=true"}});
  const Config twice = load_config(write(dir / "r.json", once.json.dump()));
  CHECK(once.json == twice.json);
  CHECK(resolve_config(once.json, "stored").json == once.json);
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
