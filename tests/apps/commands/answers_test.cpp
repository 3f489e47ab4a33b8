// SPDX-License-Identifier: Apache-2.0
// In which units an answer is: training, eval, predict, compare and exported models name the same number.
#include <doctest/doctest.h>

#include <cmath>

#include "apps/use/predictor.h"
#include "framework/data/formats/npy.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

// The number behind a word: "rmse 3.25".
double number_after(const std::string& text, const std::string& word) {
  const size_t at = text.find(word + ' ');
  return at == std::string::npos ? NAN : std::stod(text.substr(at + word.size() + 1));
}

// The root mean square error of the answers that predict prints as JSON beside the truths.
double rmse_of_lines(const std::string& lines) {
  std::istringstream in(lines);
  double sum = 0, n = 0;
  for (std::string line; std::getline(in, line); ++n) {
    const Json answer = Json::parse(line);
    sum += std::pow(answer["values"][0].get<double>() - answer["truth"].get<double>(), 2);
  }
  return std::sqrt(sum / n);
}

// Trains c.json, whose rows for validation are all of val.csv, and sees that every command means one number by rmse. Returns it.
double one_rmse(const TempDir& dir) {
  const Ran trained = run(dir, "train c.json --quiet");
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  const Json evaluated = run(dir, "eval r --json").json();
  const double rmse = evaluated["val.rmse"];
  double at_best = NAN;
  std::ifstream lines(dir / "r/metrics.jsonl");
  for (std::string line; std::getline(lines, line);)
    if (const Json entry = Json::parse(line); entry["step"] == evaluated["step"] && entry.contains("val/rmse"))
      at_best = entry["val/rmse"];
  CHECK(at_best == doctest::Approx(rmse));
  CHECK(run(dir, "compare r r --json").json()["runs"][0]["values"]["val/rmse"].get<double>() == doctest::Approx(rmse));
  const Ran predicted = run(dir, "predict r val.csv --json");
  CHECK(rmse_of_lines(predicted.out) == doctest::Approx(rmse).epsilon(1e-4));
  CHECK(number_after(predicted.err, "rmse") == doctest::Approx(rmse).epsilon(1e-4));
  CHECK(number_after(predicted.err, "r2") == doctest::Approx(evaluated["val.r2"].get<double>()).epsilon(1e-3));
  REQUIRE(run(dir, "export r --to safetensors --out m.safetensors").code == 0);
  CHECK(number_after(run(dir, "predict m.safetensors val.csv").err, "rmse") == doctest::Approx(rmse).epsilon(1e-4));
  return rmse;
}

std::string config_with(const std::string& csv, const std::string& loss) {
  const std::string data = R"({"type": "CSV", "task": "regression", )" + csv + R"("path": ")";
  return R"({"version": 1, "name": "c", "output_dir": "r", "amp": false, "metrics": ["rmse", "mae", "r2"],
             "data": {"root": ".", "train": )" +
         data + R"(train.csv"}, "val": )" + data + R"(val.csv"},
                      "loader": {"batch_size": 8}},
             "model": {"type": "MLP", "hidden": [8]}, "loss": {"type": ")" +
         loss + R"("},
             "optimizer": {"type": "Adam", "lr": 0.02}, "train": {"epochs": 6}})";
}

}  // namespace

TEST_CASE("answers of a table of numbers are in its units everywhere") {
  const TempDir dir;
  for (const char* part : {"train", "val"}) {
    std::string rows = "a,b,price\n";
    for (int i = 0; i < 40; ++i) {
      const int a = i * 7 % 13 + (part[0] == 'v'), b = i * 5 % 9;
      rows += joined(a, ',', b, ',', 9000 + 300 * a - 70 * b, '\n');
    }
    write(dir / (std::string(part) + ".csv"), rows);
  }
  write(dir / "c.json", config_with(R"("standardize": true, "standardize_target": true, )", "MSELoss"));
  CHECK(one_rmse(dir) > 50);  // the column's deviation is 1150
  write(dir / "c.json", config_with(R"("standardize": true, )", "L1Loss"));
  fs::remove_all(dir / "r");
  fs::remove(dir / "m.safetensors");
  CHECK(one_rmse(dir) > 1000);
}

