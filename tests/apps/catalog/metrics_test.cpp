// SPDX-License-Identifier: Apache-2.0
// Metrics against sklearn's formulas, which scripts/make_data_goldens.py computes with torch in float64, and by hand.
#include "apps/catalog/metrics.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "framework/base/check.h"
#include "framework/io/weights/safetensors.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

std::unique_ptr<Metric> metric(Json self) {
  Issues issues;
  const Json full = validate(self, component("", metric_family(), ""), "", issues);
  REQUIRE(issues.errors() == 0);
  return metric_catalog().row(full).make(full);
}

// In batches of 5, the last of which is not full.
double gathered(Metric& m, const Tensor& output, const Tensor& target) {
  m.reset();
  for (int64_t from = 0; from < output.size(0); from += 5) {
    const int64_t n = std::min<int64_t>(5, output.size(0) - from);
    m.add(output.narrow(0, from, n), target.narrow(0, from, n));
  }
  return m.value();
}

Json config_of(const std::string& name) {
  if (name.starts_with("top_")) return {{"type", "top_k"}, {"k", std::stoi(name.substr(4))}};
  return {{"type", name == "confusion" ? "confusion_matrix" : name}};
}

}  // namespace

TEST_CASE("metrics: the values of the formulas") {
  const TensorMap all = load_safetensors(halfstep_source_dir() + "/tests/data/data_goldens.safetensors").tensors;
  int compared = 0;
  for (const auto& golden : all) {
    const std::string& key = golden.first;
    const Tensor& expected = golden.second;
    if (!key.starts_with("metric.") || key.ends_with(".output") || key.ends_with(".target")) continue;
    CAPTURE(key);
    const std::string data = key.substr(0, key.rfind('.')), name = key.substr(data.size() + 1);
    const auto m = metric(config_of(name));
    const Tensor &output = all.at(data + ".output"), &target = all.at(data + ".target");
    const double value = gathered(*m, output, target);
    if (name == "confusion") {
      const Json table = m->details();
      const auto flat = expected.to_vector<int64_t>();
      const auto n = size_t(expected.size(0));
      for (size_t i = 0; i < flat.size(); ++i) CHECK(table[i / n][i % n] == flat[i]);
    } else {
      CHECK(value == doctest::Approx(expected.item<double>()).epsilon(1e-6));
    }
    CHECK(gathered(*m, output, target) == value);  // reset() forgets
    ++compared;
    if (target.is_floating_point() || name == "auroc") continue;
    // Shares of classes instead of numbers, as Mixup makes them.
    const Tensor soft = one_hot(target, output.size(-1)).to(DType::f32) * 0.6 + 0.05;
    CHECK(gathered(*m, output, soft) == value);
  }
  CHECK(compared == 11 + 10 + 1 + 11 + 3);
}

TEST_CASE("metrics do not count the class that the loss ignores") {
  const Tensor output = tensor({3.0, 1, 0, 1, 3, 0, 0, 9, 0, 0, 2, 1, 5, 0, 1}).reshape({5, 3}).to(DType::f32);
  const Tensor target = tensor({0.0, 0, 1, 1, 2}).to(DType::i64);
  Issues issues;
  const Json list = Json::array({validate("perplexity", component("", metric_family(), ""), "", issues)});
  const auto all = build_metrics(list, Targets::classes), counted = build_metrics(list, Targets::classes, 0);
  const Tensor rest = output.narrow(0, 2, 3), of_rest = target.narrow(0, 2, 3);
  REQUIRE(counted.size() == 2);
  CHECK(counted[0].name == "accuracy");
  CHECK(counted[0].metric->is_share());
  for (size_t i = 0; i < 2; ++i) {
    CHECK(gathered(*counted[i].metric, output, target) == gathered(*all[i].metric, rest, of_rest));
    CHECK(gathered(*all[i].metric, output, target) != gathered(*all[i].metric, rest, of_rest));
  }
}

TEST_CASE("shares say how many values they are of: places of sequences, without those that do not count") {
  const Tensor output = arange(2 * 5 * 3, {.dtype = DType::f32}).reshape({2, 5, 3}).sin();
  const Tensor target = tensor({0.0, 1, 2, 1, 0, 0, 2, 2, 1, 0}).reshape({2, 5}).to(DType::i64);
  for (const char* self : {R"({"type": "accuracy"})", R"({"type": "top_k", "k": 2})", R"({"type": "confusion_matrix"})",
                           R"({"type": "recall"})", R"({"type": "auroc"})"}) {
    CAPTURE(self);
    const auto m = metric(Json::parse(self));
    gathered(*m, output, target);
    CHECK(m->counted() == 10);
  }
  Issues issues;
  const Json list = Json::array({validate("f1", component("", metric_family(), ""), "", issues)});
  for (const NamedMetric& m : build_metrics(list, Targets::classes, 0)) {
    gathered(*m.metric, output, target);
    CHECK(m.metric->counted() == 6);  // four places have the class that the loss ignores
  }
  const auto labels = metric({{"type", "label_error_rate"}});
  gathered(*labels, output, tensor({1.0, 2, 1, -1}).reshape({2, 2}).to(DType::i64));
  CHECK(labels->counted() == 3);
  CHECK(metric({{"type", "rmse"}})->counted() == 0);
}

