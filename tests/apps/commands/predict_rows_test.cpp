// SPDX-License-Identifier: Apache-2.0
// predict has an answer or a fault for each record: lines that skip_rows of the run names, and samples of arrays.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "framework/data/formats/npy.h"
#include "framework/ops/ops.h"
#include "tests/apps/small_tables.h"
#include "tests/apps/support.h"
#include "tests/data/array_files.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

std::string house(int i) { return joined("h", i, ',', 50 + i % 9, ',', i % 2 ? "Ulm" : "Bonn", ',', 3 + i % 7, ',', 100 + i % 9); }

}  // namespace

TEST_CASE("predict leaves no record out for skip_rows of the run") {
  const TempDir dir;
  const std::string head = "id,area,town,rate,y\n", units = "-,m2,-,%,EUR\n", title = "houses of 2024\n";
  write(dir / "t.csv", table_of(title + head + units, 40, house) + "total,,,,1\n");
  train_on(dir, R"("type": "CSV", "path": "t.csv", "exclude": ["id"], "target": "y", "task": "regression",
                   "skip_rows": [1, 3, 44])");
  const auto rows_of = [&](const std::string& text, int code) {
    write(dir / "new.csv", text);
    const Ran r = run(dir, "predict r new.csv --out y.npy");
    CHECK_MESSAGE(r.code == code, text.substr(0, 200), r.err);
    const std::vector<float> values = read_npy(dir / "y.npy").to_vector<float>();
    std::vector<size_t> out{values.size()};  // how many, and which are NaN
    for (size_t i = 0; i < values.size(); ++i)
      if (std::isnan(values[i])) out.push_back(i);
    return out;
  };
  using Places = std::vector<size_t>;
  // Title, units and total as in the training data, and a file with the title alone.
  CHECK(rows_of(read(dir / "t.csv"), 0) == Places{40});
  CHECK(rows_of(table_of(title + head, 12, house), 0) == Places{12});
  // A record in the units' line whose cell cannot be read: a number, a category, with the units' other cells.
  for (const char* record :
       {"x,many,Ulm,3,1\n", "x,50,Mars,3,1\n", "x,#REF!,Mars,#REF!,\n", "x,1 200,Mars,-,-\n", "x,50 m2,Mars,,\n", "x,,Mars,,\n"})
    CHECK_MESSAGE((rows_of(table_of(title + head + record, 12, house), 3) == Places{13, 0}), record);
  // One that lacks a cell makes the file unreadable, as on any other line.
  CHECK(rows_of(table_of(title + head + "x,50,Ulm\n", 12, house), 3) == Places{1, 0});
  // A longer file has a record in the total's line, here without a row that can be read.
  std::string longer = table_of(title + head + units, 40, house) + "x,50,Mars,3,1\n";
  CHECK(rows_of(table_of(longer, 10, house), 3) == Places{51, 40});
}

TEST_CASE("predict of a series leaves no record out for skip_rows of the run") {
  const TempDir dir;
  const auto day = [](int i) { return joined("2024-01-", i + 1 < 10 ? "0" : "", i + 1, ',', 10 + i % 5); };
  write(dir / "s.csv", table_of("date,sales\n,EUR\n", 28, day));
  train_on(dir, R"("type": "TimeSeries", "path": "s.csv", "column": "sales", "time": "date", "window": 5, "horizon": 1,
                   "skip_rows": [2])");
  CHECK(run(dir, "predict r s.csv").code == 0);
  write(dir / "hole.csv", table_of("date,sales\n2023-12-31,\n", 5, day));
  CHECK(run(dir, "predict r hole.csv").code == 3);
  write(dir / "word.csv", table_of("date,sales\n2023-12-31,closed\n", 5, day));
  CHECK(run(dir, "predict r word.csv").code == 3);
}

