// SPDX-License-Identifier: Apache-2.0
// The doctor names each planted fault, and is quiet about a healthy config.
#include "apps/examine/doctor.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "apps/catalog/datasets.h"
#include "apps/train/plan.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

// A data set whose samples take their time.
class SlowData : public Dataset {
 public:
  explicit SlowData(int64_t ms) : ms_(ms) {}
  int64_t size() const override { return 64; }
  Shape input_shape() const override { return {8}; }
  Shape target_shape() const override { return {}; }
  int64_t classes() const override { return 3; }
  Batch batch(std::span<const int64_t> indices) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms_));
    return {zeros({int64_t(indices.size()), 8}), zeros({int64_t(indices.size())}, {.dtype = DType::i64})};
  }
  std::string describe() const override { return "SlowData"; }

 private:
  int64_t ms_;
};
HALFSTEP_REGISTER_DATASET(SlowData, arg<int64_t>(integer("ms", 20, "a batch takes").at_least(0)));

const Finding* find(const std::vector<Finding>& all, const std::string& where, const std::string& what) {
  const auto it = std::find_if(all.begin(), all.end(),
                               [&](const Finding& f) { return f.where == where && f.what.find(what) != std::string::npos; });
  return it == all.end() ? nullptr : &*it;
}

constexpr const char* kSick = R"({
  "model": {"type": "Sequential", "layers": ["Flatten", {"type": "Linear", "out_features": 1001, "name": "wide"}, "ReLU", "Softmax",
            {"type": "Linear", "out_features": 520}, {"type": "Linear", "out_features": 3}, "Sigmoid"]},
  "loss": "MSELoss", "optimizer": "Adam", "amp": {"dtype": "float16", "scaler": {"enabled": false}}, "device": "cuda",
  "data": {"train": {"type": "Random", "input_shape": [1, 28, 28], "target_shape": [3], "num_batches": 8},
    "loader": {"batch_size": 4}},
  "train": {"epochs": 1}})";

}  // namespace

TEST_CASE("the doctor names planted faults") {
  TempDir dir;
  const Config config = load_config(write(dir / "sick.json", kSick));
  const auto all = examine(config, {.probe = false, .memory = 20e6});
  for (const Finding& f : all) {
    CHECK_FALSE(f.remedy.empty());
    CHECK_FALSE(f.gain.empty());
  }
  CHECK(find(all, "amp.scaler.enabled", "float16 without a gradient scaler"));
  const Finding* wide =
      find(all, "model.layers.1", "wide, Linear(in_features=784, out_features=1001, bias=True) makes 1001 features");
  REQUIRE(wide);
  CHECK(wide->remedy == "make it 1008 out");
  CHECK(find(all, "model.layers.4", "takes 1001"));
  CHECK(find(all, "model.layers.3", "falls to float32: softmax: its result is float32 in a region; the next layer casts back"));
  CHECK(find(all, "model.layers.6", "MSELoss is computed on the outputs of Sigmoid, rounded to float16"));
  CHECK(find(all, "data.loader.batch_size", "4 samples make products of 4 rows"));
  CHECK(find(all, "data.loader.batch_size", "of the 20.0 MB that cuda:0 has"));
  CHECK(find(all, "data.loader.batch_size", "starting them takes"));
}

TEST_CASE("the doctor advises the precision that this machine computes a step faster in") {
  // Products and copies of a machine that others are not.
  struct Machine : MachineRates {
    explicit Machine(double gain) : MachineRates(Device::cpu), gain_of_16_bits(gain) {}
    double product_seconds(DType dtype, int64_t m, int64_t n, int64_t k, int64_t batch) override {
      return 2e-11 * double(m) * double(n) * double(k) * double(batch) / (is_half(dtype) ? gain_of_16_bits : 1);
    }
    double bytes_per_second() override { return 2e10; }
    double gain_of_16_bits;
  } fast(4), slow(0.5), equal(1);
  TempDir dir;
  const auto file = write(dir / "mlp.json", R"({
    "model": {"type": "MLP", "hidden": [512, 512]}, "loss": "CrossEntropyLoss", "optimizer": "SGD", "device": "cpu", "amp": false,
    "data": {"train": {"type": "Random", "input_shape": [512], "classes": 16, "num_batches": 1}, "loader": {"batch_size": 256}},
    "train": {"epochs": 1}})");
  const Config plain = load_config(file), mixed = load_config(file, {.sets = {"amp=true"}});
  const auto of = [](const Config& config, MachineRates& rates) { return examine(config, {.probe = false, .rates = &rates}); };
  const std::vector<Finding> all = of(plain, fast);
  const Finding* f = find(all, "amp", "this cpu computes it faster in mixed precision with bfloat16");
  REQUIRE(f);
  CHECK(f->remedy == R"("amp": {"enabled": true})");
  CHECK(f->gain.find("about 3") == 0);
  CHECK(find(of(mixed, slow), "amp", "computes it faster in float32"));
  CHECK_FALSE(find(of(plain, slow), "amp", ""));
  CHECK_FALSE(find(of(mixed, fast), "amp", ""));
  CHECK_FALSE(find(of(plain, equal), "amp", ""));
  CHECK_FALSE(find(of(mixed, equal), "amp", ""));
}

