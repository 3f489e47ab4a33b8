// SPDX-License-Identifier: Apache-2.0
// libhalfstep_predict.so, called by a program in C: client.c.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "apps/use/predictor.h"
#include "framework/base/sanitizers.h"
#include "framework/data/tables/csv.h"
#include "framework/io/weights/safetensors.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

fs::path library() { return program().parent_path() / "libhalfstep_predict.so"; }

// The client with arguments that a shell reads, in `dir`.
Ran client(const TempDir& dir, const std::string& arguments) {
  const fs::path of_tests = fs::read_symlink("/proc/self/exe").parent_path();
  const std::string command = "cd '" + dir.path().string() + "' && '" + (of_tests / "predict_client").string() + "' " + arguments +
                              " >out.txt 2>err.txt </dev/null";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(dir / "out.txt"), read(dir / "err.txt")};
}

std::vector<double> numbers_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<double> out;
  for (double v; in >> v;) out.push_back(v);
  return out;
}

void write_inputs(const fs::path& file, const Tensor& x) {
  std::ofstream out(file, std::ios::binary);
  out.write(static_cast<const char*>(x.const_data_ptr()), x.numel() * int64_t(size_of(x.dtype())));
}

void train(const TempDir& dir, const std::string& config) {
  const Ran trained = run(dir, "train " + config + " --quiet");
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
}

// The run of tests/compat with its data, trained anew.
void train_trees(const TempDir& dir) {
  const fs::path from = fs::path(halfstep_source_dir()) / "tests/compat/0.1.0";
  for (const char* file : {"train.csv", "val.csv", "trees.json"}) fs::copy(from / file, dir / file);
  train(dir, "trees.json");
}

// The client's outputs for x are those of a Predictor for batches of 64, bit by bit, also when eight threads ask for them.
void same_as_predictor(const TempDir& dir, const std::string& model, const Tensor& x) {
  write_inputs(dir / "x.bin", x);
  const std::string arguments = model + " x.bin " + std::to_string(x.size(0));
  const Ran ran = client(dir, "outputs " + arguments);
  REQUIRE_MESSAGE(ran.code == 0, ran.out);
  const std::vector<double> found = numbers_of(ran.out);
  const Predictor predictor(dir / model);
  std::vector<float> expected;
  predictor.in_batches(predictor.from_units(x), 64, [&](int64_t, const Tensor& outputs) {
    const auto part = outputs.to_vector<float>();
    expected.insert(expected.end(), part.begin(), part.end());
  });
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) CHECK(float(found[i]) == expected[i]);
  for (const std::string how : {"threads ", "same ", "fork "}) {
#ifdef HALFSTEP_ADDRESS_SANITIZER  // its search for leaks in the child of a fork finds what other threads of the parent held
    if (how == "fork ") continue;
#endif
    const Ran by_it = client(dir, how + arguments);
    CHECK_MESSAGE(by_it.code == 0, how, by_it.out);
  }
}

}  // namespace

TEST_CASE("the C interface: only its functions are symbols of the library") {
  if (std::system("nm --version >/dev/null 2>&1") != 0) return;
  const TempDir dir;
  REQUIRE(std::system(("nm -D --defined-only '" + library().string() + "' >'" + (dir / "symbols").string() + "'").c_str()) == 0);
  std::istringstream in(read(dir / "symbols"));
  std::set<std::string> found;
  for (std::string address, kind, name; in >> address >> kind >> name;) found.insert(name);
  CHECK(found == std::set<std::string>{"hs_version", "hs_open", "hs_close", "hs_describe", "hs_input", "hs_output", "hs_classes",
                                       "hs_class", "hs_run", "hs_error", "hs_threads"});
}

