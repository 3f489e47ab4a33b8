// SPDX-License-Identifier: Apache-2.0
// Transforms, splits and samplers as a config names them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/catalog/datasets.h"
#include "apps/catalog/transforms.h"
#include "apps/session/session.h"
#include "framework/data/formats/read_once.h"
#include "framework/data/sets/digits.h"
#include "framework/data/sets/picture_statistics.h"
#include "framework/data/sets/split.h"
#include "framework/data/transforms/statistics.h"
#include "framework/ops/ops.h"
#include "tests/apps/config/load.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

// Every row of the catalogue once, for Digits [1, 28, 28].
constexpr const char* kAll = R"(data.train.transforms=["ToTensor",
  {"type": "RandomCrop", "size": 28, "padding": [2, 3]}, {"type": "Pad", "padding": 2, "padding_mode": "reflect"},
  {"type": "CenterCrop", "size": [28, 30]}, "RandomHorizontalFlip", {"type": "RandomVerticalFlip", "p": 0.1},
  {"type": "RandomRotation", "degrees": 10, "interpolation": "bilinear"},
  {"type": "RandomAffine", "degrees": [0, 5], "translate": [0.1, 0.1], "scale": [0.9, 1.1], "shear": 3},
  {"type": "Resize", "size": [28, 28]},
  {"type": "ColorJitter", "brightness": 0.4, "contrast": [0.8, 1.2], "saturation": 0.1, "hue": 0.1},
  {"type": "RandomErasing", "value": "random"}, {"type": "Normalize", "from": "data"}, {"type": "Mixup", "alpha": 0.2}, "CutMix"])";

Config loaded(const fs::path& file, std::vector<std::string> sets) { return load_config(file, {.sets = std::move(sets)}); }

std::set<std::string> inputs_of(const Dataset& data) {
  std::set<std::string> out;
  for_each_batch(data, [&](const Batch& batch, int64_t) {
    const Tensor x = batch.input.contiguous();
    const size_t bytes = x.nbytes() / size_t(x.size(0));
    for (int64_t i = 0; i < x.size(0); ++i) out.emplace(static_cast<const char*>(x.const_data_ptr()) + size_t(i) * bytes, bytes);
  });
  return out;
}

}  // namespace

TEST_CASE("transforms of a config: all there are, in a run that trains") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);
  Session s = make_session(loaded(file, {kAll}));
  CHECK(s.train->dataset().input_shape() == Shape{1, 28, 28});
  std::set<std::string> used;
  const Config all = loaded(file, {kAll});
  for (const Json& t : all.json["data"]["train"]["transforms"]) used.insert(t["type"]);
  for (const TransformRow& row : transform_catalog().rows()) {
    if (!row.component.doc.ends_with("of this program")) CHECK_MESSAGE(used.contains(row.component.type), row.component.type);
  }
  const auto batch = s.train->next();
  REQUIRE(batch);
  CHECK(batch->target.shape() == Shape{16, 10});
  TrainStep step(*s.model, *s.loss, *s.optimizer, s.scaler, nullptr, {});
  CHECK(std::isfinite(step(batch->input, batch->target).loss.item<double>()));

  const auto with = [&](const std::string& transform, std::vector<std::string> more = {}) {
    more.push_back("data.train.transforms=[" + transform + "]");
    return error_of(file, {.sets = std::move(more)});
  };
  CHECK(contains(with(R"({"type": "RandomCrop", "size": 30})"),
                 "data.train: [data.train.transforms] [RandomCrop] a crop of [30, 30] does not fit"));
  CHECK(contains(with(R"({"type": "RandomCrop"})"), "data.train.transforms.0.size: is missing"));
  CHECK(contains(with(R"({"type": "Pad", "padding": [1, 2, 3]})"), "padding must have 1, 2 or 4 numbers, got 3"));
  CHECK(contains(with(R"({"type": "Normalize", "preset": "cifar10"})"), "has 3 means and deviations"));
  CHECK(contains(with(R"({"type": "Normalize", "preset": "mnist", "from": "data"})"),
                 "takes one of preset, from, and mean with std"));
  CHECK(contains(with(R"({"type": "ColorJitter", "hue": 0.7})"), "hue must go from a smaller to a larger number in [-0.5, 0.5]"));
  CHECK(contains(with("\"Mixup\"", {"loss=NLLLoss"}),
                 "data.train.transforms.0: Mixup makes shares of classes, which CrossEntropyLoss takes"));
  CHECK(with("\"Mixup\"") == "");
  CHECK(contains(with(R"({"type": "Pad", "padding": 40000})"),
                 "a sample may have 2147483647 values, got one of shape [1, 80028, 80028]"));
}

