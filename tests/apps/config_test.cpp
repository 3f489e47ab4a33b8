#include "apps/config/config.h"

#include <doctest/doctest.h>

#include "apps/config/interval.h"
#include "apps/config/suggest.h"
#include "framework/base/check.h"
#include "framework/base/near_name.h"
#include "tests/apps/support.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

const char* kGood = R"({
  "model": {"type": "MLP", "hidden": [8], "out_features": "auto"},
  "loss": "CrossEntropyLoss",
  "optimizer": {"type": "SGD", "lr": 0.1},
  "data": {"train": {"type": "Digits", "size": 64}, "loader": {"batch_size": 16}},
  "train": {"epochs": 1}
})";

std::string error_of(const fs::path& file, const ConfigOptions& options = {}) {
  try {
    load_config(file, options);
  } catch (const ConfigError& e) { return e.what(); }
  return "";
}

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

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
  CHECK(contains(error, at + ":3:84: model.activation: unknown layer \"Relu6\"; did you mean \"ReLU\"?"));
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
  CHECK(contains(with("model.type=Conv2d"), "model.type: Conv2d is not supported yet; use \"Sequential\""));
  CHECK(contains(with("distributed.backend=nccl"), "distributed training is not supported yet; leave it out"));
  CHECK(contains(with("performance.channels_last=true"), "channels_last is not supported yet; only false works"));
  CHECK(with("performance.cuda_graph=true") == "");
  CHECK(with("performance.cuda_graph=false") == "");
  CHECK(contains(with("amp.dtype=bf16"),
                 "amp.dtype: must be \"auto\", \"float16\" or \"bfloat16\", got \"bf16\"; did you mean \"bfloat16\"?"));
  CHECK(contains(with("optimizer.otype=SGD"), "did you mean \"type\"?"));
  CHECK(contains(with("optimizer={\"otype\":\"SGD\"}"), "\"otype\" should be \"type\""));
  CHECK(contains(with("checkpoint.every=often"), "checkpoint.every: must be a number of steps, \"N steps\""));
  CHECK(contains(with("train.epochs=1.5"), "train.epochs: must be an integer >= 1, got 1.5"));
  CHECK(contains(with("device=tpu"), "device: must be \"auto\", \"cpu\", \"cuda\" or \"cuda:N\", got \"tpu\""));
  CHECK(contains(with("model=null"), "model: is missing: the network"));
  CHECK(contains(with("nonsense"), "must have the form key.key=value"));
  CHECK(contains(with("model.hidden.7=3"), "model.hidden is a list of 1, so it takes an index below that, got \"7\""));
}

TEST_CASE("rules between keys") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);
  const auto with = [&](std::vector<std::string> sets) { return error_of(file, {.sets = std::move(sets)}); };
  CHECK(contains(with({"data.train={\"type\":\"Random\",\"input_shape\":[4],\"target_shape\":[2]}"}),
                 "CrossEntropyLoss needs data with classes"));
  CHECK(contains(with({"loss=MSELoss"}), "MSELoss needs numbers as targets"));
  CHECK(contains(with({"data.loader.drop_last=true", "data.loader.batch_size=100"}), "with drop_last there is no batch"));
  CHECK(contains(with({"train.max_steps=3"}), "must not be given together with epochs"));
  CHECK(contains(with({"train.epochs=null"}), "train: needs epochs or max_steps"));
  CHECK(contains(with({"model.out_features=3"}), "the output must have shape [10], one a class, got [3]"));
  CHECK(contains(with({"checkpoint.keep_best=1", "checkpoint.monitor=val/loss"}), "val/loss needs data.val"));
  const Config warned = load_config(file, {.sets = {"amp.dtype=float16", "amp.scaler.enabled=false"}});
  REQUIRE(warned.warnings.size() == 1);
  CHECK(contains(warned.warnings[0], "float16 without a gradient scaler loses small gradients"));
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
  // An error of the base is reported where it stands.
  write(dir / "bad.json", R"({"extends": "base.json",
  "seed": -1})");
  const auto over = write(dir / "over.json", R"({"extends": "bad.json"})");
  CHECK(contains(error_of(over), (dir / "bad.json").string() + ":2:11: seed: must be an integer in [0, 9e+15], got -1"));
}