TEST_CASE("predict answers the samples of an array beside one that cannot be read") {
  const TempDir dir;
  write(dir / "t.csv", table_of("id,area,town,rate,y\n", 30, house));
  train_on(dir, R"("type": "CSV", "path": "t.csv", "exclude": ["id"], "target": "y", "task": "regression")");
  const auto save = [&](const char* name, const std::vector<float>& values, int64_t width) {
    write(dir / name, halfstep::testing::npy(from_vector(values, {int64_t(values.size()) / width, width})));
  };
  const auto nans = [&](const char* name) {
    std::vector<bool> out;
    for (const float v : read_npy(dir / name).to_vector<float>()) out.push_back(std::isnan(v));
    return out;
  };
  save("x.npy", {50, 1, 0, 3, 51, NAN, 0, 4, 52, 0, 1, 5, 53, 1, NAN, 6}, 4);
  save("good.npy", {50, 1, 0, 3, 52, 0, 1, 5}, 4);
  const Ran some = run(dir, "predict r x.npy good.npy --out y.npy");
  CHECK(some.code == 3);
  CHECK_MESSAGE(contains(some.err, "x.npy[1]: "), some.err);
  CHECK(contains(some.err, "sample 3: the 2 inputs of town"));
  CHECK(contains(some.err, "2 of 6 inputs could not be read"));
  CHECK(nans("y.npy") == std::vector<bool>{false, true, false, true, false, false});
  run(dir, "predict r good.npy --out good_y.npy");
  const std::vector<float> all = read_npy(dir / "y.npy").to_vector<float>(), two = read_npy(dir / "good_y.npy").to_vector<float>();
  CHECK((all[0] == two[0] && all[2] == two[1] && all[4] == two[0] && all[5] == two[1]));
  CHECK(run(dir, "predict r x.npy --batch 1").out == run(dir, "predict r x.npy").out);

  // All of them are bad, and an array as a whole is: each sample has its row.
  save("bad.npy", {50, NAN, 0, 3, 51, NAN, 0, 4}, 4);
  CHECK(run(dir, "predict r bad.npy --out y.npy").code == 3);
  CHECK((read_npy(dir / "y.npy").shape() == Shape{2} && nans("y.npy") == std::vector<bool>{true, true}));
  save("wide.npy", {1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5}, 5);
  CHECK(run(dir, "predict r wide.npy good.npy --out y.npy").code == 3);
  CHECK(nans("y.npy") == std::vector<bool>{true, true, true, false, false});
  // Nobody knows how many rows a missing file has.
  const Ran missing = run(dir, "predict r none.npy good.npy --out y.npy");
  CHECK(nans("y.npy") == std::vector<bool>{true, false, false});
  CHECK_MESSAGE(contains(missing.err, "has a single row in the array: none.npy"), missing.err);
}

TEST_CASE("predict answers the rows of tokens beside one with a token that the model does not have") {
  const TempDir dir;
  write(dir / "t.csv", table_of("review,label\n", 20, [](int i) { return i % 2 ? "a fine film,good" : "a dull film,bad"; }));
  write(dir / "c.json", R"({"output_dir": "r", "device": "cpu", "loss": "CrossEntropyLoss", "optimizer": "SGD",
    "train": {"epochs": 1}, "model": {"type": "Sequential", "layers": [
      {"type": "EmbeddingBag", "num_embeddings": "auto", "embedding_dim": 4, "padding_idx": 0},
      {"type": "Linear", "out_features": "auto"}]},
    "data": {"root": ".", "target": "label", "texts": ["review"], "seq_len": 3, "train": {"type": "CSV", "path": "t.csv"},
      "loader": {"batch_size": 4}}})");
  const Ran trained = run(dir, "train c.json --quiet");
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  const std::vector<int64_t> tokens = {2, 3, 1, 2, 900, 1, 1, 2, 3};
  const std::string bytes(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof tokens[0]);
  write(dir / "x.npy", halfstep::testing::npy("<i8", "(3, 3)", bytes));
  const Ran r = run(dir, "predict r x.npy --out y.npy");
  CHECK(r.code == 3);
  CHECK_MESSAGE(contains(r.err, "x.npy[1]: "), r.err);
  CHECK(contains(r.err, "got 900"));
  const std::vector<int64_t> classes = read_npy(dir / "y.npy").to_vector<int64_t>();
  REQUIRE(classes.size() == 3);
  CHECK((classes[0] >= 0 && classes[1] == -1 && classes[2] >= 0));
}
