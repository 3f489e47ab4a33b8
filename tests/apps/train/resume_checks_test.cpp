// SPDX-License-Identifier: Apache-2.0
// A run that continues, or begins with a run's weights, where the data, the monitor or the loss mean something else than before.
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "apps/config/config.h"
#include "framework/io/checkpoint/checkpoint.h"
#include "tests/apps/small_run.h"
#include "tests/apps/support.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

// A table of `rows` rows whose cells are functions of the row.
std::string table(const std::string& header, int rows, const std::function<std::string(int)>& row) {
  std::string out = header + '\n';
  for (int i = 0; i < rows; ++i) out += row(i) + '\n';
  return out;
}

std::string config_of(const std::string& data, const std::string& loss, const std::string& layers) {
  return R"({"version": 1, "name": "c", "output_dir": "r", "amp": false, "device": "cpu", "data": {"root": ".", )" + data +
         R"(, "loader": {"batch_size": 16}}, "model": {"type": "Sequential", "layers": [)" + layers + R"(]}, "loss": ")" + loss +
         R"(", "optimizer": {"type": "AdamW", "lr": 0.01}, "train": {"epochs": 2}})";
}

constexpr const char* kLinear = R"({"type": "Linear", "out_features": 8}, "ReLU", {"type": "Linear", "out_features": "auto"})";

// Classes by the size of a number: "low", "mid" and others.
std::string classes(const std::string& last, int rows = 60) {
  return table("size,weight,kind", rows, [&](int i) {
    return joined(i % 3, '.', i % 7, ',', 10 + i % 5, ',', i % 3 == 0 ? "low" : i % 3 == 1 ? "mid" : last.c_str());
  });
}
std::string class_config() { return config_of(R"("type": "CSV", "train": {"path": "a.csv"})", "CrossEntropyLoss", kLinear); }

// y = factor * (x + shift)
std::string numbers(double factor, double shift = 0, int rows = 60) {
  return table("x,y", rows, [&](int i) { return joined(i % 10, ',', factor * (i % 10 + i % 3 * 0.1 + shift)); });
}
std::string number_config() {
  return config_of(R"("type": "CSV", "task": "regression", "standardize_target": true, "train": {"path": "a.csv"},
                      "val": {"path": "v.csv"})",
                   "MSELoss", kLinear);
}

Ran resumed(const TempDir& dir, const std::string& options, int epochs = 4) {
  return run(dir, joined("train c.json --resume auto --set train.epochs=", epochs, ' ', options));
}

double best_value(const TempDir& dir) { return (*load_checkpoint(dir / "r").meta)["trainer"]["best"].get<double>(); }

}  // namespace

TEST_CASE("a run does not continue where names of its data have other numbers") {
  const auto refused = [](const std::string& config, const std::string& before, const std::string& after, const std::string& says) {
    CAPTURE(says);
    const TempDir dir;
    write(dir / "c.json", config), write(dir / "a.csv", before);
    REQUIRE(run(dir, "train c.json --quiet").code == 0);
    const std::string was = identity(dir / "r");
    write(dir / "a.csv", after);
    const Ran r = resumed(dir, "");
    CHECK(r.code == 2);
    CHECK_MESSAGE(contains(r.err, "[resume] the names of data.train must have the numbers that the checkpoint's model learned"),
                  r.err);
    CHECK_MESSAGE(contains(r.err, says), r.err);
    CHECK(identity(dir / "r") == was);
    CHECK(run(dir, "train c.json --quiet --overwrite").code == 0);  // as the help says
  };
  refused(class_config(), classes("tall"), classes("big"), R"(class 0 is "big", before "low")");
  // Two columns exchanged in the file.
  const auto rows = [](const char* header) {
    return table(header, 40, [](int i) { return joined(i % 7, ',', i % 5, ',', i % 2 ? "yes" : "no"); });
  };
  refused(class_config(), rows("width,height,kind"), rows("height,width,kind"), R"(input 0 is "height", before "width")");
  const auto towns = [](const char* town) {
    return table("town,x,price", 40, [&](int i) { return joined(i % 2 ? "Ulm" : town, ',', i % 5, ',', i % 2 * 3 + i % 5); });
  };
  const std::string regression =
      config_of(R"("type": "CSV", "task": "regression", "train": {"path": "a.csv"})", "MSELoss", kLinear);
  refused(regression, towns("Bonn"), towns("Kiel"), R"(input 0 is "town=Kiel", before "town=Bonn")");
  const std::string numbered =
      config_of(R"("type": "CSV", "task": "regression", "categories": "index", "train": {"path": "a.csv"})", "MSELoss", kLinear);
  refused(numbered, towns("Bonn"), towns("Wien"), R"(category of "town" 0 is "Ulm", before "Bonn")");
  const auto letters = [](char c) { return std::string(300, 'b') + std::string(300, c) + std::string(300, 'x'); };
  refused(config_of(R"("type": "Text", "seq_len": 8, "train": {"path": "a.csv"})", "CrossEntropyLoss",
                    R"({"type": "Embedding", "num_embeddings": "auto", "embedding_dim": 8},
                       {"type": "Linear", "out_features": "auto"})"),
          letters('c'), letters('y'), R"(class 1 is "x", before "c")");
}