TEST_CASE("Normalize with the numbers of the training data, for every split") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);
  const Config c = loaded(
      file,
      {R"(data.train={"type": "Digits", "size": 300, "transforms": ["RandomVerticalFlip", {"type": "Normalize", "from": "data"}]})",
       R"(data.val={"type": "Digits", "size": 100, "transforms": [{"type": "Normalize", "from": "data"}]})"});
  const auto raw = make_loader(loaded(file, {"data.train.size=300"}), "train"), train = make_loader(c, "train"),
             val = make_loader(c, "val");
  const ChannelStatistics before = channel_statistics(raw->dataset())[0], after = channel_statistics(train->dataset())[0];
  CHECK(before.mean == doctest::Approx(0.13).epsilon(0.5));
  CHECK(std::abs(after.mean) < 1e-5);
  CHECK(std::abs(after.std - 1) < 1e-5);
  const auto held_raw = make_loader(loaded(file, {R"(data.val={"type": "Digits", "size": 100})"}), "val");
  const ChannelStatistics held = channel_statistics(held_raw->dataset())[0], scaled = channel_statistics(val->dataset())[0];
  CHECK(scaled.mean == doctest::Approx((held.mean - before.mean) / before.std).epsilon(1e-4));
  CHECK(scaled.mean != doctest::Approx(0).epsilon(1e-6));
}