TEST_CASE("the C interface gives the answers of halfstep predict") {
  const TempDir dir;
  train_trees(dir);
  const Predictor model(dir / "trees");
  const CsvOptions options = std::get<TableForm>(model.form().source).options;
  const Tensor rows = read_csv_rows(dir / "val.csv", options).input;
  const Tensor mean = tensor(options.encoding->mean).to(DType::f32), std = tensor(options.encoding->std).to(DType::f32);
  const Tensor x = rows * std + mean;  // in the units of the file
  CHECK(amax(abs(model.from_units(x) - rows)).item() < 1e-5);
  write_inputs(dir / "x.bin", x);
  const Ran ran = client(dir, "answers trees x.bin " + std::to_string(x.size(0)));
  REQUIRE_MESSAGE(ran.code == 0, ran.out);
  const std::vector<double> shares = numbers_of(ran.out);
  const Ran predicted = run(dir, "predict trees val.csv --json --probabilities");
  std::istringstream lines(predicted.out);
  size_t at = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json answer = Json::parse(line);
    for (const auto& [name, share] : answer["probabilities"].items()) {
      REQUIRE(at < shares.size());
      CHECK(shares[at++] == doctest::Approx(share.get<double>()).epsilon(1e-4));
    }
  }
  CHECK(at == size_t(x.size(0)) * 3);

  // Numbers in the units of the file, each column's own.
  const auto v = [](int i) { return 100 + 10 * std::sin(i * 0.3); };
  const auto w = [](int i) { return 0.1 * std::cos(i * 0.3); };
  std::string values = "t,v,w\n";
  for (int i = 0; i < 60; ++i) values += joined(i, ',', std::to_string(v(i)), ',', std::to_string(w(i)), '\n');
  write(dir / "series.csv", values);
  write(dir / "series.json", R"({"version": 1, "name": "s", "output_dir": "series",
    "data": {"root": ".", "train": {"type": "TimeSeries", "path": "series.csv", "columns": ["v", "w"], "window": 8, "horizon": 2}},
    "model": {"type": "Sequential", "layers": [{"type": "Flatten"}, {"type": "Linear", "out_features": 4}]},
    "loss": {"type": "MSELoss"}, "optimizer": {"type": "Adam", "lr": 0.05}, "train": {"epochs": 5}})");
  train(dir, "series.json");
  const Predictor series(dir / "series");
  std::vector<float> window;
  for (int i = 52; i < 60; ++i) window.push_back(float(v(i))), window.push_back(float(w(i)));
  write_inputs(dir / "x.bin", tensor(window));
  const std::vector<double> next = numbers_of(client(dir, "answers series x.bin 1").out);
  const Json said = run(dir, "predict series series.csv --json").json()["values"];
  REQUIRE(next.size() == 4);
  for (size_t i = 0; i < 4; ++i) CHECK(next[i] == doctest::Approx(said[i].get<double>()).epsilon(1e-5));
  CHECK(client(dir, "answers series x.bin 1").err.empty());

  // A series of which float32 lacks the digits.
  std::string far = "t,v,w\n";
  for (int i = 0; i < 60; ++i) far += joined(i, ',', std::to_string(int64_t(2e9 + v(i))), ',', std::to_string(w(i)), '\n');
  write(dir / "series.csv", far);
  train(dir, "series.json --set output_dir=far");
  const Ran narrow = client(dir, "answers far x.bin 1");
  CHECK_MESSAGE(narrow.err.find("hs_run: float32 does not have the digits of \"v\" (mean 2e+09, deviation ") != std::string::npos,
                narrow.err);
  CHECK(narrow.err.find("hs_run: float32 does not have the digits of the answers") != std::string::npos);
}

TEST_CASE("the C interface: wrong arguments, files and inputs have codes and messages") {
  const TempDir dir;
  train_trees(dir);
  const fs::path damaged = dir / "damaged";
  fs::copy(Predictor(dir / "trees").checkpoint(), damaged, fs::copy_options::recursive);
  fs::resize_file(damaged / "model.safetensors", fs::file_size(damaged / "model.safetensors") - 8);
  const Ran ran = client(dir, "misuse trees damaged");
  CHECK_MESSAGE(ran.code == 0, ran.out, ran.err);
}