TEST_CASE("a run continues with more rows and other spellings without a word about names or scales") {
  const TempDir dir;
  write(dir / "c.json", class_config()), write(dir / "a.csv", classes("tall"));
  REQUIRE(run(dir, "train c.json --quiet --set data.standardize=true").code == 0);
  write(dir / "a.csv", classes("tall ", 75));
  const Ran r = resumed(dir, "--set data.standardize=true");
  CHECK(r.code == 0);
  CHECK(contains(r.err, "data.train has 75 samples, but had 60"));
  CHECK_FALSE(contains(r.err, "scale"));
  CHECK_FALSE(contains(r.err, "anew"));
}

TEST_CASE("a run that continues on another scale says which one, of inputs and of targets") {
  const TempDir dir;
  write(dir / "c.json", number_config()), write(dir / "v.csv", numbers(1)), write(dir / "a.csv", numbers(1));
  REQUIRE(run(dir, "train c.json --quiet").code == 0);
  write(dir / "a.csv", numbers(1000));
  const Ran r = resumed(dir, "");
  CHECK(r.code == 0);
  CHECK_MESSAGE(contains(r.err, "data.train has another scale: the target has mean 46"), r.err);
  CHECK(contains(r.err, "; the model learned the former one"));
  CHECK_MESSAGE(contains(r.err, "the targets have another scale than before: earlier values are not compared with later ones"),
                r.err);
  // What stays true is said again.
  const std::string change = "at step 8 the run continued with a change: data.train has another scale: the target has mean 46";
  const Ran again = resumed(dir, "", 5);
  CHECK(again.code == 0);
  CHECK_MESSAGE(contains(again.err, change), again.err);
  CHECK(contains(resumed(dir, "", 6).err, change));
  CHECK(contains(run(dir, "eval r").err, change));
  CHECK(run(dir, "train c.json --quiet --overwrite").code == 0);
  CHECK_FALSE(contains(run(dir, "eval r").err, "change"));

  const TempDir inputs;
  const auto grams = [](double factor) {
    return table("size,kind", 60, [&](int i) { return joined(factor * (i % 9), ',', i % 2 ? "a" : "b"); });
  };
  write(inputs / "c.json", class_config()), write(inputs / "a.csv", grams(1));
  REQUIRE(run(inputs, "train c.json --quiet --set data.standardize=true").code == 0);
  write(inputs / "a.csv", grams(2));
  CHECK(contains(resumed(inputs, "--set data.standardize=true").err, R"(another scale: input "size" has mean 7)"));
}