TEST_CASE("metrics: by hand") {
  // Targets 0 0 1 1 2, answers 0 1 1 1 0.
  const Tensor output = tensor({3.0, 1, 0, 1, 3, 0, 0, 9, 0, 0, 2, 1, 5, 0, 1}).reshape({5, 3}).to(DType::f32);
  const Tensor target = tensor({0.0, 0, 1, 1, 2}).to(DType::i64);
  const auto of = [&](Json self) { return gathered(*metric(std::move(self)), output, target); };
  CHECK(of({{"type", "accuracy"}}) == 0.6);
  CHECK(of({{"type", "precision"}}) == doctest::Approx((0.5 + 2.0 / 3 + 0) / 3));
  CHECK(of({{"type", "recall"}}) == doctest::Approx((0.5 + 1 + 0) / 3));
  CHECK(of({{"type", "f1"}}) == doctest::Approx((0.5 + 0.8 + 0) / 3));
  for (const char* type : {"precision", "recall", "f1"}) CHECK(of({{"type", type}, {"average", "micro"}}) == 0.6);
  CHECK(of({{"type", "top_k"}, {"k", 2}}) == 1);
  CHECK(of({{"type", "top_k"}, {"k", 3}}) == 1);
  const auto confusion = metric({{"type", "confusion_matrix"}});
  CHECK(gathered(*confusion, output, target) == 0.6);
  CHECK(confusion->details() == Json::parse("[[1,1,0],[0,2,0],[1,0,0]]"));
  CHECK(of({{"type", "bits_per_char"}}) == doctest::Approx(std::log2(of({{"type", "perplexity"}}))));
  CHECK_THROWS_WITH_AS(of({{"type", "top_k"}}), doctest::Contains("k must be at most the number of classes, 3, got 5"),
                       ConfigError);

  // Places that losses ignore count nowhere.
  const Tensor some = tensor({0.0, -100, 1, 1, -100}).to(DType::i64);
  CHECK(gathered(*metric({{"type", "accuracy"}}), output, some) == 1);
  CHECK(gathered(*metric({{"type", "f1"}}), output, some) == 1);

  const Tensor y = tensor({1.0, 2, 3, 4}).to(DType::f32).reshape({4, 1}),
               x = y + tensor({1.0, -1, 1, -1}).to(DType::f32).reshape({4, 1});
  CHECK(gathered(*metric({{"type", "mae"}}), x, y) == 1);
  CHECK(gathered(*metric({{"type", "rmse"}}), x, y) == 1);
  CHECK(gathered(*metric({{"type", "r2"}}), x, y) == doctest::Approx(1 - 4.0 / 5));
  const Tensor flat = full({4, 1}, 1e6);
  CHECK(gathered(*metric({{"type", "r2"}}), flat, flat) == 1);
  CHECK(gathered(*metric({{"type", "r2"}}), flat + 1, flat) == 0);
  // Of numbers 0 and 1: of 2 * 2 pairs one is wrong and one is a tie.
  const Tensor score = tensor({0.1, 0.5, 0.5, 0.3}).to(DType::f32).reshape({4, 1}),
               label = tensor({0.0, 0, 1, 1}).to(DType::f32).reshape({4, 1});
  CHECK(gathered(*metric({{"type", "auroc"}}), score, label) == doctest::Approx(2.5 / 4));
  CHECK(std::isnan(gathered(*metric({{"type", "auroc"}}), score, label * 0)));

  for (const char* type : {"perplexity", "bits_per_char", "mae", "rmse"}) CHECK(!metric({{"type", type}})->more_is_better());
  for (const char* type : {"top_k", "precision", "recall", "f1", "confusion_matrix", "r2", "auroc"})
    CHECK(metric({{"type", type}})->more_is_better());
}

TEST_CASE("metrics: eval prints the confusion matrix, and metrics.jsonl holds it") {
  TempDir dir;
  write(dir / "c.json", R"({"model": {"type": "MLP", "hidden": [16], "out_features": "auto"}, "loss": "CrossEntropyLoss",
    "optimizer": {"type": "Adam", "lr": 0.01},
    "metrics": ["confusion_matrix", {"type": "top_k", "k": 3}, "f1", "auroc", "perplexity"],
    "data": {"train": {"type": "Digits", "size": 200}, "val": {"type": "Digits", "size": 70}, "loader": {"batch_size": 32}},
    "train": {"epochs": 2}, "output_dir": "r", "device": "cpu"})");
  const auto trained = run(dir, "train c.json");
  REQUIRE(trained.code == 0);
  CHECK(contains(trained.out, "  val accuracy "));
  CHECK_FALSE(contains(trained.out, "confusion_matrix"));  // its value is the accuracy
  const auto text = run(dir, "eval r");
  CHECK(contains(text.out, "confusion matrix (a row: what it is, a column: what the model answers)\n"));
  CHECK(text.out.find("confusion") == text.out.rfind("confusion"));
  CHECK(contains(text.out, "\n     0  1  2"));  // columns of classes, which this data gives no names
  const Json json = run(dir, "eval r --json").json();
  int64_t sum = 0;
  for (const Json& row : json["val.confusion_matrix.table"]) {
    CHECK(row.size() == 10);
    for (const Json& n : row) sum += n.get<int64_t>();
  }
  CHECK(sum == 70);
  CHECK(json["val.confusion_matrix"] == json["val.accuracy"]);
  CHECK(json["val.top_k"] >= json["val.accuracy"]);
  CHECK(json["val.perplexity"].get<double>() == doctest::Approx(std::exp(json["val.loss"].get<double>())).epsilon(1e-4));
  CHECK(contains(read(dir / "r/metrics.jsonl"), "\"val/confusion_matrix/table\":[["));
}
