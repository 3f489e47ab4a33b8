// SPDX-License-Identifier: Apache-2.0
// `halfstep doctor RUN`: what it refuses to compute again, where it ends, and the remedies that it tries.
#include <doctest/doctest.h>

#include "framework/io/checkpoint/checkpoint.h"
#include "framework/ops/ops.h"
#include "tests/apps/tiny_run.h"
#include "tests/data/array_files.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

// 64 samples in x.npy and y.npy. `changed`: in the last of them.
void write_data(const TempDir& dir, double changed = 0) {
  Generator g(5);
  const Tensor x = randn({64, 8}, {}, &g), y = mm(x, randn({8, 1}, {}, &g));
  if (changed != 0) x.select(0, 63).select(0, 7).fill_(changed);
  write(dir / "x.npy", halfstep::testing::npy(x));
  write(dir / "y.npy", halfstep::testing::npy(y));
}
void write_run(const TempDir& dir, const std::string& optimizer = R"({"type": "SGD", "lr": 0.01})",
               const std::string& amp = "false") {
  write_data(dir);
  write(dir / "run.json", R"({"name": "run", "output_dir": "out", "device": "cpu", "seed": 1,
    "model": {"type": "MLP", "hidden": [16, 8]}, "loss": "MSELoss", "optimizer": )" +
                              optimizer + R"(, "amp": )" + amp + R"(,
    "data": {"train": {"type": "NPY", "root": ".", "input": "x.npy", "target": "y.npy"}, "loader": {"batch_size": 8}},
    "train": {"epochs": 4}, "checkpoint": {"every": "2 epochs"}, "logging": {"every": 1}})");
}

}  // namespace

TEST_CASE("data that has changed: a resumed run warns, and a replay is refused") {
  const TempDir dir;
  write_run(dir);
  REQUIRE(run(dir, "train run.json --quiet").code == 0);
  CHECK(run(dir, "doctor out --step 16").code == 6);  // nothing is wrong with it
  const Ran same = run(dir, "train run.json --quiet --resume out/step-00000016");
  CHECK(same.code == 0);
  CHECK_MESSAGE(same.err == "", same.err);
  write_data(dir, 3);
  for (const std::string from : {"out --step 18", "out --step 3"}) {  // from a checkpoint, and from the start
    const Ran doctor = run(dir, "doctor " + from);
    CHECK(doctor.code == 3);
    CHECK_MESSAGE(contains(doctor.err, "[doctor] data.train must have the samples that the run had, got others: "), doctor.err);
  }
  CHECK(run(dir, R"(doctor out --step 18 --set data.train.input=x.npy)").code == 6);  // as was asked for
  const Ran other = run(dir, "train run.json --quiet --resume out/step-00000016");
  CHECK(other.code == 0);
  CHECK_MESSAGE(contains(other.err, "data.train has other samples than when the checkpoint was written"), other.err);
  // The steps since then are of the data that there is now, and those before are not.
  CHECK(run(dir, "doctor out --step 20").code == 6);
  CHECK(run(dir, "doctor out --step 3").code == 3);
}

TEST_CASE("a run that another process trains is replayed to the last line of its metrics, and is left alone") {
  const Folder dir;
  Child child(dir,
              "train tiny.json --quiet --threads 1 --set train.epochs=4000 --set checkpoint.every=5 --set checkpoint.keep_last=2");
  REQUIRE(child.until([&] { return fs::exists(dir / "r/metrics.jsonl") && lines_of(dir / "r/metrics.jsonl").size() > 20; }));
  child.send(SIGSTOP);
  const auto before = snapshot(dir / "r");
  const Ran doctor = run(dir, "doctor r");
  CAPTURE(doctor.out);
  CHECK_MESSAGE(doctor.code == 6, doctor.err);
  CHECK(contains(doctor.out, "the run has not ended: process "));
  CHECK(contains(doctor.out, "its metrics have come to step "));
  CHECK(contains(doctor.out, "nothing found in "));
  const Ran json = run(dir, "doctor r --json");
  const int64_t last = json.json()["last"];
  CHECK(last <= list_checkpoints(dir / "r").back() + 5);
  CHECK(contains(json.json()["still_running"].get<std::string>(), " trains it"));
  const Ran later = run(dir, "doctor r --step 11000");
  CHECK(later.code == 2);
  CHECK_MESSAGE(contains(later.err, "[doctor] --step must be one that the run has taken, got 11000"), later.err);
  CHECK(run(dir, "doctor r --step 3").code == 6);
  CHECK(snapshot(dir / "r") == before);
  child.send(SIGCONT);
  CHECK(child.end(SIGTERM) == 75);
  CHECK_FALSE(contains(run(dir, "doctor r").out, "has not ended"));
}