TEST_CASE("weights of a run whose names have other numbers are refused, with the layer that must learn anew") {
  const TempDir dir;
  write(dir / "c.json", class_config()), write(dir / "a.csv", classes("tall"));
  REQUIRE(run(dir, "train c.json --quiet").code == 0);
  const std::string begin = "train c.json --overwrite --set output_dir=n ";
  CHECK_FALSE(contains(run(dir, begin + "--set model.weights=r").out, "before"));
  CHECK_FALSE(contains(run(dir, "validate c.json --set model.weights=r").out, "before"));
  write(dir / "a.csv", classes("big"));
  const Ran checked = run(dir, "validate c.json --set model.weights=r");
  CHECK(checked.code == 2);
  CHECK_MESSAGE(contains(checked.err, R"(class 0 is "big", before "low")"), checked.err);
  CHECK(run(dir, R"(validate c.json --set 'model.weights={"path": "r", "skip": ["^2\\."]}')").code == 0);
  for (const std::string& path : {std::string("r"), std::string("r/latest"), "r/" + checkpoint_name(8) + "/model.safetensors"}) {
    CAPTURE(path);
    const Ran r = run(dir, begin + "--set model.weights=" + path);
    CHECK(r.code == 2);
    CHECK_MESSAGE(contains(r.err, R"(class 0 is "big", before "low")"), r.err);
    CHECK_MESSAGE(contains(r.err, R"(help: with "skip": ["^2\\."] in "weights" that layer keeps its first values)"), r.err);
  }
  REQUIRE(run(dir, "export r --to safetensors --out r.safetensors").code == 0);
  CHECK(run(dir, begin + "--set model.weights=r.safetensors").code == 2);
  CHECK(run(dir, begin + R"(--set 'model.weights={"path": "r", "skip": ["^2\\."]}')").code == 0);
  // Names of which none is known may be another task.
  write(dir / "a.csv", table("size,weight,kind", 60, [](int i) { return joined(i % 3, ',', 10 + i % 5, ',', i % 3 + 7, 'x'); }));
  const Ran other = run(dir, begin + "--set model.weights=r");
  CHECK(other.code == 0);
  CHECK_MESSAGE(contains(other.out, R"(weights: r: class 0 is "7x", before "low"; with "skip": ["^2\\."])"), other.out);
  CHECK(contains(run(dir, "validate c.json --set model.weights=r").out, R"(weights: r: class 0 is "7x", before "low")"));
  // Exchanged columns are those of the first layer.
  write(dir / "a.csv", table("weight,size,kind", 60,
                             [](int i) { return joined(i % 5, ',', i, ',', i % 3 ? i % 3 > 1 ? "tall" : "mid" : "low"); }));
  CHECK(contains(run(dir, begin + "--set model.weights=r").err, R"(input 0 is "weight", before "size")"));
  CHECK(contains(run(dir, begin + "--set model.weights=r").err, R"(["^0\\."])"));
}

TEST_CASE("best, early stopping and plateaus do not compare values of another monitor, loss, metric or data.val") {
  const std::string stop = R"(--set 'train.early_stopping={"patience": 30}' --set scheduler=ReduceLROnPlateau )";
  const auto anew = [&](const std::string& first, const std::string& then, const std::string& says, const std::string& val = "") {
    CAPTURE(says);
    const TempDir dir;
    write(dir / "c.json", number_config()), write(dir / "v.csv", numbers(1)), write(dir / "a.csv", numbers(1));
    REQUIRE(run(dir, "train c.json --quiet " + stop + first).code == 0);
    if (!val.empty()) write(dir / "v.csv", val);
    const Ran r = resumed(dir, stop + then);
    REQUIRE(r.code == 0);
    CHECK_MESSAGE(contains(r.err, says + ": earlier values are not compared with later ones, and the best checkpoint, "
                                         "ReduceLROnPlateau and train.early_stopping begin anew with the next\n"),
                  r.err);
    const CheckpointContents c = load_checkpoint(dir / "r");
    CHECK((*c.meta)["trainer"]["best_step"].get<int64_t>() > 8);  // of an epoch after the resume
    CHECK((*c.meta)["trainer"]["stop_best"].is_number());
    CHECK((*c.meta)["schedule"]["best"].is_number());
    const std::string later = resumed(dir, stop + then, 5).err;
    CHECK_FALSE(contains(later, "anew"));
    CHECK_MESSAGE(contains(later, "at step 8 the run continued with a change: " + says + '\n'), later);
    CHECK(contains(run(dir, "eval r").err, "at step 8 the run continued with a change: " + says + '\n'));
  };
  const std::string rmse = R"(--set 'metrics=["rmse", "r2"]' )";
  anew(rmse, rmse + "--set checkpoint.monitor=val/rmse",
       "checkpoint.monitor is val/rmse, before val/loss; train.early_stopping.monitor "
       "is val/rmse, before val/loss");
  anew(rmse + "--set checkpoint.monitor=val/r2", rmse,
       "checkpoint.monitor is val/loss, before val/r2; train.early_stopping.monitor is "
       "val/loss, before val/r2");
  anew("", "--set loss=L1Loss", "the loss is another one than before");
  anew("", R"(--set 'loss={"type": "HuberLoss", "delta": 0.1}')", "the loss is another one than before");
  anew("", "", "data.val has other samples or transforms than before", numbers(1, 5));
  anew("", "--set data.val.range=[0,0.5]", "data.val has other samples or transforms than before");
}

