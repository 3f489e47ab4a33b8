// Data sets as configs name them, trained on for a few steps.
#include <doctest/doctest.h>

#include "apps/catalog/losses.h"
#include "apps/catalog/metrics.h"
#include "framework/data/time_series.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

struct Trained {
  const char *data, *model, *loss, *more;
};

Json config_of(const Trained& t) {
  Json c = {
      {"name", "c"}, {"output_dir", "r"}, {"device", "cpu"}, {"optimizer", {{"type", "SGD"}, {"lr", 0.01}}}, {"loss", t.loss}};
  c["model"] = Json::parse(t.model);
  const Json data = Json::parse(t.data);
  c["data"] = {{"train", data}, {"val", data}, {"root", "."}, {"loader", {{"batch_size", 4}}}};
  c["train"] = {{"max_steps", 3}};
  c["checkpoint"] = {{"every", "never"}};
  c.merge_patch(Json::parse(t.more));
  return c;
}

}  // namespace

TEST_CASE("generated data sets train, and their dry runs agree with them") {
  const TempDir dir;
  const char* const mlp = R"({"type": "MLP", "hidden": [8]})";
  const char* const lstm = R"([{"type": "LSTM", "hidden_size": 4, "output": "last"}, {"type": "Linear", "out_features": "auto"}])";
  const char* const strips = R"([{"type": "Permute", "dims": [0, 3, 1, 2]}, {"type": "Flatten", "start_dim": 2},
                                 {"type": "GRU", "hidden_size": 4}, {"type": "Linear", "out_features": "auto"}, "LogSoftmax"])";
  const auto layers = [](const char* list) { return std::string(R"({"type": "Sequential", "layers": )") + list + "}"; };
  const std::string last = layers(lstm), labels = layers(strips),
                    tokens = layers(R"([{"type": "Embedding", "num_embeddings": "auto", "embedding_dim": 3},
                                        {"type": "GRU", "hidden_size": 4}, {"type": "Linear", "out_features": "auto"}])");
  for (const Trained& t :
       {Trained{R"({"type": "Spirals", "size": 10, "arms": 3})", mlp, "CrossEntropyLoss", "{}"},
        Trained{R"({"type": "Sines", "size": 10, "window": 8, "horizon": 2})", last.c_str(), "MSELoss", "{}"},
        Trained{R"({"type": "CopyTask", "size": 10, "length": 2, "wait": 3})", tokens.c_str(), "CrossEntropyLoss", "{}"},
        Trained{R"({"type": "Adding", "size": 10, "length": 5})", last.c_str(), "MSELoss", "{}"},
        Trained{R"({"type": "DigitStrips", "size": 6, "max_digits": 3})", labels.c_str(), "CTCLoss",
                R"({"metrics": ["label_error_rate"]})"}}) {
    CAPTURE(t.data);
    write(dir / "c.json", config_of(t).dump());
    const Ran dry = run(dir, "train c.json --dry-run");
    CHECK_MESSAGE(dry.code == 0, dry.err);
    const Ran trained = run(dir, "train c.json --json --overwrite --threads 1");
    REQUIRE_MESSAGE(trained.code == 0, trained.err);
    const Json result = trained.json();
    CHECK(result["val.loss"].get<double>() > 0);
    if (std::string(t.loss) == "CTCLoss") CHECK(result["val.label_error_rate"].get<double>() >= 0);
  }
}

TEST_CASE("rows of labels want CTCLoss and enough steps") {
  const TempDir dir;
  const auto error = [&](const char* model, const char* loss) {
    const std::string whole = std::string(R"({"type": "Sequential", "layers": )") + model + "}";
    write(dir / "c.json", config_of({R"({"type": "DigitStrips", "size": 6, "max_digits": 3})", whole.c_str(), loss, "{}"}).dump());
    const Ran r = run(dir, "validate c.json");
    return r.err + r.out;
  };
  CHECK(contains(error(R"(["Flatten", {"type": "Linear", "out_features": "auto"}])", "CrossEntropyLoss"),
                 "CrossEntropyLoss needs data with classes, but data.train has rows of labels as targets; use \"CTCLoss\""));
  CHECK(contains(error(R"(["Flatten", {"type": "Linear", "out_features": "auto"}])", "CTCLoss"),
                 "model: the output must have shape [steps, 11], a score for each class, got [11]"));
  CHECK(contains(
      error(R"(["Flatten", {"type": "Linear", "out_features": 22}, {"type": "Unflatten", "dim": 1, "unflattened_size": [2, 11]}])",
            "CTCLoss"),
      "model: the output must have at least as many steps as a sample may have labels, 3, got [2, 11]"));
}

TEST_CASE("label_error_rate: what is missing, too much and wrong") {
  Issues issues;
  const Json self = validate("label_error_rate", component("metric", metric_family(), ""), "metric", issues);
  const auto metric = metric_catalog().row(self).make(self);
  const auto rate = [&](std::vector<int64_t> said, const std::vector<int64_t>& wanted) {
    const Tensor steps = one_hot(from_vector<int64_t>(said, {1, int64_t(said.size())}), 5).to(DType::f32);
    metric->reset();
    metric->add(steps, from_vector<int64_t>(wanted, {1, int64_t(wanted.size())}));
    return metric->value();
  };
  CHECK(rate({0, 1, 1, 0, 1, 2}, {1, 1, 2, -1}) == 0);
  CHECK(rate({1, 1, 1, 1, 1, 2}, {1, 1, 2, -1}) == doctest::Approx(1.0 / 3));
  CHECK(rate({0, 0, 0, 0, 0, 0}, {1, 1, 2, -1}) == 1);
  CHECK(rate({3, 0, 1, 0, 4, 0}, {3, 2, 4, -1}) == doctest::Approx(1.0 / 3));
  CHECK(rate({1, 2, 3, 4, 0, 0}, {2, 3, -1, -1}) == 1);
}

TEST_CASE("metrics of a time series are in the units of its file") {
  const TempDir dir;
  write(dir / "s", "10\n30\n50\n1000\n");
  const TimeSeriesDataset data(dir / "s", {.end = 0.75});
  const Batch b = data.batch(std::vector<int64_t>{1});
  const Compared made = as_measured(zeros({1, 1}), b.target, data);
  CHECK(made.output.item<double>() == doctest::Approx(30));
  CHECK(made.target.item<double>() == doctest::Approx(50));
}
