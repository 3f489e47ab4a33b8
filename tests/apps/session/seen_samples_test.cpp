// SPDX-License-Identifier: Apache-2.0
// A run that continues, or a model that is evaluated, with samples that were trained on: one line says so.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/check.h"
#include "tests/apps/support.h"

using namespace halfstep;
using namespace halfstep::app::testing;

namespace {

const std::string kTrainedOn = " has samples that the run was trained on: ";

// A table of 50 rows without any rule in its classes.
std::string table(int rows = 50) {
  std::string out = "a,b,y\n";
  for (int i = 0; i < rows; ++i) out += joined(std::sin(i * 12.9), ',', std::cos(i * 7.1), ',', i * i % 7 < 3 ? "p" : "q", '\n');
  return out;
}

struct Run : TempDir {
  // part_of_train, part_of_val: keys behind the path.
  explicit Run(const std::string& part_of_train, const std::string& part_of_val, const std::string& val_path = "t.csv") {
    fs::create_directories(*this / "in");
    write(*this / "in/t.csv", table());
    write(*this / "in/v.csv", table(70));
    write(*this / "c.json",
          joined(R"({"version": 1, "name": "c", "output_dir": "r", "amp": false, "seed": 1,
      "data": {"root": "in", "type": "CSV", "train": {"path": "t.csv")",
                 part_of_train, R"(}, "val": {"path": ")", val_path, '"', part_of_val, R"(}, "loader": {"batch_size": 10}},
      "model": {"type": "Linear", "out_features": "auto"}, "loss": "CrossEntropyLoss",
      "optimizer": {"type": "SGD", "lr": 0.1}, "train": {"epochs": 1}})"));
    REQUIRE(run(*this, "train c.json --quiet").code == 0);
  }
  std::string resumed(const std::string& sets) const {
    const Ran r = run(*this, "train c.json --quiet --resume auto --set train.epochs=2 " + sets);
    CHECK_MESSAGE(r.code == 0, r.err);
    return r.err;
  }
  std::string evaluated(const std::string& sets) const {
    const Ran r = run(*this, "eval r " + sets);
    CHECK_MESSAGE(r.code == 0, r.err);
    return r.err;
  }
};

const std::string kFirst = R"(, "range": [0, 0.7])", kRest = R"(, "range": [0.7, 1])";

}  // namespace

TEST_CASE("a run that continues with other parts says that it has trained on the new held-out samples") {
  const std::string shares = "data.val" + kTrainedOn;
  CHECK(contains(Run(kFirst, kRest).resumed("--set seed=2"),
                 shares + "it is cut by seed 2, but 1 for data.train of the run: the two are cut from different orders"));
  CHECK(contains(Run(kFirst, kRest).resumed("--set 'data.train.range=[0.3,1]' --set 'data.val.range=[0,0.3]'"),
                 shares +
                     "its range shares the samples of [0, 0.3) with data.train of the run; its values say nothing about new data: "
                     "continue with the same parts, seed and files, or train anew in another output_dir"));
  CHECK(contains(
      Run(R"(, "fold": [0, 5])", R"(, "fold": [0, 5])").resumed("--set 'data.train.fold=[1,5]' --set 'data.val.fold=[1,5]'"),
      shares + "its fold shares the samples of [0.2, 0.4) with data.train of the run"));
  CHECK(contains(Run(kFirst, kRest).resumed("--set data.train.stratified=true --set data.val.stratified=true"),
                 shares + "its stratified is true, but false for data.train of the run"));
  CHECK(contains(Run("", "", "v.csv").resumed("--set data.train.path=v.csv --set data.val.path=../in/t.csv"),
                 shares + "it has samples of data.train of the run"));
}

TEST_CASE("a run that continues as before, or with held-out data of its own, says nothing of samples") {
  const auto is_silent = [](const std::string& said) { return !contains(said, "trained on"); };
  const Run parts(kFirst, kRest);
  CHECK(is_silent(parts.resumed("")));
  CHECK(is_silent(parts.resumed("--set 'data.train.range=[0,0.5]' --set optimizer.lr=0.2 --set train.epochs=3")));
  CHECK(is_silent(Run("", "", "v.csv").resumed("--set seed=2")));
  CHECK(is_silent(Run("", "", "v.csv").resumed("--set data.val.range=[0,0.5]")));
}

TEST_CASE("rows that are added to the file of both parts may put trained ones into the held-out part") {
  const Run parts(kFirst, kRest);
  write(parts / "in/t.csv", table(55));
  CHECK(contains(parts.resumed(""),
                 "data.val may have samples that the run was trained on: it is a part of files that have changed; its values say"));
  const Run files("", "", "v.csv");
  write(files / "in/t.csv", table(55));
  CHECK(!contains(files.resumed(""), "trained on"));
}

