// SPDX-License-Identifier: Apache-2.0
// The program's means: losses of weighted and ignored classes do not depend on the size of batches, steps without a target are
// skipped and counted, and the mean of weights has statistics of its own.
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <iomanip>
#include <sstream>

#include "framework/io/checkpoint/checkpoint.h"
#include "tests/apps/config/load.h"
#include "tests/apps/tiny_run.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

// 42 rows in the order of their classes: 30 of "a", 8 of "b", 4 of "c".
std::string rows() {
  std::ostringstream out;
  out << "u,v,kind\n";
  for (int i = 0; i < 42; ++i)
    out << std::sin(1.3 * i) << ',' << std::cos(0.7 * i * i) << ',' << (i < 30 ? 'a' : i < 38 ? 'b' : 'c') << '\n';
  return out.str();
}

constexpr const char* kMeansConfig = R"({
  "name": "means", "device": "cpu", "output_dir": "r", "seed": 2,
  "model": {"type": "Sequential", "layers": [{"type": "Linear", "out_features": 5}, "Tanh",
                                             {"type": "Linear", "out_features": "auto"}, {"type": "LogSoftmax", "dim": -1}]},
  "loss": "NLLLoss", "optimizer": {"type": "SGD", "lr": 0.5, "momentum": 0.9},
  "data": {"root": ".", "path": "d.csv", "target": "kind", "train": {"type": "CSV"}, "val": {"type": "CSV"},
           "loader": {"batch_size": 42, "shuffle": false}},
  "train": {"epochs": 2}, "logging": {"every": 1}})";

struct Data : TempDir {
  Data() { write(*this / "d.csv", rows()), write(*this / "c.json", kMeansConfig); }
  Ran train(const std::string& name, const std::string& options = "") const {
    return run(*this, "train c.json --threads 1 --json --set output_dir=" + name + " " + options);
  }
  std::vector<Json> metrics(const std::string& name) const { return lines_of(*this / name / "metrics.jsonl"); }
  std::vector<float> weights(const std::string& name) const {
    std::vector<float> out;
    for (const auto& [key, t] : load_checkpoint(*this / name).model)
      for (const float w : t.to_vector<float>()) out.push_back(w);
    return out;
  }
};

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double d = 0;
  for (size_t i = 0; i < a.size(); ++i) d = std::max(d, std::abs(double(a[i]) - b[i]));
  return d;
}

const std::string kWeighted = R"( --set 'loss={"type": "NLLLoss", "weight": [0.1, 2, 7]}' )";
const std::string kIgnoring = R"( --set 'loss={"type": "NLLLoss", "ignore_index": 0}' )";

}  // namespace

TEST_CASE("val/loss, train/loss and eval are the same for every batch size") {
  const Data dir;
  for (const std::string& loss : {std::string(), kWeighted, kIgnoring}) {
    CAPTURE(loss);
    std::optional<double> whole;
    for (const int batch : {42, 10, 7, 1}) {
      CAPTURE(batch);
      const std::string size = " --set data.loader.batch_size=" + std::to_string(batch);
      const Ran r = dir.train("e", "--overwrite --set train.epochs=0" + size + loss);
      REQUIRE(r.code == 0);
      const double value = r.json()["val.loss"];
      if (!whole) whole = value;
      CHECK(value == doctest::Approx(*whole).epsilon(1e-6));
      const Ran eval = run(dir, "eval e --json" + size);
      REQUIRE(eval.code == 0);
      CHECK(eval.json()["val.loss"].get<double>() == doctest::Approx(*whole).epsilon(1e-6));
      // With a rate of 0 the loss of the epoch is that of the data, too.
      const Ran still = dir.train("t", "--overwrite --set train.epochs=1 --set optimizer.lr=0" + size + loss);
      REQUIRE(still.code == 0);
      CHECK(still.json()["train.loss"].get<double>() == doctest::Approx(*whole).epsilon(1e-6));
    }
  }
}

TEST_CASE("accumulated batches, also in a ragged window, are one batch of all rows") {
  const Data dir;
  for (const std::string& loss : {std::string(), kWeighted, kIgnoring}) {
    CAPTURE(loss);
    REQUIRE(dir.train("whole", "--overwrite" + loss).code == 0);
    for (const std::string& parts :
         {std::string("7 --set train.accumulate_steps=6"), std::string("10 --set train.accumulate_steps=9")}) {
      CAPTURE(parts);
      const Ran r = dir.train("parts", "--overwrite --set data.loader.batch_size=" + parts + loss);
      REQUIRE(r.code == 0);
      CHECK(r.json()["steps_skipped"] == 0);
      CHECK(distance(dir.weights("parts"), dir.weights("whole")) < 2e-6);
    }
  }
}