TEST_CASE("folds and stratified parts share nothing and leave nothing out") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);
  const auto all = inputs_of(make_loader(loaded(file, {"data.train.size=103"}), "train")->dataset());
  REQUIRE(all.size() == 103);
  for (const bool stratified : {false, true}) {
    std::set<std::string> held_out;
    size_t sum = 0;
    for (int k = 0; k < 4; ++k) {
      const std::string part = R"({"type": "Digits", "split": "train", "size": 103, "fold": [)" + std::to_string(k) + ", 4]" +
                               (stratified ? R"(, "stratified": true})" : "}");
      const Config c = loaded(file, {"data.train=" + part, "data.val=" + part});
      const auto train = make_loader(c, "train"), val = make_loader(c, "val");
      CHECK(c.facts->size == train->dataset().size());
      CHECK(train->dataset().size() + val->dataset().size() == 103);
      const auto here = inputs_of(val->dataset());
      for (const std::string& x : inputs_of(train->dataset())) CHECK(!here.contains(x));
      held_out.insert(here.begin(), here.end());
      sum += here.size();
      std::map<int64_t, int> classes;
      for (const int64_t label : class_labels(val->dataset())) ++classes[label];
      for (const auto& [label, n] : classes) CHECK((!stratified || (n >= 2 && n <= 3)));
      CHECK((!stratified || classes.size() == 10));
    }
    CHECK(sum == 103);
    CHECK(held_out == all);
  }
  const std::string part = R"({"type": "Digits", "size": 200, "stratified": true, "range": )";
  const Config c = loaded(file, {"data.train=" + part + "[0, 0.8]}"});
  std::map<int64_t, int> classes;
  for (const int64_t label : class_labels(make_loader(c, "train")->dataset())) ++classes[label];
  for (const auto& [label, n] : classes) CHECK(n == 16);

  const auto with = [&](const std::string& more) {
    return error_of(file, {.sets = {R"(data.train={"type": "Digits", "size": 20, )" + more + "}"}});
  };
  CHECK(contains(with("\"fold\": [4, 4]"), "data.train.fold: must be [k, K] with 0 <= k < K and K >= 2, got [4,4]"));
  CHECK(contains(with("\"fold\": [0, 2], \"range\": [0, 0.5]"), "data.train.fold: must not be given together with range"));
  write(dir / "t.csv", "a,b,y\n1,2,x\n3,4,z\n5,1,x\n0,2,z\n");
  const auto csv = [&](const std::string& more) {
    return R"(data.train={"type": "CSV", "path": ")" + (dir / "t.csv").string() + "\", " + more + "}";
  };
  write(dir / "s.csv", "v\n1\n2\n3\n4\n5\n6\n7\n8\n");
  CHECK(contains(error_of(file, {.sets = {R"(data.train={"type": "TimeSeries", "window": 1, "fold": [0, 2], "path": ")" +
                                          (dir / "s.csv").string() + "\"}"}}),
                 "data.train.standardize: would look at held-out data"));
  // A table takes its parts itself, and is scaled by the training part.
  const Config scaled = loaded(file, {"model.out_features=2", csv(R"("fold": [0, 2], "stratified": true, "standardize": true)")});
  for (const ChannelStatistics& c : channel_statistics(make_loader(scaled, "train")->dataset())) CHECK(std::abs(c.mean) < 1e-6);
  CHECK(contains(error_of(file, {.sets = {"loss=MSELoss", csv(R"("stratified": true, "task": "regression", "target": "b")")}}),
                 "data.train.stratified: needs data with classes"));
  const Config two = loaded(file, {"model.out_features=2", csv(R"("fold": [0, 2], "stratified": true)")});
  CHECK(class_labels(make_loader(two, "train")->dataset()).size() == 2);
}

TEST_CASE("a C++ program makes the parts of a config") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);
  const auto digits = std::make_shared<DigitsDataset>(DigitsOptions{.size = 103, .seed = 7});
  const auto samples = [](const Dataset& data) {
    std::vector<int64_t> all(size_t(data.size()));
    std::iota(all.begin(), all.end(), 0);
    return data.batch(all).input.to_vector<float>();
  };
  const auto of_config = [&](const std::string& more, const char* split = "train") {
    const std::string part = R"({"type": "Digits", "split": "train", "size": 103, )" + more + "}";
    const Config c = loaded(file, {"seed=7", "data.train=" + part, "data.val=" + part});
    return samples(*build_dataset(c.json, split));
  };
  CHECK(of_config(R"("range": [0.2, 0.7])") == samples(*split_dataset(digits, {.begin = 0.2, .end = 0.7, .seed = 7})));
  CHECK(of_config(R"("fold": [1, 4], "stratified": true)", "val") ==
        samples(*split_dataset(digits, {.fold = DataFold{.k = 1, .folds = 4}, .stratified = true, .seed = 7})));
  const auto train = split_dataset(digits, {.fold = DataFold{.k = 1, .folds = 4, .others = true}, .seed = 7});
  CHECK(of_config(R"("fold": [1, 4])") == samples(*train));
  const auto scale = std::make_shared<NormalizeTransform>(normalize_from(*train));
  const auto scaled = of_config(R"("fold": [1, 4], "transforms": [{"type": "Normalize", "from": "data"}])");
  const auto by_hand = samples(*transformed(train, {scale}));
  REQUIRE(scaled.size() == by_hand.size());
  float most = 0;  // digits are scaled as they are drawn, with other roundings
  for (size_t i = 0; i < scaled.size(); ++i) most = std::max(most, std::abs(scaled[i] - by_hand[i]));
  CHECK(most < 1e-5f);
  for (const bool shuffle : {false, true}) {
    const std::string order = std::string("data.loader.shuffle=") + (shuffle ? "true" : "false");
    const Config few = loaded(file, {"seed=7", R"(data.train={"type": "Digits", "size": 103})", "train.overfit_batches=2",
                                     "data.loader.batch_size=9", order});
    const auto seed = shuffle ? std::optional<uint64_t>(7) : std::nullopt;
    CHECK(samples(make_loader(few, "val")->dataset()) == samples(*first_batches(digits, 2, 9, seed)));
  }
}

