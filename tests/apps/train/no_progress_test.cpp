// SPDX-License-Identifier: Apache-2.0
// A run that ends without an error and has learned nothing says so.
#include <doctest/doctest.h>

#include "tests/apps/support.h"

using namespace halfstep::app::testing;

namespace {

// Two classes that a line parts, two that nothing parts, and numbers.
void write_tables(const TempDir& dir) {
  std::string classes = "a,b,kind\n", noise = "a,b,kind\n", numbers = "a,b,sum\n";
  for (int i = 0; i < 200; ++i) {
    const int a = i * 37 % 101, b = i * 53 % 89;
    classes += std::to_string(a) + ',' + std::to_string(b) + ',' + (a > b ? "x" : "y") + '\n';
    noise += std::to_string(a) + ',' + std::to_string(b) + ',' + (i * 7 % 13 > 6 ? "x" : "y") + '\n';
    numbers += std::to_string(a) + ',' + std::to_string(b) + ',' + std::to_string(a + b) + '\n';
  }
  write(dir / "classes.csv", classes);
  write(dir / "noise.csv", noise);
  write(dir / "numbers.csv", numbers);
}

std::string config(const std::string& file, const std::string& task, const std::string& loss) {
  const std::string data =
      R"({"type": "CSV", "path": ")" + file + R"(", "task": ")" + task + R"(", "standardize": true, "range": )";
  return R"({"version": 1, "name": "c", "output_dir": "r", "amp": false,
             "data": {"root": ".", "train": )" +
         data + "[0, 0.6]}, \"val\": " + data + R"([0.6, 1]}, "loader": {"batch_size": 16}},
             "model": {"type": "MLP", "hidden": [8]}, "loss": {"type": ")" +
         loss + R"("},
             "optimizer": {"type": "SGD", "lr": 0.2}, "train": {"epochs": 8}})";
}

}  // namespace

TEST_CASE("no progress: an accuracy of guessing, and a loss far above the first, are warned of with the command for rates") {
  const TempDir dir;
  write_tables(dir);
  write(dir / "c.json", config("classes.csv", "classification", "CrossEntropyLoss"));
  const Ran good = run(dir, "train c.json");
  REQUIRE_MESSAGE(good.code == 0, good.err);
  CHECK_FALSE(contains(good.err, "learned nothing"));
  const Ran still = run(dir, "train c.json --overwrite --set optimizer.lr=1e-12 --set seed=1");
  CHECK_MESSAGE(contains(still.err, "warning: the run has learned nothing: val accuracy "), still.err);
  CHECK(contains(still.err, "guessing one of 2 classes gives 50 %"));
  CHECK(contains(still.err, "lr-find r/config.resolved.json measures which rates suit"));
  CHECK(run(dir, "lr-find r/config.resolved.json").code == 0);

  // The gradients of a linear layer are bounded, so that a large rate makes a large loss and no infinity.
  const Ran rose = run(dir,
                       "train c.json --overwrite --set optimizer.lr=1e4 --set data.train.path=noise.csv --set "
                       R"(data.val.path=noise.csv --set 'model={"type": "Linear", "out_features": "auto"}')");
  CHECK(rose.code == 0);
  CHECK_MESSAGE(contains(rose.err, "train loss "), rose.err);
  CHECK(contains(rose.err, ", and that of the first batch was "));
  write(dir / "n.json", config("numbers.csv", "regression", "L1Loss"));
  const std::string numbers = R"(train n.json --overwrite --set 'metrics=["r2"]' --set optimizer.lr=)";
  CHECK_FALSE(contains(run(dir, numbers + "0.05").err, "learned nothing"));
  const Ran constant = run(dir, numbers + "1e-12");
  CHECK_MESSAGE(contains(constant.err, "answering the mean of the targets each time gives 0"), constant.err);
}