TEST_CASE("eval says that a model was trained on the samples it is evaluated with") {
  const Run parts(kFirst, kRest);
  const std::string shares = "data.val" + kTrainedOn;
  CHECK(parts.evaluated("").empty());
  CHECK(parts.evaluated("--set 'data.val.range=[0.8,1]'").empty());
  CHECK(parts.evaluated("--split train").empty());
  CHECK(contains(parts.evaluated("--set 'data.val.range=[0.5,1]'"),
                 shares +
                     "its range shares the samples of [0.5, 0.7) with data.train of the run; these values say nothing about new "
                     "data: evaluate rows or files that data.train did not have"));
  CHECK(contains(parts.evaluated("--set seed=3"), shares + "it is cut by seed 3, but 1 for data.train of the run"));
  CHECK(contains(parts.evaluated("--set data.val.skip_rows=[2]"), shares + "its skip_rows is [2], but [] for data.train"));
  const Run folds(R"(, "fold": [0, 5])", R"(, "fold": [0, 5])");
  CHECK(contains(folds.evaluated("--set 'data.train.fold=[2,5]' --set 'data.val.fold=[2,5]'"),
                 shares + "its fold shares the samples of [0.4, 0.6)"));

  const Run files("", "", "v.csv");
  CHECK(files.evaluated("").empty());
  CHECK(files.evaluated("--set seed=3 --set 'data.val.range=[0,0.5]'").empty());
  CHECK(contains(files.evaluated("--set data.val.path=./t.csv"), shares + "it has samples of data.train of the run"));
  CHECK(contains(files.evaluated("--split test --set 'data.test={\"type\":\"CSV\",\"path\":\"../in/t.csv\",\"range\":[0,0.5]}'"),
                 "data.test" + kTrainedOn + "its range shares the samples of [0, 0.5)"));
  // The folder of the data has another name than in training.
  fs::rename(files / "in", files / "moved");
  CHECK(files.evaluated("--set data.root=moved").empty());
  CHECK(contains(files.evaluated("--set data.root=moved --set data.val.path=t.csv"), shares));
}

TEST_CASE("samples that a run was trained on before it was resumed are named whenever it is resumed or evaluated") {
  const std::string earlier = "data.val" + kTrainedOn, owner = " with an earlier data.train of the run";
  const Run parts(kFirst, kRest);
  const std::string moved = "--set 'data.train.range=[0.3,1]' --set 'data.val.range=[0,0.3]' ";
  CHECK(contains(parts.resumed(moved), earlier + "its range shares the samples of [0, 0.3) with data.train of the run"));
  const std::string again = earlier + "its range shares the samples of [0, 0.3)" + owner;
  CHECK(contains(parts.resumed(moved + "--set train.epochs=3"), again));
  CHECK(contains(parts.resumed(moved + "--set train.epochs=4"), again));
  CHECK(contains(parts.evaluated(""), again + "; these values say nothing about new data"));
  CHECK(contains(parts.resumed("--set train.epochs=5"), earlier));  // back to the first parts, after training on the others
  // A part of its own.
  const Run own(R"(, "range": [0, 0.4])", R"(, "range": [0.4, 0.6])");
  CHECK(!contains(own.resumed("--set 'data.train.range=[0.6,1]'"), "trained on"));
  CHECK(own.evaluated("").empty());
  CHECK(contains(own.evaluated("--set 'data.val.range=[0.3,0.5]'"), "its range shares the samples of [0.3, 0.4)" + owner));
  // Another order of the samples, and other rows in the file.
  const Run seeds(kFirst, kRest);
  CHECK(contains(seeds.resumed("--set seed=2"), earlier));
  CHECK(contains(seeds.resumed("--set seed=2 --set train.epochs=3"),
                 earlier + "it is cut by seed 2, but 1 for an earlier data.train of the run"));
  const Run grown(kFirst, kRest);
  write(grown / "in/t.csv", table(55));
  const std::string may = "data.val may have samples that the run was trained on";
  CHECK(contains(grown.resumed(""), may));
  CHECK(contains(grown.resumed("--set train.epochs=3"), may));
  CHECK(contains(grown.evaluated(""), may));
}

TEST_CASE("held-out samples that equal those of the training data are named, though their files differ") {
  const Run files("", "", "v.csv");
  std::string text = table();
  std::replace(text.begin(), text.end(), ',', ';');
  write(files / "in/semicolons.csv", text);
  CHECK(contains(files.evaluated("--set data.val.path=semicolons.csv"),
                 "data.val" + kTrainedOn + "they are those of data.train of the run, from other files; these values"));
  const Ran fresh = run(files, "train c.json --quiet --overwrite --set data.val.path=semicolons.csv");
  CHECK(fresh.code == 0);
  CHECK(contains(fresh.err, "data.val has the samples of data.train, from other files, which the model has seen: its values say"));
  CHECK(run(files, "train c.json --quiet --overwrite --set train.overfit_batches=2").err.empty());
}