TEST_CASE("samplers of a config") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);
  const auto counts = [&](const std::string& sampler) {
    const auto loader = make_loader(loaded(file, {"data.train.size=1000", "data.loader.sampler=" + sampler}), "train");
    std::map<int64_t, int> out;
    for (const Batch& batch : *loader) {
      for (const int64_t label : batch.target.to_vector<int64_t>()) ++out[label];
    }
    return out;
  };
  const auto some = counts(R"({"type": "weighted", "weights": [0, 3, 1, 0, 0, 0, 0, 0, 0, 0], "num_samples": 4000})");
  CHECK(some.size() == 2);
  CHECK(some.at(1) + some.at(2) == 4000);
  CHECK(std::abs(some.at(1) - 3000) < 4.5 * std::sqrt(750.0));
  const auto even = counts("\"weighted\"");
  CHECK(even.size() == 10);
  const auto with = [&](std::vector<std::string> sets) { return error_of(file, {.sets = std::move(sets)}); };
  CHECK(contains(with({R"(data.loader.sampler={"type": "weighted", "weights": [1, 2]})"}),
                 "data.loader.sampler.weights: must have one number for each of the 10 classes, got 2"));
  CHECK(contains(with({"data.loader.sampler=random"}), "data.loader.sampler.type: must be \"weighted\" or \"bucket\""));
  CHECK(contains(with({R"(data.train={"type": "Random", "input_shape": [4], "target_shape": [10]})", "loss=MSELoss",
                       "data.loader.sampler=weighted"}),
                 "data.loader.sampler: weighted needs data with classes"));
  CHECK_THROWS_WITH_AS(counts("\"bucket\""), doctest::Contains("bucket needs samples that differ in length"), ConfigError);
  CHECK_THROWS_WITH_AS(counts(R"({"type": "weighted", "weights": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]})"),
                       doctest::Contains("data.loader.sampler.weights: must not all be 0"), ConfigError);
}