TEST_CASE("the values that a run has seen stay where they measure the same") {
  const TempDir dir;
  write(dir / "c.json", number_config()), write(dir / "v.csv", numbers(1)), write(dir / "a.csv", numbers(1));
  REQUIRE(run(dir, "train c.json --quiet --set train.epochs=3").code == 0);
  const double best = best_value(dir);
  write(dir / "copy.csv", numbers(1));
  const Ran r = resumed(dir, "--set optimizer.lr=0 --set data.val.path=copy.csv --set 'metrics=[\"mae\"]'");
  CHECK(r.code == 0);
  CHECK_MESSAGE(!contains(r.err, "anew"), r.err);
  CHECK(best_value(dir) <= best);
  // A metric in the units of the file does not depend on the scale of the loss.
  REQUIRE(run(dir, "train c.json --quiet --overwrite --set 'metrics=[\"mae\"]' --set checkpoint.monitor=val/mae").code == 0);
  CHECK_FALSE(contains(resumed(dir, "--set 'metrics=[\"mae\"]' --set checkpoint.monitor=val/mae --set loss=L1Loss").err, "anew"));
}

TEST_CASE("a run that stopped early continues with more patience or without early stopping, as if it had not stopped") {
  const TempDir dir;
  write(dir / "c.json", number_config()), write(dir / "v.csv", numbers(1)), write(dir / "a.csv", numbers(1));
  const std::string stop = R"( --set 'train.early_stopping={"patience": 1, "min_delta": 10}' )";
  const auto patience = [](int n) { return joined(R"( --set 'train.early_stopping={"min_delta": 10, "patience": )", n, "}' "); };
  const Ran first = run(dir, "train c.json --json --set train.epochs=8" + stop);
  REQUIRE(first.json()["stopped_early"] == true);
  REQUIRE(first.json()["epochs"] == 2);
  const Ran same = resumed(dir, stop, 8);
  CHECK(same.code == 0);
  CHECK_MESSAGE(contains(same.out, "stopped early at step 8; train.early_stopping.patience above 1 continues it\n"), same.out);
  const Ran ended = resumed(dir, stop, 2);
  CHECK_MESSAGE(contains(ended.out, "train.early_stopping.patience above 1 with a larger train.epochs continues it\n"), ended.out);

  const Ran more = resumed(dir, "--json" + patience(3), 8);
  CHECK(more.json()["epochs"] == 4);
  CHECK(more.json()["stopped_early"] == true);
  REQUIRE(run(dir, "train c.json --quiet --set output_dir=whole --set train.epochs=8" + patience(3)).code == 0);
  CHECK(identity(dir / "r") == identity(dir / "whole"));
  CHECK(resumed(dir, "--json", 8).json()["epochs"] == 8);
  CHECK(resumed(dir, "--json" + stop, 9).json()["stopped_early"] == false);
}

TEST_CASE("early stopping watches what checkpoint.monitor names unless it has a monitor of its own") {
  const TempDir dir;
  const fs::path file = write(dir / "c.json", kSmall);
  const auto rule = [&](std::vector<std::string> sets) {
    sets.emplace_back("train.early_stopping.patience=2");
    const Json out = load_config(file, {.sets = std::move(sets)}).train.early_stopping;
    return joined(out["monitor"].get<std::string>(), ' ', out["mode"].get<std::string>());
  };
  CHECK(rule({}) == "val/accuracy max");
  CHECK(rule({"checkpoint.monitor=val/loss"}) == "val/loss min");
  CHECK(rule({"checkpoint.monitor=train/loss"}) == "train/loss min");
  CHECK(rule({"checkpoint.monitor=val/loss", "checkpoint.mode=max"}) == "val/loss max");
  CHECK(rule({"checkpoint.monitor=val/loss", "train.early_stopping.monitor=val/accuracy"}) == "val/accuracy max");
  CHECK(rule({"checkpoint.monitor=val/loss", "train.early_stopping.monitor=val/loss"}) == "val/loss min");
}