TEST_CASE("steps whose targets are all ignored are skipped, counted and said once; a run of nothing else fails") {
  const Data dir;
  // Batches of 10: three of class 0 alone, one mixed, one of the rest.
  const Ran ok = dir.train("s", "--set data.loader.batch_size=10" + kIgnoring);
  REQUIRE(ok.code == 0);
  CHECK(ok.json()["steps_skipped"] == 6);
  CHECK(ok.json()["steps_applied"] == 4);
  CHECK(count(ok.err, "none of its targets counts, as all are loss.ignore_index or of a class of weight 0") == 1);
  CHECK(!contains(ok.err, "is not finite"));
  const std::vector<Json> lines = dir.metrics("s");
  CHECK(lines.front()["train/loss"].is_number());  // of the first step that was applied
  CHECK(lines.front()["skipped"] == 3);
  CHECK(lines.front()["last_skip"]["cause"] == "targets_ignored");
  for (const Json& line : lines)
    if (line.contains("val/loss")) CHECK(line["val/loss"].is_number());

  const Ran none = dir.train("n", R"(--set 'loss={"type": "NLLLoss", "weight": [0, 0, 0]}')");
  CHECK(none.code == 4);
  CHECK(contains(none.err, "each step needs a target that is not loss.ignore_index and whose class has a weight above 0"));
  // What counts applied steps ends, too.
  const std::string nothing = R"( --set 'loss={"type": "NLLLoss", "weight": [0, 0, 0]}')";
  const Ran steps = dir.train("m", "--set train.epochs=null --set train.max_steps=3" + nothing);
  CHECK(steps.code == 4);
  CHECK(contains(steps.err, "each step needs a target that is not loss.ignore_index and whose class has a weight above 0"));
  const Ran rates = run(dir, "lr-find c.json" + nothing);
  CHECK(rates.code == 2);
  CHECK(contains(rates.err, "[lr-find] no target of the training data counts"));
}

TEST_CASE("a checkpoint of an older halfstep, whose sums are by samples, continues an epoch") {
  const Data dir;
  const std::string small = " --set data.loader.batch_size=7 --set train.epochs=null --set train.max_steps=";
  const Ran whole = dir.train("whole", small + "6");
  REQUIRE(whole.code == 0);
  REQUIRE(dir.train("cut", small + "3").code == 0);
  const fs::path checkpoint = dir / "cut/step-00000003";
  nlohmann::json state = nlohmann::json::parse(read(checkpoint / "state.json"));
  REQUIRE(state["trainer"]["epoch_over"] == 21);
  state["trainer"].erase("epoch_over"), state["trainer"].erase("window_over");
  state["trainer"]["epoch_samples"] = 21;
  write(checkpoint / "state.json", state.dump());
  set_state(checkpoint, "/trainer/window_samples", 0);
  const Ran r = dir.train("cut", "--resume auto" + small + "6");
  REQUIRE(r.code == 0);
  CHECK(r.json()["train.loss"].get<double>() == doctest::Approx(whole.json()["train.loss"].get<double>()));
}

TEST_CASE("train.swa: the mean of the weights has batch norms' statistics of its own, in evaluations, checkpoints and eval") {
  TempDir dir;
  write(dir / "c.json", R"({
    "name": "swa", "device": "cpu", "output_dir": "r", "seed": 4,
    "model": {"type": "Sequential", "layers": ["Flatten", {"type": "Linear", "out_features": 24}, {"type": "BatchNorm1d"}, "ReLU",
      {"type": "Dropout", "p": 0.1}, {"type": "Linear", "out_features": "auto"}]},
    "loss": "CrossEntropyLoss", "optimizer": {"type": "SGD", "lr": 1.0},
    "data": {"train": {"type": "Digits", "size": 300}, "val": {"type": "Digits", "size": 300}, "loader": {"batch_size": 20}},
    "train": {"epochs": 6, "swa": {"start": 0.3, "every": 3}}})");
  const auto last = [&](const std::string& name, const std::string& options) {
    const Ran r = run(dir, "train c.json --threads 1 --json --set output_dir=" + name + " " + options);
    REQUIRE(r.code == 0);
    CHECK(contains(r.err, "a pass over data.train makes the norms' statistics") == !contains(options, "update_bn=false"));
    return r.json()["val.loss"].get<double>();
  };
  const double own = last("own", ""), old = last("old", "--set train.swa.update_bn=false");
  CHECK(own < 0.95 * old);
  // The last checkpoint, with all that its weights need.
  std::string newest;
  std::ifstream(dir / "own/latest") >> newest;
  const Ran eval = run(dir, "eval own/" + newest + " --json");
  REQUIRE(eval.code == 0);
  CHECK(eval.json()["averaged_weights"] == true);
  CHECK(eval.json()["val.loss"].get<double>() == doctest::Approx(own).epsilon(1e-6));
  // The statistics of the trained weights stay theirs: both runs trained the same, also after a resume.
  const CheckpointContents a = load_checkpoint(dir / "own"), b = load_checkpoint(dir / "old");
  for (const auto& [name, t] : a.model) CHECK(t.to_vector<float>() == b.model.at(name).to_vector<float>());
  CHECK(last("cut", "--set train.epochs=4 --set train.swa.start=0.45") > 0);
  CHECK(run(dir, "train c.json --threads 1 --quiet --set output_dir=cut --resume auto").code == 0);
  for (const auto& [name, t] : load_checkpoint(dir / "cut").model)
    CHECK(t.to_vector<float>() == a.model.at(name).to_vector<float>());
}

