// What must hold between keys, and what is filled in from others.
#include <doctest/doctest.h>

#include <ctime>

#include "apps/catalog/modules.h"
#include "apps/catalog/optimizers.h"
#include "tests/apps/config/load.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

TEST_CASE("rules between keys") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);
  const auto with = [&](std::vector<std::string> sets) { return error_of(file, {.sets = std::move(sets)}); };
  CHECK(contains(with({"data.train={\"type\":\"Random\",\"input_shape\":[4],\"target_shape\":[2]}"}),
                 "CrossEntropyLoss needs data with classes"));
  CHECK(contains(with({"loss=MSELoss"}), "MSELoss needs numbers as targets"));
  CHECK(contains(with({"data.loader.drop_last=true", "data.loader.batch_size=100"}), "with drop_last there is no batch"));
  CHECK(contains(with({"train.deterministic=false"}), "must be true: every run gives the same bits"));
  CHECK(contains(with({"train.max_steps=3"}), "must not be given together with epochs"));
  CHECK(contains(with({"train.epochs=null"}), "train: needs epochs or max_steps"));
  CHECK(contains(with({"model.out_features=3"}), "the output must have shape [10], one a class, got [3]"));
  CHECK(contains(with({"checkpoint.keep_best=1", "checkpoint.monitor=val/loss"}), "val/loss needs data.val"));
  const Config warned = load_config(file, {.sets = {"amp.dtype=float16", "amp.scaler.enabled=false"}});
  REQUIRE(warned.warnings.size() == 1);
  CHECK(contains(warned.warnings[0], "float16 without a gradient scaler loses small gradients"));
}

TEST_CASE("metrics, and which value is the best's") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);
  const auto with = [&](std::vector<std::string> sets) { return error_of(file, {.sets = std::move(sets)}); };
  const std::string val = "data.val=Digits", numbers = R"(data.train={"type": "Random", "input_shape": [4], "target_shape": [2]})";
  CHECK(contains(with({"metrics=[\"acuracy\"]"}), "metrics.0: unknown metric \"acuracy\"; did you mean \"accuracy\"?"));
  CHECK(contains(with({"metrics=[\"top5\"]"}), "metrics.0: unknown metric \"top5\""));
  CHECK(contains(with({R"(metrics=[{"type": "top_k", "k": 11}])"}), "metrics.0.k: must be at most the number of classes, 10, got 11"));
  CHECK(contains(with({"metrics=[\"accuracy\", \"accuracy\"]"}), "metrics.1: two values would be called \"accuracy\""));
  CHECK(contains(with({R"(metrics=[{"type": "accuracy", "name": "loss"}])"}), "metrics.0: two values would be called \"loss\""));
  CHECK(contains(with({numbers, "loss=MSELoss", "metrics=[\"accuracy\"]"}), "metrics.0: accuracy needs data with classes"));
  CHECK(contains(with({val, "checkpoint.monitor=val/acuracy"}),
                 "checkpoint.monitor: must be \"val/loss\", \"val/accuracy\" or \"train/loss\", "
                 "got \"val/acuracy\"; did you mean \"val/accuracy\"?"));
  CHECK(contains(with({numbers, "loss=MSELoss", "data.val=" + numbers.substr(11), "checkpoint.monitor=val/accuracy"}),
                 "checkpoint.monitor: val/accuracy needs data with classes"));
  CHECK(contains(with({"checkpoint.keep_best=1", "checkpoint.monitor=val/accuracy"}), "val/accuracy needs data.val"));

  const auto best = [&](std::vector<std::string> sets) { return load_config(file, {.sets = std::move(sets)}).checkpoint; };
  CHECK(best({val}).monitor == "val/accuracy");
  CHECK(best({val}).mode == "max");
  CHECK(best({val, "checkpoint.monitor=val/loss"}).mode == "min");
  CHECK(best({val, "checkpoint.mode=min"}).mode == "min");
  const CheckpointSection renamed = best({val, R"(metrics=[{"type": "accuracy", "name": "right"}])"});
  CHECK((renamed.monitor == "val/right" && renamed.mode == "max"));

  // A table that is not there says nothing about classes.
  const std::string csv = R"(data.train={"type": "CSV", "path": "absent.csv"})",
                    csv_val = R"(data.val={"type": "CSV", "path": "absent.csv"})";
  CHECK(with({csv, csv_val, "metrics=[\"accuracy\"]", "checkpoint.monitor=val/accuracy"}) == "");
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
                 "put \"Flatten\" before the last Linear"));
  const std::string twins = R"(model={"type": "Sequential", "layers": [
    {"type": "ReLU", "name": "a"}, {"type": "ReLU", "name": "a"}, "Flatten", {"type": "Linear", "out_features": 10}]})";
  CHECK(contains(error_of(file, {.sets = {twins}}), "two layers are called \"a\""));
}

TEST_CASE("patterns are checked with the config and matched in linear time") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);
  const auto groups = [&](const std::string& match) {
    return ConfigOptions{.sets = {R"(optimizer.groups=[{"match": ")" + match + R"(", "lr": 0.5}])"}};
  };
  CHECK(contains(error_of(file, groups("[")), "optimizer.groups.0.match: must be a regular expression, got \"[\": missing ]"));
  CHECK(contains(error_of(file, groups("(?=a)")), "optimizer.groups.0.match: must be a regular expression"));
  CHECK(contains(error_of(file, groups(std::string(16'000, '('))), "optimizer.groups.0.match: must not be longer than 1000 bytes"));
  CHECK(contains(error_of(file, groups(std::string(1000, '('))), "must be a regular expression"));
  CHECK(contains(error_of(file, groups("((a{1000}){1000}){1000}")), "must be a regular expression"));
  CHECK(contains(error_of(file, groups("a\\u0000b")), "a string holds a NUL character"));
  std::string many = R"({"match": "a"})";
  for (int i = 0; i < 100; ++i) many += R"(, {"match": "a"})";
  CHECK(contains(error_of(file, {.sets = {"optimizer.groups=[" + many + "]"}}), "optimizer.groups: must be a list of at most 100 objects, got [{"));
  const auto optimizer = [&](const std::string& match) {
    const Config c = load_config(file, groups(match));
    const auto model = build_model(c.json["model"]);
    return build_optimizer(c.json["optimizer"], *model)->describe();
  };
  for (const char* match : {"bias", "^0\\\\.bias$", "weight|bias", "[0-2]+\\\\.(weight|bias)"}) CHECK_NOTHROW(optimizer(match));
  // A matcher that tries one way after the other takes longer than the age of the universe.
  const std::clock_t start = std::clock();
  CHECK_THROWS_WITH_AS(optimizer("(((((.*)*)*)*)*)*y"), doctest::Contains("but is in none"), ConfigError);
  CHECK(std::clock() - start < 5 * CLOCKS_PER_SEC);
}