// Wide layers, whose weights are packed, in float32; and convolutions whose last batches are small.
TEST_CASE("the C interface: the first call gives the bits of all others, and equal samples of a call have equal bits") {
  const TempDir dir;
  manual_seed(2);
  write(dir / "wide.json", R"({"version": 1, "name": "w", "output_dir": "wide", "device": "cpu", "amp": false,
    "data": {"train": {"type": "Digits", "size": 64}, "loader": {"batch_size": 32}},
    "model": {"type": "Sequential", "layers": ["Flatten", {"type": "Linear", "out_features": 1024}, "ReLU",
      {"type": "Linear", "out_features": 256}, "Tanh", {"type": "Linear", "out_features": "auto"}]},
    "loss": "CrossEntropyLoss", "optimizer": {"type": "SGD", "lr": 0.01}, "train": {"epochs": 1}})");
  train(dir, "wide.json");
  write(dir / "conv.json", R"({"version": 1, "name": "c", "output_dir": "conv", "device": "cpu", "amp": false,
    "data": {"train": {"type": "Digits", "size": 64}, "loader": {"batch_size": 32}},
    "model": {"type": "Sequential", "layers": [
      {"type": "Conv2d", "out_channels": 32, "kernel_size": 3}, "ReLU", {"type": "MaxPool2d", "kernel_size": 2},
      {"type": "Conv2d", "out_channels": 64, "kernel_size": 3}, "ReLU", {"type": "MaxPool2d", "kernel_size": 4},
      "Flatten", {"type": "Linear", "out_features": "auto"}]},
    "loss": "CrossEntropyLoss", "optimizer": {"type": "SGD", "lr": 0.01}, "train": {"epochs": 1}})");
  train(dir, "conv.json");
  write_inputs(dir / "x.bin", rand({100, 1, 28, 28}));
  for (const char* model : {"wide", "conv"})
    for (const char* count : {"64", "70", "33", "1", "16", "100"})
      for (const char* how : {"same ", "state "}) {
        const Ran ran = client(dir, joined(how, model, " x.bin ", count));
        CHECK_MESSAGE(ran.code == 0, how, model, count, ran.out);
      }
  // Threads run it while the process ends.
  for (const char* model : {"wide", "conv"})
    for (int round = 0; round < 5; ++round) {
      const Ran ran = client(dir, joined("exit ", model, " x.bin 33"));
      CHECK_MESSAGE(ran.code == 7, model, ran.out);
    }
}

TEST_CASE("the C interface: threads on one model get the bits of one thread") {
  const TempDir dir;
  manual_seed(1);
  train_trees(dir);
  const Tensor soils = one_hot(remainder(arange(0, 70), 3).to(DType::i64), 3).to(DType::f32);
  same_as_predictor(dir, "trees", cat({randn({70, 2}), soils}, 1));  // more than one batch of 64

  // Convolutions in bfloat16.
  write(dir / "digits.json", R"({"version": 1, "name": "d", "output_dir": "digits", "device": "cpu", "amp": {"dtype": "bfloat16"},
    "data": {"train": {"type": "Digits", "size": 64}, "loader": {"batch_size": 32}},
    "model": {"type": "Sequential", "layers": [
      {"type": "Conv2d", "out_channels": 4, "kernel_size": 5}, "ReLU", {"type": "MaxPool2d", "kernel_size": 2},
      "Flatten", {"type": "Linear", "out_features": "auto"}]},
    "loss": "CrossEntropyLoss", "optimizer": {"type": "SGD", "lr": 0.01}, "train": {"epochs": 1}})");
  train(dir, "digits.json");
  same_as_predictor(dir, "digits", rand({3, 1, 28, 28}));

  // Tokens; layers that keep a state, and weights that are scaled down when they are used: calls wait for each other.
  std::string text;
  for (int i = 0; i < 400; ++i) text += "the quick brown fox "[size_t(i * i) % 20];
  write(dir / "text.txt", text);
  write(dir / "text.json", R"({"version": 1, "name": "t", "output_dir": "text", "device": "cpu",
    "data": {"root": ".", "train": {"type": "Text", "path": "text.txt", "seq_len": 6},
             "loader": {"batch_size": 4, "stateful": true}},
    "model": {"type": "Sequential", "layers": [
      {"type": "Embedding", "num_embeddings": "auto", "embedding_dim": 4, "max_norm": 0.5},
      {"type": "LSTM", "hidden_size": 5, "batch_first": true, "stateful": true},
      {"type": "Linear", "out_features": "auto"}]},
    "loss": "CrossEntropyLoss", "optimizer": {"type": "SGD", "lr": 0.01}, "train": {"epochs": 1}})");
  train(dir, "text.json");
  const int64_t vocabulary = Predictor(dir / "text").form().vocabulary;
  same_as_predictor(dir, "text", randint(0, vocabulary, {3, 6}));
}