TEST_CASE("remedies of weights that were driven away: the rate first, and eps only where it is 0") {
  const TempDir dir;
  write_run(dir, R"({"type": "Adam", "lr": 1e38})");
  CHECK(run(dir, "train run.json --quiet").code == 4);
  const Ran rate = run(dir, "doctor out");
  CAPTURE(rate.out);
  CHECK(contains(rate.out, "optimizer_blowup"));
  CHECK_FALSE(contains(rate.out, "optimizer.eps"));
  // Found over more steps than the one that went wrong, and written as people write numbers.
  CHECK(contains(rate.out, R"(remedy    "optimizer": {"lr": 0.01}   tried: good, worst loss )"));
  CHECK(contains(rate.out, " in steps 1 to 20"));

  write_run(dir, R"({"type": "Adam", "lr": 0.01, "eps": 0})");
  CHECK(run(dir, R"(train run.json --quiet --set output_dir=eps --set 'model.hidden=[64, 64]')").code == 4);
  const Ran eps = run(dir, "doctor eps");
  CAPTURE(eps.out);
  CHECK(contains(eps.out, R"(remedy    "optimizer": {"eps": 1e-8}   tried: good, worst loss )"));
}

TEST_CASE("a checkpoint of weights that were driven away: the run's usual loss shows it, and rates are tried from the start") {
  const TempDir dir;
  write_run(dir, R"({"type": "SGD", "lr": 1e6})", R"({"dtype": "float16", "scaler": {"init_scale": 256}})");
  CHECK(run(dir, "train run.json --quiet --set checkpoint.every=1").code == 4);
  REQUIRE(list_checkpoints(dir / "out") == std::vector<int64_t>{1});
  const Ran doctor = run(dir, "doctor out");
  CAPTURE(doctor.out);
  CHECK(contains(doctor.out, "replays from out/step-00000001"));
  CHECK(contains(doctor.out, "optimizer_blowup: the steps before drove the weights away"));
  CHECK(contains(doctor.out, R"(remedy    "optimizer": {"lr": )"));
  CHECK(contains(doctor.out, " in steps 1 to 21"));
  CHECK_FALSE(contains(doctor.out, "\"amp\": {"));
}

TEST_CASE("a diagnosis names layers as the config does") {
  const TempDir dir;
  write_run(dir, R"({"type": "SGD", "lr": 1e25})");
  const Ran train = run(dir, "train run.json --quiet");
  CHECK(train.code == 4);
  CAPTURE(train.err);
  CHECK(contains(train.err, "values left the range of float32 in layer 2"));
  CHECK(contains(train.err, "  where     model.hidden[1], Linear(in_features=16, out_features=8, bias=True)\n"));
  const Ran doctor = run(dir, "doctor out");
  CAPTURE(doctor.out);
  CHECK(contains(doctor.out, "  where     model.hidden[1], Linear("));
  CHECK(contains(run(dir, "doctor out --json").json()["fault"]["place"].get<std::string>(), "model.hidden[1]"));

  write_run(dir, R"({"type": "SGD", "lr": 0.01})", R"({"dtype": "float16", "scaler": {"init_scale": 1}})");
  const std::string layers = R"([{"type": "MLP", "hidden": [4], "out_features": 5}, {"type": "Linear", "out_features": 1, "init":
    [{"match": "weight", "type": "constant", "val": 1e5}]}])";
  const Ran range =
      run(dir, R"(train run.json --quiet --overwrite --set 'model={"type": "Sequential", "layers": )" + layers + "}'");
  CAPTURE(range.err);
  CHECK(contains(range.err, "weight_range: float16 cannot hold the values of 1.weight"));
  CHECK(contains(range.err, "  where     model.layers.1, Linear(in_features=5, out_features=1, bias=True)\n"));
}
