// SPDX-License-Identifier: Apache-2.0
// Configs that are too large, too deep or no text.
#include <doctest/doctest.h>

#include <cstdlib>
#include <ctime>

#include "apps/catalog/modules.h"
#include "tests/apps/config/load.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

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

TEST_CASE("a hundred thousand mistakes are found in linear time, and not all listed") {
  TempDir dir;
  // The time of this program's threads for two configs with as many mistakes.
  const auto time_for = [&](int mistakes) {
    std::string keys, numbers;
    for (int i = 0; i < mistakes; ++i) {
      keys += "\"unknown_key_" + std::to_string(i) + "\": 1,\n";
      numbers += "\"x\", ";
    }
    const std::clock_t start = std::clock();
    const std::string error = error_of(write(dir / "keys.json", std::string(kGood).insert(1, keys)));
    CHECK(contains(error, "[config] " + std::to_string(mistakes) + " errors in "));
    CHECK(contains(error, "unknown_key_0: unknown key"));
    CHECK(contains(error, "\n  and " + std::to_string(mistakes - 100) + " more"));
    CHECK(count(error, "\n") == 101);
    const std::string many =
        error_of(write(dir / "list.json", std::string(kGood).replace(std::string(kGood).find("[8]"), 3, "[" + numbers + "8]")));
    CHECK(contains(many, "[config] " + std::to_string(mistakes) + " errors in "));
    return double(std::clock() - start);
  };
  const double few = time_for(12'500);
  CHECK(time_for(100'000) < 24 * few);  // linear: 8 times as long; quadratic: 64 times
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
  // A megabyte of small values is no config either: the places of all of them would take a hundred times as much memory.
  std::string small = "[1";
  for (int i = 0; i < 1'000'000; ++i) small += ",1";
  CHECK(contains(error_of(write(dir / "small.json", R"({"model": )" + small + "]}")), "too many values for a config"));
  CHECK(contains(
      error_of(write(
          dir / "wide.json",
          R"({")" + std::string(1 << 20, 'k') +
              R"(": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,)"
              R"(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]})")),
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
  CHECK(contains(with("checkpoint.keep_last=4294967297"),
                 "checkpoint.keep_last: must be an integer >= 0, got 4294967297; at most 1000000000"));
  CHECK(contains(with("checkpoint.every=1e300 steps"), "checkpoint.every: must be a number of steps"));
  CHECK(contains(with("model.hidden.0=9223372036854775807"),
                 "model.hidden.0: must be an integer >= 1, got 9223372036854775807; at most 2147483647"));
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