TEST_CASE("answers far from 0 keep their differences: metrics, digits and arrays") {
  const TempDir dir;
  std::vector<double> inputs, truths;
  for (const char* part : {"train", "val"}) {
    std::string rows = "a,b,meter\n";
    inputs.clear(), truths.clear();
    for (int i = 0; i < 40; ++i) {
      const int64_t a = i * 7 % 13 + (part[0] == 'v'), b = 7000000000 + i * 5 % 9, y = 50000000 + 3 * a - i * 5 % 9;
      rows += joined(a, ',', b, ',', y, '\n');
      inputs.insert(inputs.end(), {double(a), double(b)}), truths.push_back(double(y));
    }
    write(dir / (std::string(part) + ".csv"), rows);
  }
  write(dir / "c.json", config_with(R"("standardize": true, "standardize_target": true, )", "MSELoss"));
  const double rmse = one_rmse(dir);  // whatever float32 has of 5e7: steps of 4
  const auto mean_square = [](const std::vector<double>& values, const std::vector<double>& from) {
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i) sum += std::pow(values[i] - from[i], 2) / double(values.size());
    return sum;
  };
  // As text with the digits that differ.
  const Ran text = run(dir, "predict r val.csv");
  CHECK_MESSAGE(!contains(text.out, "e+07"), text.out);
  CHECK_MESSAGE(contains(text.out, joined("  (it is ", int64_t(truths[3]), ")\n")), text.out);
  // In arrays, also as inputs and truths.
  CHECK_MESSAGE(contains(run(dir, "predict r val.csv --out y.npy").err, "y.npy: float64 [40]"), "");
  const std::vector<double> answers = read_npy(dir / "y.npy").to_vector<double>();
  CHECK(std::sqrt(mean_square(answers, truths)) == doctest::Approx(rmse).epsilon(1e-4));
  write_npz(dir / "val.npz", {{"x", from_vector<double>(inputs, {40, 2})}, {"y", from_vector<double>(truths, {40})}});
  const Ran of_arrays = run(dir, "predict r val.npz");
  CHECK_MESSAGE(number_after(of_arrays.err, "rmse") == doctest::Approx(rmse).epsilon(1e-4), of_arrays.err);
  // As cells.
  run(dir, "predict r val.csv --out y.csv");
  std::istringstream lines(read(dir / "y.csv"));
  std::vector<double> cells;
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    line.pop_back();  // the last cell, "error", is empty
    cells.push_back(std::stod(line.substr(line.rfind(',') + 1)));
  }
  CHECK(std::sqrt(mean_square(cells, answers)) < 0.01);
}

TEST_CASE("answers of a table with two columns of one name, of which a number excludes one") {
  const TempDir dir;
  for (const char* part : {"train", "val"}) {
    std::string rows = "size,size,price\n";
    for (int i = 0; i < 40; ++i) rows += joined(900 + i * 11 % 17, ',', i * 7 % 13, ',', 40 + 3 * (i * 7 % 13), '\n');
    write(dir / (std::string(part) + ".csv"), rows);
  }
  write(dir / "c.json", config_with(R"("standardize": true, "exclude": [0], )", "MSELoss"));
  one_rmse(dir);
}

TEST_CASE("answers of a model whose outputs are logarithms are counts everywhere") {
  const TempDir dir;
  for (const char* part : {"train", "val"}) {
    std::string rows = "a,visits\n";
    for (int i = 0; i < 40; ++i) rows += joined(i % 8, ',', (i % 8) * 3 + i % 2, '\n');
    write(dir / (std::string(part) + ".csv"), rows);
  }
  write(dir / "c.json", config_with("", "PoissonNLLLoss"));
  const double rmse = one_rmse(dir);
  const double first = rmse_of_lines(run(dir, "predict r val.csv --json").out);
  CHECK(first == doctest::Approx(rmse).epsilon(1e-4));
}

TEST_CASE("answers: one function gives them") {
  DataForm numbers;
  numbers.scale = {.mean = 10, .std = 4};
  const Tensor y = tensor({-1.0, 0.5});
  CHECK(answers_of(y, {{"type", "MSELoss"}}, numbers).to_vector<double>() == std::vector<double>{6, 12});
  CHECK(answers_of(y, {{"type", "PoissonNLLLoss"}}, DataForm{}).to_vector<double>()[0] == doctest::Approx(std::exp(-1)));
  CHECK(answers_of(y, {{"type", "PoissonNLLLoss"}, {"log_input", false}}, DataForm{}).to_vector<double>()[0] == -1);
  CHECK(answers_of(y, {{"type", "BCEWithLogitsLoss"}}, DataForm{}).to_vector<double>()[1] == doctest::Approx(0.622459));
  DataForm classes;
  classes.classes = 2;
  const Tensor shares = answers_of(y.reshape({1, 2}), {{"type", "CrossEntropyLoss"}}, classes);
  CHECK(shares.sum().item<double>() == doctest::Approx(1));
  CHECK(answers_of(y, {{"type", "MultiMarginLoss"}}, classes).to_vector<double>() == std::vector<double>{-1, 0.5});
  // float64 keeps the digits of large units.
  numbers.scale = {.mean = 1.7e9, .std = 1};
  CHECK(answers_of(y.to(DType::f64), {{"type", "MSELoss"}}, numbers).to_vector<double>()[1] == 1700000000.5);
}
