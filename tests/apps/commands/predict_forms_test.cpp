// SPDX-License-Identifier: Apache-2.0
// What predict takes and writes: options that fit the model, numbers in the table's format, the order of targets, skipped lines.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "framework/data/formats/npy.h"
#include "tests/apps/small_tables.h"
#include "tests/apps/support.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

// A number with two decimals behind a comma.
std::string with_comma(double v) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out.setf(std::ios::fixed), out.precision(2), out << v;
  std::string text = out.str();
  std::replace(text.begin(), text.end(), '.', ',');
  return text;
}

}  // namespace

TEST_CASE("predict --probabilities refuses models without, in every form of output") {
  const TempDir dir;
  write(dir / "t.csv", table_of("a,b,kind\n", 48, [](int i) { return joined(i % 7, ',', i % 5, ',', i % 3); }));
  const std::string of_kind = R"("type": "CSV", "path": "t.csv", "target": "kind", "task": )";
  const auto refused = [&](const std::string& says) {
    for (const char* form : {"", " --json", " --csv", " --out p.npy", " --out p.npz", " --out p.csv", " --wrong"}) {
      const Ran r = run(dir, joined("predict r t.csv --probabilities", form));
      CHECK(r.code == 2);
      CHECK_MESSAGE(contains(r.err, says), r.err);
      CHECK(r.out.empty());
    }
    CHECK(run(dir, "predict r t.csv --out p.npy").code == 0);  // the remedy
    fs::remove(dir / "p.npy");
  };
  train_on(dir, of_kind + R"("classification")", R"("loss": {"type": "MultiMarginLoss", "p": 2})");
  refused("the loss MultiMarginLoss gives the classes no probabilities\nhelp: leave --probabilities out");
  train_on(dir, of_kind + R"("regression")", kSquared);
  refused("--probabilities is for classes, and the model predicts numbers");
  train_on(dir, of_kind + R"("classification")", R"("loss": {"type": "CrossEntropyLoss", "label_smoothing": 0.1})");
  REQUIRE(run(dir, "predict r t.csv --probabilities --out p.npy").code == 0);
  CHECK(read_npy(dir / "p.npy").shape() == Shape{48, 3});
}

TEST_CASE("predict --csv writes its numbers as the table writes its own") {
  const TempDir dir;
  const auto number = [](int i) { return with_comma(1000.5 + 13.25 * i); };
  const auto last_line = [](const std::string& text) { return text.substr(text.rfind('\n', text.size() - 2) + 1); };
  for (const char delimiter : {'\t', ';', ','}) {
    const std::string d(1, delimiter), quote = delimiter == ',' ? "\"" : "";
    write(dir / "t.csv", table_of("x" + d + "y" + d + "kind\n", 40, [&](int i) {
            return quote + number(i) + quote + d + quote + number(3 * i) + quote + d + (i % 2 ? "o" : "e");
          }));
    const std::string table = R"("type": "CSV", "path": "t.csv", "decimal": ",", "standardize": true, )";
    train_on(dir, table + R"("exclude": ["kind"], "target": "y", "standardize_target": true, "task": "regression")", kSquared);
    const std::string numbers = run(dir, "predict r t.csv --csv").out;
    CHECK(contains(numbers, "x" + d + "y" + d + "kind" + d + "prediction" + d + "error\n"));
    CHECK(numbers.find('.') == std::string::npos);
    const std::string last = last_line(numbers);
    CHECK(std::count(last.begin(), last.end(), ',') == (delimiter == ',' ? 7 : 3));
    train_on(dir, table + R"("exclude": ["y"], "target": "kind")", R"("loss": "CrossEntropyLoss")");
    const std::string shares = run(dir, "predict r t.csv --csv --probabilities").out;
    CHECK(shares.find('.') == std::string::npos);
    CHECK(contains(shares, d + quote + "0,"));
    CHECK(contains(run(dir, "predict r t.csv --json").out, "\"probability\":0."));
    train_on(dir, R"("type": "TimeSeries", "path": "t.csv", "decimal": ",", "columns": ["x", "y"], "window": 3)", kSquared);
    const std::string series = run(dir, "predict r t.csv --csv").out;
    CHECK(contains(series, "input;x;y;error\nt.csv;"));
    CHECK(series.find('.', series.find("t.csv;") + 2) == std::string::npos);
  }
}

