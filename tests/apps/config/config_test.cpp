#include "apps/config/config.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <ctime>

#include "apps/catalog/losses.h"
#include "apps/catalog/optimizers.h"
#include "apps/schema/interval.h"
#include "apps/schema/suggest.h"
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
  CHECK(contains(error, at + ":3:42: model.hidden.1: must be an integer in [1, 2147483647], got 0"));
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
  CHECK(contains(with("train.epochs=1.5"), "train.epochs: must be an integer in [1, 1000000000], got 1.5"));
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
                 "put \"Flatten\" before the last Linear"));
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
  CHECK(contains(error_of(write(dir / "s.json", "{\n  \"seed\": 1,,\n}")), (dir / "s.json").string() + ":2:13: unexpected"));
  const std::string twice = std::string(kGood).insert(1, "\"seed\": 1,\n\"seed\": 2,");
  CHECK(contains(error_of(write(dir / "t.json", twice)), ":2:1: seed: given twice"));
  CHECK(contains(error_of(dir / "none.json"), "a config must be a readable file"));
  CHECK(error_of(write(dir / "mark.json", "\xef\xbb\xbf" + std::string(kGood))) == "");  // a byte order mark
  CHECK(contains(error_of(write(dir / "list.json", "[1]"), {.no_amp = true, .device = "cpu"}), "must be an object, got [1]"));
}

// ---- input from anywhere