TEST_CASE("settings that the splits share are written once") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);
  write(dir / "t.csv", "a,b,y\n1,2,x\n3,4,z\n5,1,x\n0,2,z\n7,3,x\n1,9,z\n2,2,x\n4,4,z\n");
  const std::string shared = R"(data={"type": "CSV", "path": ")" + (dir / "t.csv").string() +
                             R"(", "standardize": true, "stratified": true, "train": {"range": [0, 0.5]}, )";
  const Config c = loaded(file, {"model.out_features=2", shared + R"("val": {"range": [0.5, 1]}, "test": {"missing": "mean"}})"});
  const Json& data = c.json["data"];
  for (const char* key : {"type", "path", "standardize"}) CHECK(!data.contains(key));
  CHECK(data["train"]["standardize"] == true);
  CHECK(data["val"]["range"] == Json{0.5, 1});
  CHECK(data["val"]["target"].is_null());
  CHECK(data["train"]["missing"] == "refuse");
  CHECK(data["test"]["missing"] == "mean");
  CHECK(make_loader(c, "train")->dataset().size() == 4);
  CHECK(make_loader(c, "val")->dataset().size() == 4);
  // What is resolved is read again as itself.
  CHECK(loaded(write(dir / "again.json", c.json.dump()), {}).json == c.json);
  // A split's own value comes first, and another type takes what it has.
  const char* const three = R"(data={"type": "Digits", "size": 40, "train": {}, "val": {"size": 20},
                                     "test": {"type": "EMNIST", "part": "digits"}})";
  const Config mixed = loaded(file, {three, "data.train.split=train"});
  CHECK(mixed.json["data"]["train"]["size"] == 40);
  CHECK(mixed.json["data"]["val"]["size"] == 20);
  CHECK(!mixed.json["data"]["test"].contains("size"));
  const auto with = [&](const std::string& text) { return error_of(file, {.sets = {"data=" + text}}); };
  CHECK(contains(with(R"({"type": "Digits", "train": {}, "sizes": 3})"),
                 "data.train.sizes: unknown key of Digits; did you mean \"size\"?"));
  CHECK(contains(with(R"({"type": "CSV", "train": {}, "val": {}, "usecols": ["a"]})"),
                 "data.train.usecols: unknown key of CSV; did you mean \"features\"?"));
  CHECK(contains(with(R"({"type": "CSV", "path": "t.csv", "train": {}, "standardize_target": true})"),
                 "data.train.standardize_target: needs \"task\": \"regression\": classes have no scale"));
  CHECK(contains(with(R"({"type": "Digits", "train": {}, "batch_size": 3})"), "did you mean \"data.loader.batch_size\"?"));
  CHECK(contains(with(R"({"train": "Digits", "standardize": true})"), "data.standardize: unknown key of data"));
  CHECK(with(R"({"type": "Digits", "train": {}, "size": null, "val": {"size": null}})") == "");
  CHECK(contains(with(R"({"type": "Digit", "train": {}})"), "data.train.type: unknown data set \"Digit\""));
  CHECK(contains(with(R"({"type": "Digits"})"), "data.train: is missing"));
  // Where a value came from is still said.
  write(dir / "d.json", R"({
  "model": "MLP", "loss": "CrossEntropyLoss", "optimizer": {"type": "SGD", "lr": 0.1}, "train": {"epochs": 1},
  "data": {"type": "Digits",
           "size": -1, "train": {}}})");
  CHECK(contains(error_of(dir / "d.json"), "d.json:4:20: data.train.size: must be"));
}

TEST_CASE("weights of classes from the training data are held as numbers") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);
  std::string rows = "a,y\n";
  for (int i = 0; i < 12; ++i) rows += std::to_string(i) + (i % 4 == 0 ? ",rare\n" : ",usual\n");
  write(dir / "t.csv", rows);
  const std::string csv = R"(data={"type": "CSV", "path": ")" + (dir / "t.csv").string() + R"(", "train": {}})";
  const Config c = loaded(file, {csv, R"(loss={"type": "CrossEntropyLoss", "weight": "balanced"})"});
  CHECK(c.json["loss"]["weight"] == Json{2.0, 12.0 / 18});  // 12 / (2 * 3), 12 / (2 * 9): as scikit-learn
  const Tensor loss = (*make_model(c).loss)(from_vector<float>({1, 0, 1, 0}, {2, 2}), from_vector<int64_t>({0, 1}, {2}));
  CHECK(loss.item<double>() == doctest::Approx((2 * 0.3132617 + 2 * 1.3132617 / 3) / (2 + 2.0 / 3)));
  const Config held = loaded(
      file, {csv, R"(loss={"type": "NLLLoss", "weight": "balanced"})", "data.train.range=[0, 0.5]", "data.train.stratified=true"});
  CHECK(held.json["loss"]["weight"].size() == 2);
  CHECK(held.json["loss"]["weight"][0].get<double>() >= 1.5);
  // A class without samples, and a class that does not count.
  const Config few = loaded(
      file, {R"(data={"train": {"type": "Digits", "size": 3}})", R"(loss={"type": "CrossEntropyLoss", "weight": "balanced"})"});
  CHECK(few.json["loss"]["weight"].size() == 10);
  CHECK(contains(few.warnings.at(0), "loss.weight: is 1 for these classes, which have no sample in data.train: "));
  const Config ignored = loaded(file, {csv, R"(loss={"type": "CrossEntropyLoss", "weight": "balanced", "ignore_index": 1})"});
  CHECK(ignored.json["loss"]["weight"] == Json{1.0, 1.0});
  CHECK(contains(error_of(file, {.sets = {R"(loss={"type": "CrossEntropyLoss", "weight": "even"})"}}),
                 "loss.weight: must be a list of one or more numbers >= 0 or \"balanced\", got \"even\""));
  CHECK(contains(error_of(file, {.sets = {R"(loss={"type": "CrossEntropyLoss", "class_weight": "balanced"})"}}),
                 "did you mean \"weight\"?"));
  // Data that is not there cannot be asked; nothing but a training run needs it.
  const Config absent = loaded(file, {R"(data={"root": "/nowhere", "train": {"type": "MNIST"}})",
                                      R"(loss={"type": "CrossEntropyLoss", "weight": "balanced"})"});
  CHECK(absent.json["loss"]["weight"] == "balanced");
  CHECK(make_model(absent).loss != nullptr);
}