TEST_CASE("train.swa: the mean is of the weights at the ends of epochs, of the run, or of each `every` applied steps") {
  TempDir dir;
  write(dir / "c.json", R"({
    "name": "swa", "device": "cpu", "output_dir": "r", "seed": 4,
    "model": {"type": "Sequential", "layers": ["Flatten", {"type": "Linear", "out_features": "auto"}]},
    "loss": "CrossEntropyLoss", "optimizer": {"type": "SGD", "lr": 0.5}, "checkpoint": {"every": 1, "keep_last": 0},
    "data": {"train": {"type": "Digits", "size": 100}, "val": {"type": "Digits", "size": 50}, "loader": {"batch_size": 20}},
    "train": {"epochs": 4, "accumulate_steps": 2, "swa": {"start": 0.3}}})");
  // Checks that the mean of the last checkpoint is that of the weights after these numbers of applied steps.
  const auto mean_of = [&](const std::string& options, const std::vector<int>& steps) {
    CAPTURE(options);
    const Ran r = run(dir, "train c.json --threads 1 --overwrite " + options);
    CAPTURE(r.err);
    REQUIRE(r.code == 0);
    CHECK(contains(r.err, "there will be no average") == steps.empty());
    const CheckpointContents last = load_checkpoint(dir / "r");
    const Tensor& count = last.state.at("optimizer.1.weight.average_count");
    REQUIRE(count.item<double>() == double(steps.size()));
    if (steps.empty()) return;
    Tensor sum = zeros({10, 28 * 28});
    for (const int step : steps) {
      std::ostringstream name;
      name << "r/step-" << std::setw(8) << std::setfill('0') << step;
      sum = sum + load_checkpoint(dir / name.str()).model.at("1.weight");
    }
    const std::vector<float> want = (sum / double(steps.size())).to_vector<float>();
    CHECK(distance(last.state.at("optimizer.1.weight.average").to_vector<float>(), want) < 1e-6);
  };
  mean_of("", {6, 9, 12});  // of 3 steps, the last of one batch
  const auto average_of = [&](const char* name) {
    return load_checkpoint(dir / name).state.at("optimizer.1.weight.average").to_vector<float>();
  };
  for (const char* from : {"r/step-00000006", "r/step-00000008"}) {
    REQUIRE(run(dir, joined("train c.json --threads 1 --overwrite --set output_dir=cut --resume ", from)).code == 0);
    CHECK(average_of("cut") == average_of("r"));
  }
  mean_of("--set train.accumulate_steps=1", {10, 15, 20});
  mean_of("--set train.limit_batches=4 --set train.swa.start=0.5", {6, 8});
  const std::string steps = "--set train.epochs=null --set train.max_steps=";
  mean_of(steps + "11", {6, 9, 11});
  mean_of(steps + "12", {6, 9, 12});
  mean_of(steps + "2", {2});
  mean_of("--set train.swa.every=4", {7, 11});
  mean_of("--set train.swa.every=10", {});
  mean_of(R"(--set train.swa=false --set 'train.ema={"decay": 0.5, "every": 9}')", {9});
  // Skipped steps do not move the ends of epochs.
  const Ran skips = run(dir, R"(train c.json --json --overwrite --set 'amp={"dtype": "float16", "scaler": {"init_scale": 1e9}}')");
  REQUIRE(skips.code == 0);
  const int skipped = skips.json()["steps_skipped"];
  REQUIRE(skipped > 0);
  CHECK(load_checkpoint(dir / "r").state.at("optimizer.1.weight.average_count").item<double>() == 3);
}