TEST_CASE("targets of a series are in the order given, in arrays and with held-out data that names another") {
  const TempDir dir;
  write(dir / "s.csv", table_of("a,b,c\n", 120, [](int i) { return joined(i % 9, ',', 100 + i % 7, ',', 5000 + i % 5); }));
  const auto values = [&](const std::string& target, const std::string& held_out) {
    const std::string base = R"("type": "TimeSeries", "path": "s.csv", "columns": ["a", "b", "c"], "window": 4, "horizon": 2, )";
    write(
        dir / "c.json", R"({"output_dir": "r", "model": {"type": "MLP", "hidden": [4]}, "optimizer": {"type": "AdamW", "lr": 0.01},
      "train": {"epochs": 3}, "loss": "MSELoss", "data": {"root": ".", "loader": {"batch_size": 16},
      "train": {)" + base + R"("range": [0, 0.7], "target": )" +
                            target + R"(},
      "val": {)" + base + R"("range": [0.7, 1], "target": )" +
                            held_out + "}}}");
    const Ran r = run(dir, "train c.json --json --threads 1 --overwrite");
    REQUIRE_MESSAGE(r.code == 0, r.err);
    REQUIRE(run(dir, "predict r s.csv --out p.npy").code == 0);
    const double loss = r.json()["val.loss"];
    CHECK(run(dir, "eval r --json").json()["val.loss"].get<double>() == doctest::Approx(loss).epsilon(1e-5));
    return std::pair(read_npy(dir / "p.npy").to_vector<float>(), loss);
  };
  const auto [given, loss] = values(R"(["c", "a"])", R"(["c", "a"])");
  REQUIRE(given.size() == 4);
  for (const size_t i : {0, 2}) {
    CHECK(given[i] > 4000);
    CHECK(given[i + 1] < 1000);
  }
  const Json answer = run(dir, "predict r s.csv --json").json();
  CHECK(answer["columns"]["c"][1].get<float>() == doctest::Approx(given[2]));
  CHECK(values(R"(["c", "a"])", R"(["a", "c"])").second == doctest::Approx(loss));
  CHECK(values(R"(["a", "c"])", R"(["c", "a"])").first[0] < 1000);
}

TEST_CASE("predict reads a file with the title or the units of the training data, and one without") {
  const TempDir dir;
  const auto cells = [](int i) { return joined(i % 9, ',', i % 7, ',', i % 9 + 2 * (i % 7)); };
  const std::string head = "a,b,y\n", title = "measured in spring\n" + head, units = head + "m,s,kg\n";
  const auto lines_of = [](const Ran& r) { return std::count(r.out.begin(), r.out.end(), '\n'); };
  for (const int line : {1, 2}) {
    const std::string& start = line == 1 ? title : units;
    CAPTURE(start);
    const std::string skip = joined(R"("path": "t.csv", "skip_rows": [)", line, "], ");
    write(dir / "t.csv", table_of(start, 60, cells));
    write(dir / "plain.csv", table_of(head, 60, cells));
    train_on(dir, R"("type": "CSV", "target": "y", "task": "regression", )" + skip + R"("standardize": true)", kSquared);
    const Ran same = run(dir, "predict r t.csv"), plain = run(dir, "predict r plain.csv");
    CHECK_MESSAGE(same.code == 0, same.err);
    CHECK(contains(same.err, "skip_rows"));
    CHECK(plain.code == 0);
    CHECK(!contains(plain.err, "skip_rows"));
    CHECK(lines_of(same) == 60);
    CHECK(same.out.substr(same.out.rfind(' ')) == plain.out.substr(plain.out.rfind(' ')));
    train_on(dir, R"("type": "TimeSeries", "columns": ["a", "y"], "window": 5, )" + skip + R"("horizon": 1)", kSquared);
    const Ran series = run(dir, "predict r t.csv"), bare = run(dir, "predict r plain.csv");
    CHECK_MESSAGE(series.code == 0, series.err);
    CHECK(contains(series.err, joined("line ", line, " is left out, as by \"skip_rows\" of the run")));
    CHECK(series.out.substr(series.out.find(':')) == bare.out.substr(bare.out.find(':')));
  }
}

TEST_CASE("helps of predict do not send to keys of a config that it does not have") {
  const TempDir dir;
  const auto cells = [](int i) { return joined(i % 9 + 0.5, ',', i % 7, ',', i % 9 + 2 * (i % 7)); };
  write(dir / "t.csv", table_of("a,b,y\n", 60, cells));
  train_on(dir, R"("type": "CSV", "path": "t.csv", "target": "y", "task": "regression")", kSquared);
  const auto help = [&](const std::string& text) {
    write(dir / "new.csv", text);
    const Ran r = run(dir, "predict r new.csv");
    CHECK(r.code == 3);
    return r.err;
  };
  // The key with the run's value, and then what a new run may have.
  const std::string own = "help: predict reads files as the run does";
  for (const auto& [text, key] : {std::pair(std::string("a;b;y\n1,5;2;3\n2,5;3;4\n"), "\"decimal\": \".\""),
                                  {std::string("a,b,y\nM\xfcll,2,3\n"), "\"encoding\": \"utf-8\""},
                                  {std::string("a,b,y\n,2,3\n4,5,6\n"), "\"missing\": \"refuse\""},
                                  {std::string("a title\na,b,y\n1,2,3\n"), own.c_str()}}) {
    const std::string said = help(text);
    CHECK_MESSAGE(contains(said, own), said);
    CHECK_MESSAGE(contains(said, key), said);
    CHECK_MESSAGE(contains(said, "For the config of a new run: "), said);
  }
  CHECK(!contains(help("b,y\n1,2\n"), own));  // a column is missing: no key helps
}