TEST_CASE("a table is read once for a config and for the run of it") {
  TempDir dir;
  std::string rows = "a,b,y\n";
  for (int i = 0; i < 50; ++i) rows += joined(i, ',', i * 7 % 50, ',', i % 2, '\n');
  write(dir / "t.csv", rows);
  while (file_stamp(dir / "t.csv").empty()) {}
  const auto file = write(dir / "c.json", kGood);
  const auto split = [&](const char* name, const char* range) {
    return joined("data.", name, R"(={"type": "CSV", "path": "t.csv", "standardize": true, "range": )", range, "}");
  };
  const std::vector<std::string> sets = {"data.root=" + dir.path().string(), split("train", "[0, 0.8]"), split("val", "[0.8, 1]")};
  std::optional<Config> c = loaded(file, sets);
  const auto train = make_loader(*c, "train"), again = make_loader(*c, "train");
  CHECK(&train->dataset() == &again->dataset());
  const DataForm form = train->dataset().form();
  const auto val = make_loader(*c, "val"), known = make_loader(*c, "val", nullptr, &form);
  CHECK(&val->dataset() == &known->dataset());
  CHECK(val->dataset().size() == 10);
  DataForm other = form;
  std::get<TableForm>(other.source).options.encoding->mean[0] += 1;
  CHECK(&make_loader(*c, "val", nullptr, &other)->dataset() != &val->dataset());
  const Config more = loaded(file, {sets[0], sets[1], sets[2], "data.train.exclude=[\"a\"]", "data.val.exclude=[\"a\"]"});
  CHECK(make_loader(more, "train")->dataset().input_shape() == Shape{1});
}

TEST_CASE("errors of a config that need no data come before a large file is read") {
  TempDir dir;
  write(dir / "big.csv", "no table");
  fs::resize_file(dir / "big.csv", 20'000'000);  // zeros, which no table has
  const auto file = write(dir / "c.json", kGood);
  const std::string root = "data.root=" + dir.path().string(), big = R"(data.train={"type": "CSV", "path": "big.csv"})";
  CHECK(contains(loaded(file, {root, big}).data_fault, "must not hold a NUL character"));
  const auto error = [&](const std::string& set) { return error_of(file, {.sets = {root, big, set}}); };
  CHECK(contains(error(R"(optimizer={"type": "SGD", "lr": 0.1, "nesterov": true})"), "optimizer: [SGD]"));
  const std::string list = R"(scheduler=[{"type": "StepLR", "step_size": 2}, {"type": "StepLR", "step_size": 3}])";
  CHECK(contains(error(list), "needs a \"length\""));
  CHECK(contains(error("optimizer.rl=0.1"), "optimizer.rl"));
  CHECK(contains(error(R"(metrics=["acuracy"])"), "metrics"));
}