TEST_CASE("deep nesting is refused before anything walks it") {
  TempDir dir;
  const auto at = [&](const std::string& model) {
    std::string text = kGood;
    return text.replace(text.find("{\"type\": \"MLP\""),
                        std::string(R"({"type": "MLP", "hidden": [8], "out_features": "auto"})").size(), model);
  };
  const auto nested = [&](int levels) {
    std::string model;
    for (int i = 0; i < levels; ++i) model += R"({"type": "Sequential", "layers": [)";
    model += R"("Flatten", {"type": "Linear", "out_features": 10})";
    for (int i = 0; i < levels; ++i) model += "]}";
    return at(model);
  };
  const Config deep = load_config(write(dir / "deep.json", nested(99)));
  CHECK(build_model(deep.json["model"])->named_parameters().size() == 2);
  for (const std::string& text :
       {nested(100), nested(3600), at(std::string(15'600, '[') + std::string(15'600, ']')), std::string(1 << 20, '[')})
    CHECK(contains(error_of(write(dir / "deeper.json", text)), "values nest more than 200 levels deep"));

  const auto good = write(dir / "good.json", kGood);
  CHECK(contains(error_of(good, {.sets = {"model=" + std::string(15'600, '[') + std::string(15'600, ']')}}), "200 levels deep"));
  std::string path = "model";
  for (int i = 0; i < 20'000; ++i) path += ".a";
  CHECK(contains(error_of(good, {.sets = {path + "=1"}}), "a key may have 200 parts, got 20001"));
}

TEST_CASE("a hundred thousand mistakes are found quickly, and not all told") {
  TempDir dir;
  std::string keys, numbers;
  for (int i = 0; i < 100'000; ++i) {
    keys += "\"unknown_key_" + std::to_string(i) + "\": 1,\n";
    numbers += "\"x\", ";
  }
  const std::clock_t start = std::clock();
  const std::string error = error_of(write(dir / "keys.json", std::string(kGood).insert(1, keys)));
  CHECK(contains(error, "[config] 100000 errors in "));
  CHECK(contains(error, "unknown_key_0: unknown key"));
  CHECK(contains(error, "\n  and 99900 more"));
  CHECK(count(error, "\n") == 101);
  const std::string many =
      error_of(write(dir / "list.json", std::string(kGood).replace(std::string(kGood).find("[8]"), 3, "[" + numbers + "8]")));
  CHECK(contains(many, "[config] 100000 errors in "));
  // Quadratic work would take tens of seconds of this program's own time. A sanitizer's build takes ten times as long as a usual
  // one, which is below 1 s.
  CHECK(std::clock() - start < 10 * CLOCKS_PER_SEC);
  CHECK(error_of(write(dir / "long.json", R"({")" + std::string(1 << 20, 'k') + R"(": 1})")).size() < 5000);
}

TEST_CASE("a config is a file of at most 16 MiB, with all that it extends") {
  TempDir dir;
  for (const char* device : {"/dev/full", "/dev/zero", "/dev/null"})
    CHECK(contains(error_of(device), std::string("cannot read ") + device + ": it is a device, not a file"));
  CHECK(contains(error_of(dir.path()), "it is a directory, not a file"));
  CHECK(contains(error_of(dir / std::string(300, 'x')), "File name too long"));
  const std::string spaces(size_t(9) << 20, ' ');
  write(dir / "base.json", kGood + spaces);
  CHECK(error_of(dir / "base.json") == "");
  CHECK(contains(error_of(write(dir / "both.json", R"({"extends": "base.json"})" + spaces)),
                 "a config must be a readable file of at most 16 MiB"));
  CHECK(contains(error_of(write(dir / "z.json", R"({"extends": "/dev/zero"})")), "it is a device"));
  // A megabyte of small values is no config either: where each stands would take a hundred times as much.
  std::string small = "[1";
  for (int i = 0; i < 1'000'000; ++i) small += ",1";
  CHECK(contains(error_of(write(dir / "small.json", R"({"model": )" + small + "]}")), "too many values for a config"));
  CHECK(contains(
      error_of(write(
          dir / "wide.json",
          R"({")" + std::string(1 << 20, 'k') +
              R"(": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]})")),
      "too long keys"));
  for (int i = 0; i < 40; ++i)
    write(dir / (std::to_string(i) + ".json"), R"({"extends": ")" + std::to_string(i + 1) + R"(.json"})");
  CHECK(contains(error_of(dir / "0.json"), "extends must not lead over more than 32 files"));
}

TEST_CASE("NUL characters, bytes that are no UTF-8, and what no double holds") {
  TempDir dir;
  const auto good = write(dir / "good.json", kGood);
  const auto with = [&](const std::string& set) { return error_of(good, {.sets = {set}}); };
  const auto in_file = [&](const std::string& line) { return error_of(write(dir / "c.json", std::string(kGood).insert(1, line))); };
  CHECK(contains(in_file("\"output_dir\": \"a\\u0000b\","), ":1:18: a string holds a NUL character"));
  CHECK(contains(in_file("\"a\\u0000b\": 1,"), "a string holds a NUL character"));
  CHECK(contains(in_file("\"extends\": \"a\\u0000b\","), "a string holds a NUL character"));
  CHECK(contains(in_file("\"seed\": 1e400,"), ":1:10: the number 1e400 is too large for a double"));
  CHECK(contains(in_file(std::string("\0", 1)), ":1:2: a NUL byte"));
  CHECK(contains(error_of(write(dir / "end.json", kGood + std::string("\0x", 2))), "a NUL byte"));
  CHECK(contains(with("output_dir=\"a\\u0000b\""), "--set output_dir=\"a\\u0000b\": a string holds a NUL character"));
  CHECK(contains(with("seed=1e400"), "--set seed=1e400: the number 1e400 is too large for a double"));
  CHECK(contains(with("name=\xff"), "name: must be UTF-8 without NUL characters"));
  CHECK(contains(with("optimizer.\xff=1"), "optimizer: keys must be UTF-8 without NUL characters"));
  ::setenv("HALFSTEP_TEST_BYTES", "\xfe", 1);
  CHECK(contains(with("name=${env:HALFSTEP_TEST_BYTES}"), "name: must be UTF-8 without NUL characters"));
  CHECK(contains(error_of(write(dir / "\xff.json", kGood)), "name: must be UTF-8 without NUL characters"));
  const Json stored = Json::parse(R"({"output_dir": "a\u0000b"})");  // as from a checkpoint
  CHECK_THROWS_WITH_AS(resolve_config(stored, "stored"), doctest::Contains("output_dir: must be UTF-8 without NUL characters"),
                       ConfigError);
  CHECK(contains(with("output_dir=" + std::string(300, 'x')),
                 "output_dir: may have 3500 bytes, and 255 between two slashes, got 300"));
  CHECK(contains(with("output_dir="), "output_dir: must not be empty"));
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "${name}";
  CHECK(contains(error_of(good, {.sets = {"name=" + std::string(5000, 'n'), "output_dir=" + many}}),
                 "must not come to more than 1048576 bytes"));
}

TEST_CASE("numbers at the end of their types are refused where arithmetic would leave them") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);
  const auto with = [&](const std::string& set) { return error_of(file, {.sets = {set}}); };
  CHECK(contains(with("train.epochs=18446744073709551615"), "train.epochs: must be an integer"));
  CHECK(contains(with("loss.ignore_index=18446744073709551615"), "loss.ignore_index: must be an integer"));
  CHECK(contains(with("checkpoint.keep_last=4294967297"), "checkpoint.keep_last: must be an integer in [0, 1000000000]"));
  CHECK(contains(with("checkpoint.every=1e300 steps"), "checkpoint.every: must be a number of steps"));
  CHECK(contains(with("model.hidden.0=9223372036854775807"), "model.hidden.0: must be an integer in [1, 2147483647]"));
  const std::string random = R"(data.train={"type": "Random", "classes": 10, "input_shape": )";
  CHECK(contains(with(random + "[1000000000, 1000000000, 1000000000]}"),
                 "data.train.input_shape: a sample may have 2147483647 values"));
  CHECK(contains(with(random + "[65536, 65536]}"), "data.train.input_shape: a sample may have 2147483647 values"));
  CHECK(contains(
      error_of(file, {.sets = {random + "[65536, 2]}", R"(model={"type": "Linear", "in_features": 2, "out_features": 65536})"}}),
      "model: makes more than 2147483647 values of a sample"));
  CHECK(contains(with("model.hidden=[2147483647, 2147483647]"), "too many elements: [2147483647, 2147483647]"));
  CHECK(contains(with("model.hidden=[2147483647, 600000, 2147483647]"), "model: may have 1125899906842624 parameters"));
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
  CHECK(contains(error_of(file, {.sets = {"optimizer.groups=[" + many + "]"}}), "optimizer.groups: may have 100 entries, got 101"));
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