TEST_CASE("a last batch of one sample is found by validate where a layer cannot train on it") {
  TempDir dir;
  const auto errors = [&](const std::string& model, const std::string& loader, const std::string& train = R"("epochs": 1)") {
    return error_of(write(dir / "c.json", R"({"model": {"type": "Sequential", "layers": [)" + model + R"(]}, "device": "cpu",
      "loss": "CrossEntropyLoss", "optimizer": {"type": "SGD", "lr": 0.1}, "train": {)" +
                                              train + R"(},
      "data": {"train": {"type": "Digits", "size": 33}, "loader": {)" +
                                              loader + "}}}"));
  };
  const std::string last = R"({"type": "Linear", "out_features": "auto"})";
  const std::string head = R"("Flatten", {"type": "Linear", "out_features": 8}, "BatchNorm1d", )" + last;
  const std::string found =
      "data.loader.drop_last: must be true, or data.loader.batch_size another number: the last batch of an epoch has one of the 33 "
      "samples, and the model cannot train on one: [batch_norm] needs more than 1 value per channel when training, got input [1, "
      "8]";
  CHECK(contains(errors(head, R"("batch_size": 8)"), found));
  CHECK(contains(errors(head, R"("batch_size": 16)"), found));
  CHECK(errors(head, R"("batch_size": 8, "drop_last": true)").empty());
  CHECK(errors(head, R"("batch_size": 7)").empty());
  CHECK(errors(head, R"("batch_size": 8)", R"("epochs": 1, "limit_batches": 4)").empty());
  CHECK(errors(head, R"("batch_size": 8)", R"("max_steps": 4)").empty());
  CHECK(errors(head, R"("batch_size": 8)", R"("epochs": 0)").empty());
  CHECK(contains(errors(head, R"("batch_size": 1)"), "data.loader.batch_size: is 1, but the model cannot train on one sample"));
  // Positions are values, too; frozen statistics need no batch; a draw with replacement has a size of its own.
  CHECK(errors(R"("BatchNorm2d", "Flatten", )" + last, R"("batch_size": 8)").empty());
  CHECK(errors(R"("Flatten", {"type": "BatchNorm1d", "freeze_statistics": true}, )" + last, R"("batch_size": 8)").empty());
  const std::string drawn = R"("batch_size": 8, "sampler": {"type": "weighted", "num_samples": 17})";
  CHECK(contains(errors(head, drawn), "has one of the 17 samples"));
}

TEST_CASE("freeze_statistics: norms keep and use their statistics while the rest is trained; patterns must be found") {
  TempDir dir;
  const auto config = [&](const std::string& extra, const std::string& inner = "") {
    const std::string layers = R"("Flatten", {"type": "Linear", "out_features": 8}, {"type": "BatchNorm1d", "name": "first"},
      "Tanh", {"type": "Linear", "out_features": 8}, {"type": "BatchNorm1d", "name": "second")";
    return write(dir / "c.json", R"({"model": {"type": "Sequential", )" + extra + R"( "layers": [)" + layers + inner + R"(},
      {"type": "Linear", "out_features": "auto"}]}, "device": "cpu", "output_dir": "r", "loss": "CrossEntropyLoss",
      "optimizer": {"type": "SGD", "lr": 0.1}, "train": {"epochs": 2},
      "data": {"train": {"type": "Digits", "size": 64}, "loader": {"batch_size": 16}}})");
  };
  const auto counts = [&] {
    REQUIRE(run(dir, "train c.json --quiet --overwrite").code == 0);
    const auto model = load_checkpoint(dir / "r").model;
    CHECK((model.at("second.running_var").to_vector<float>() == std::vector<float>(8, 1)) ==
          (model.at("second.num_batches_tracked").item<int64_t>() == 0));
    CHECK(model.at("second.weight").to_vector<float>() != std::vector<float>(8, 1));  // its parameters are trained
    return std::pair(model.at("first.num_batches_tracked").item<int64_t>(), model.at("second.num_batches_tracked").item<int64_t>());
  };
  using Counts = std::pair<int64_t, int64_t>;
  config("");
  CHECK(counts() == Counts(8, 8));
  config(R"("freeze_statistics": true,)");
  CHECK(counts() == Counts(0, 0));
  config(R"("freeze_statistics": ["^sec"],)");
  CHECK(counts() == Counts(8, 0));
  config("", R"(, "freeze_statistics": true)");
  CHECK(counts() == Counts(8, 0));
  const auto refused = [&](const fs::path& file, const std::string& text) { CHECK(contains(error_of(file), text)); };
  refused(config(R"("freeze_statistics": ["third"],)"),
          "model.freeze_statistics: [freeze_statistics] \"third\" must be found in the name of a norm with running statistics");
  refused(config(R"("freeze_statistics": ["^1$"],)"), "must be found in the name of a norm");  // a Linear
  refused(config("", R"(, "track_running_stats": false, "freeze_statistics": true)"),
          "there must be a norm with running statistics, but is none");
  refused(config(R"("freeze_statistics": 3,)"), "model.freeze_statistics: must be");
}