TEST_CASE("amp: forms and defaults") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);
  const auto with = [&](std::vector<std::string> sets, bool no_amp = false) {
    return load_config(file, {.sets = std::move(sets), .no_amp = no_amp}).json;
  };
  CHECK_FALSE(amp_dtype(with({})).has_value());
  CHECK(amp_dtype(with({"amp=true", "device=cpu"})) == DType::bf16);
  CHECK(amp_dtype(with({"amp.dtype=float16"})) == DType::f16);
  CHECK(amp_dtype(with({"amp=true", "amp.dtype=float16"})) == DType::f16);
  CHECK_FALSE(amp_dtype(with({"amp=false", "amp.dtype=float16"})).has_value());
  CHECK_FALSE(amp_dtype(with({"amp.dtype=float16"}, true)).has_value());
  CHECK(scaler_enabled(with({"amp.dtype=float16"})));
  CHECK_FALSE(scaler_enabled(with({"amp.dtype=bfloat16"})));
  CHECK(with({"amp=true"})["amp"]["scaler"]["init_scale"] == 65536.0);
}

TEST_CASE("shapes are inferred") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);
  const Config mlp = load_config(file);
  CHECK(mlp.json["model"]["in_features"] == 784);
  CHECK(mlp.json["model"]["out_features"] == 10);
  const std::string layers =
      R"(model={"type": "Sequential", "layers": ["Flatten", {"type": "Linear", "out_features": 32, "name": "fc"}, "GELU",
    {"type": "Sequential", "layers": [{"type": "Linear", "out_features": "auto"}]}]})";
  const Config seq = load_config(file, {.sets = {layers}});
  CHECK(seq.json["model"]["layers"][1]["in_features"] == 784);
  CHECK(seq.json["model"]["layers"][3]["layers"][0]["in_features"] == 32);
  REQUIRE(seq.layers.size() == 4);
  CHECK(seq.layers[1].name == "fc");
  CHECK(seq.layers[3].name == "3.0");
  CHECK(seq.layers[3].parameters == 330);
  const auto net = build_model(seq.json["model"]);
  CHECK(net->named_parameters()[0].name == "fc.weight");
  CHECK(net->named_parameters()[2].name == "3.0.weight");

  CHECK(contains(error_of(file, {.sets = {layers, "model.layers.1.in_features=100"}}),
                 "model.layers.1.in_features: must be 784 for an input of shape [784], got 100"));
  CHECK(contains(error_of(file, {.sets = {R"(model={"type": "Sequential", "layers": [{"type": "Linear", "out_features": 10}]})"}}),
                 "put \"Flatten\" before it"));
  const std::string twins = R"(model={"type": "Sequential", "layers": [
    {"type": "ReLU", "name": "a"}, {"type": "ReLU", "name": "a"}, "Flatten", {"type": "Linear", "out_features": 10}]})";
  CHECK(contains(error_of(file, {.sets = {twins}}), "two layers are called \"a\""));
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
  CHECK(contains(error_of(write(dir / "s.json", "{\n  \"seed\": 1,,\n}")), (dir / "s.json").string() + ":2:13: syntax error"));
  const std::string twice = std::string(kGood).insert(1, "\"seed\": 1,\n\"seed\": 2,");
  CHECK(contains(error_of(write(dir / "t.json", twice)), ":2:1: seed: given twice"));
  CHECK(contains(error_of(dir / "none.json"), "a config must be a readable file"));
}

TEST_CASE("suggestions and intervals") {
  CHECK(edit_distance("momentum", "momnetum") == 1);
  CHECK(suggest("num_epochs", {"epochs", "max_steps"}) == "epochs");
  CHECK(suggest("Dense", {"Linear", "MLP"}) == "Linear");
  CHECK(suggest("zzz", {"lr", "momentum"}) == "");
  CHECK(parse_interval("500 steps")->count == 500);
  CHECK(parse_interval("10 min")->count == 600);
  CHECK(parse_interval("epoch")->unit == Interval::Unit::epochs);
  CHECK(parse_interval(25)->unit == Interval::Unit::steps);
  CHECK(parse_interval("never")->unit == Interval::Unit::never);
  for (const Json& bad : {Json("0 steps"), Json("1.5 epochs"), Json("often"), Json("1 epoch or so"), Json(-3), Json(true)})
    CHECK_FALSE(parse_interval(bad));
}

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