TEST_CASE("the largest batch that fits does fit, and one a little larger does not") {
  TempDir dir;
  const std::string text =
      R"({"model": {"type": "MLP", "hidden": [256]}, "loss": "CrossEntropyLoss", "optimizer": "SGD", "device": "cpu",
    "data": {"train": {"type": "Random", "input_shape": [256], "classes": 16, "num_batches": 1}, "loader": {"batch_size": 65536}},
    "train": {"epochs": 1}})";
  const Config config = load_config(write(dir / "large.json", text));
  const double memory = 20e6;
  const auto all = examine(config, {.probe = false, .memory = memory});
  const Finding* f = find(all, "data.loader.batch_size", "of the 20.0 MB that cpu has");
  REQUIRE(f);
  const int64_t most = std::stoll(f->remedy.substr(f->remedy.find_first_of("0123456789")));
  CHECK(double(plan_step(config, most).later_steps.peak) <= 0.9 * memory);
  CHECK(double(plan_step(config, most + most / 20).later_steps.peak) > 0.9 * memory);
}

TEST_CASE("the doctor finds a batch that fits for a model with batch normalisation, which takes no single sample") {
  TempDir dir;
  const std::string text =
      R"({"model": {"type": "Sequential", "layers": [{"type": "Linear", "out_features": 64}, {"type": "BatchNorm1d"},
                                                  {"type": "Linear", "out_features": 4}]},
    "loss": "CrossEntropyLoss", "optimizer": "SGD", "device": "cpu",
    "data": {"train": {"type": "Random", "input_shape": [16], "classes": 4, "num_batches": 1}, "loader": {"batch_size": 4096}},
    "train": {"epochs": 1}})";
  const Config config = load_config(write(dir / "norm.json", text));
  const auto all = examine(config, {.probe = false, .memory = 1e6});
  const Finding* f = find(all, "data.loader.batch_size", "of the 1.0 MB that cpu has");
  REQUIRE(f);
  const int64_t most = std::stoll(f->remedy.substr(f->remedy.find_first_of("0123456789")));
  CHECK(most >= 2);
  CHECK(double(plan_step(config, most).later_steps.peak) <= 0.9e6);
}

TEST_CASE("the doctor measures whether data comes in time") {
  TempDir dir;
  const std::string text =
      R"({"model": {"type": "MLP", "hidden": [16]}, "loss": "CrossEntropyLoss", "optimizer": "SGD", "device": "cpu",
    "data": {"train": "SlowData", "loader": {"batch_size": 16}}, "train": {"epochs": 1}})";
  const auto file = write(dir / "slow.json", text);
  const Finding* f = nullptr;
  const auto all = examine(load_config(file));
  f = find(all, "data.loader.num_workers", "ms to come and a step");
  REQUIRE(f);
  CHECK(f->what.find("one after the other") != std::string::npos);
  CHECK_FALSE(find(examine(load_config(file), {.probe = false}), "data.loader.num_workers", ""));
}

TEST_CASE("the doctor is quiet about the configs that come with the program") {
  for (const char* name : {"digits_mlp.json", "mnist_mlp.json"}) {
    CAPTURE(name);
    const auto all = examine(load_config(configs() / name, {.sets = {"device=cpu"}}), {.probe = false});
    for (const Finding& f : all) MESSAGE(f.where << ": " << f.what);
    CHECK(all.empty());
  }
}

TEST_CASE("plan and doctor from the command line") {
  TempDir dir;
  write(dir / "sick.json", kSick);
  const Ran plan = run(dir, "plan sick.json --out plan.json");
  CAPTURE(plan.err);
  CHECK(plan.code == 0);
  CHECK(plan.out.find("computes in float16 in a region") != std::string::npos);
  const Json written = Json::parse(read(dir / "plan.json"));
  CHECK(written["calls"].size() > 10);
  CHECK(written["amp"] == "float16");
  CHECK(written["flops_in_16_bits"] == 1.0);
  CHECK(written["memory"]["first_step"]["peak_bytes"].get<int64_t>() > 0);
  CHECK(run(dir, "plan sick.json --json").out == read(dir / "plan.json"));
  const Ran doctor = run(dir, "doctor sick.json --no-probe --json --memory 80GB");
  CHECK(doctor.code == 0);
  CHECK(doctor.json()["findings"].size() >= 5);
  CHECK(run(dir, "plan absent.json").code == 2);
  const Ran no_data = run(dir, "plan sick.json --set 'data.train={\"type\": \"CSV\", \"path\": \"absent.csv\"}'");
  CHECK(no_data.code == 3);
  CHECK(no_data.err.find("the shapes of the data are not known") != std::string::npos);
}
