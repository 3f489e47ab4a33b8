// SPDX-License-Identifier: Apache-2.0
// What a run says of steps that go wrong, and what `halfstep doctor RUN` finds afterwards.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "apps/train/explainer.h"
#include "framework/io/checkpoint/checkpoint.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"
#include "tests/data/array_files.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// 64 samples of 8 numbers and what is to be found of them, in x.npy and y.npy.
void write_problem(const TempDir& dir, double scale = 1, int64_t bad_row = -1) {
  Generator g(5);
  const Tensor x = randn({64, 8}, {}, &g), y = mm(x, randn({8, 1}, {}, &g));
  const Tensor shown = x * scale;
  if (bad_row >= 0) shown.select(0, bad_row).select(0, 3).fill_(NAN);
  write(dir / "x.npy", halfstep::testing::npy(shown));
  write(dir / "y.npy", halfstep::testing::npy(y));
  write(dir / "run.json", R"({"name": "run", "output_dir": "out", "device": "cpu", "seed": 1,
    "model": {"type": "MLP", "hidden": [16, 16]}, "loss": "MSELoss", "optimizer": {"type": "SGD", "lr": 0.01},
    "data": {"train": {"type": "NPY", "root": ".", "input": "x.npy", "target": "y.npy"}, "loader": {"batch_size": 8}},
    "amp": {"dtype": "float16", "scaler": {"init_scale": 256}}, "train": {"epochs": 3}})");
}

}  // namespace

TEST_CASE("a NaN in the data is named with its sample, once, and the run continues without that step") {
  const TempDir dir;
  write_problem(dir, 1, 21);
  const Ran r = run(dir, "train run.json");
  CHECK(r.code == 0);
  CHECK_MESSAGE(has(r.out + r.err, "input_nonfinite: the inputs of the batch hold NaN"), r.out, r.err);
  CHECK(has(r.out + r.err, "(sample 21 of the data, counted from 0)"));
  const std::string all = r.out + r.err;
  CHECK(all.find("input_nonfinite") == all.rfind("input_nonfinite"));
  CHECK(has(all, "21 steps applied, 3 skipped"));
  CHECK(run(dir, "train run.json --overwrite --quiet --set logging.every=1").code == 0);
  CHECK(has(read(dir / "out/metrics.jsonl"), R"("cause":"input_nonfinite")"));
  CHECK_FALSE(has(all, "a gradient overflowed"));
  CHECK_FALSE(has(all, "was skipped: its loss was not finite"));  // that note is for what was not explained
}

TEST_CASE("a measured first scale skips no step and leaves nothing behind") {
  const TempDir dir;
  write_problem(dir);
  Generator g(6);
  write(dir / "y.npy", halfstep::testing::npy(randn({64, 1}, {}, &g) * 3000));
  const std::string train = "train run.json --json --overwrite --set optimizer.lr=1e-9 --set amp.scaler.init_scale=";
  CHECK(run(dir, train + "65536").json()["steps_skipped"].get<int>() > 3);
  for (const std::string steps : {"", " --set train.accumulate_steps=2"}) {
    const Ran measured = run(dir, train + "auto" + steps);
    CAPTURE(measured.err);
    REQUIRE(measured.code == 0);
    CHECK(measured.json()["steps_skipped"] == 0);
    const double scale = measured.json()["scale"];
    CHECK(scale < 8192);
    CHECK(has(measured.err, joined("loss scale from ", scale, " (measured)")));
    const std::string want = read(latest_checkpoint(dir / "out").value() / "model.safetensors");
    CHECK_FALSE(want.empty());
    REQUIRE(run(dir, train + joined(scale) + steps).code == 0);
    CHECK(read(latest_checkpoint(dir / "out").value() / "model.safetensors") == want);
  }
  CHECK_FALSE(has(run(dir, train + "auto --set amp.dtype=bfloat16").err, "(measured)"));
}

TEST_CASE("explaining changes no bit of a run") {
  const TempDir dir;
  write_problem(dir, 1, 21);
  CHECK(run(dir, "train run.json").code == 0);
  CHECK(run(dir, "train run.json --set diagnostics.explain=false --set output_dir=plain").code == 0);
  CHECK(read(dir / "out/step-00000024/model.safetensors") == read(dir / "plain/step-00000024/model.safetensors"));
}

TEST_CASE("inputs that float16 cannot hold: what would help was tried, and a run that learns nothing ends with code 4") {
  const TempDir dir;
  write_problem(dir, 1e6);
  const Ran r = run(dir, "train run.json");
  CHECK(r.code == 4);
  CHECK_MESSAGE(has(r.out + r.err, "input_range: float16 cannot hold the inputs"), r.out, r.err);
  CHECK(has(r.out + r.err, R"("amp": {"dtype": "bfloat16"}   tried: good)"));
  CHECK(has(r.err, "the explanation above has the evidence"));
}

TEST_CASE("train.detect_anomaly ends the run at the first fault, not at a scale that is too high") {
  const TempDir dir;
  write_problem(dir, 1, 21);
  const std::string strict = "train run.json --set train.detect_anomaly=true";
  const Ran bad = run(dir, strict);
  CHECK(bad.code == 4);
  CHECK_MESSAGE(has(bad.err, "train.detect_anomaly ends the run"), bad.err);
  write_problem(dir);
  const Ran high = run(dir, strict + " --set amp.scaler.init_scale=1e9 --overwrite");
  CHECK(high.code == 0);
  CHECK_MESSAGE(has(high.out, "overflow_scale"), high.out);
}

TEST_CASE("weights that are not finite are never saved: the run ends with code 4, and the doctor finds the step") {
  const TempDir dir;
  write(dir / "run.json", R"({"name": "run", "output_dir": "out", "device": "cpu",
    "model": {"type": "Sequential", "layers": [{"type": "Embedding", "num_embeddings": 9, "embedding_dim": 8}, "Flatten",
              {"type": "Linear", "out_features": 9}]},
    "loss": "CrossEntropyLoss", "optimizer": {"type": "AdamW", "lr": 0.001, "eps": 0},
    "data": {"train": {"type": "NPY", "root": ".", "input": "x.npy", "target": "y.npy", "tokens": true, "vocab_size": 9,
                       "classes": 9}, "loader": {"batch_size": 8, "shuffle": false}},
    "amp": {"dtype": "bfloat16"}, "train": {"epochs": 1}})");
  const auto labels = [](int64_t most) {
    std::string bytes;
    for (int i = 0; i < 32; ++i) bytes += halfstep::testing::little(uint64_t(i % most), 8);
    return bytes;
  };
  write(dir / "x.npy", halfstep::testing::npy("<i8", "(32, 1)", labels(4)));
  write(dir / "y.npy", halfstep::testing::npy("<i8", "(32,)", labels(4)));
  const Ran r = run(dir, "train run.json");
  CHECK(r.code == 4);
  CHECK_MESSAGE(has(r.err, "0.weight is not finite: 40 NaN"), r.err);
  CHECK(list_checkpoints(dir / "out").empty());
  const Ran found = run(dir, "doctor out");
  CHECK(found.code == 0);
  CHECK_MESSAGE(has(found.out, "step 1 (epoch 1)"), found.out);
  CHECK(has(found.out, "optimizer_blowup: gradients were finite, and the weights were not after the update"));
}

TEST_CASE("the doctor of a run replays it from its checkpoint, finds the step, and tries lower rates") {
  const TempDir dir;
  write_problem(dir);
  const Ran r = run(dir, "train run.json --set amp=false --set optimizer.lr=3");
  CHECK(r.code == 4);
  CHECK_MESSAGE(has(r.out + r.err, "divergence: "), r.out, r.err);
  CHECK(has(r.out + r.err, "halfstep doctor out tries lower rates"));
  CHECK_FALSE(has(r.out + r.err, "weights_broken"));
  const Ran found = run(dir, "doctor out --json");
  CHECK(found.code == 0);
  const Json fault = found.json()["fault"];
  CHECK(fault["cause"] == "optimizer_blowup");
  CHECK(fault["remedies"][0]["tried"] == "good");
  const std::string rate = fault["remedies"][0]["text"];
  CHECK_MESSAGE(has(rate, R"("optimizer": {"lr": 0.)"), rate);

  CHECK(run(dir, "train run.json --set amp=false --overwrite").code == 0);
  const Ran healthy = run(dir, "doctor out --step 20");
  CHECK(healthy.code == 6);
  CHECK_MESSAGE(has(healthy.out, "nothing found in 4 steps, 17 to 20"), healthy.out);
  CHECK_FALSE(has(healthy.out, "differs"));
  const Ran whole = run(dir, "doctor out");
  CHECK(whole.code == 6);
  CHECK(has(whole.out, "--step N looks at an earlier step"));
  fs::remove_all(dir / "out/step-00000016");
  const Ran start = run(dir, "doctor out --step 24");  // past the second epoch's end
  CHECK_MESSAGE(has(start.out, "replays from the start"), start.out);
  CHECK(has(start.out, "nothing found in 24 steps, 1 to 24"));
  CHECK_FALSE(has(start.out, "differs"));
}

TEST_CASE("a replay that does not meet the run's own checkpoints says so") {
  const TempDir dir;
  write_problem(dir);
  CHECK(run(dir, "train run.json --set checkpoint.keep_last=0").code == 0);
  write_problem(dir, 1.5);                                                      // other data than the run was trained on
  const Ran r = run(dir, "doctor out --step 16 --set data.train.input=x.npy");  // without --set it is refused
  CHECK_MESSAGE(has(r.out, "differs: 0.weight at step 16 is not what the run's checkpoint has"), r.out);
}

TEST_CASE("what the doctor cannot read is refused with help") {
  const TempDir dir;
  fs::create_directory(dir / "empty");
  CHECK(run(dir, "doctor empty").code == 3);
  write_problem(dir);
  CHECK(run(dir, "doctor run.json --step 3").code == 2);
  CHECK(run(dir, "train run.json").code == 0);
  CHECK(run(dir, "doctor out --step 0").code == 2);
}

TEST_CASE("a run whose steps were all skipped from some point on is replayed from before that point") {
  const TempDir dir;
  write_problem(dir);
  CHECK(run(dir, "train run.json --set optimizer.lr=1e10 --set checkpoint.keep_last=0").code == 4);
  const Ran found = run(dir, "doctor out");
  CHECK_MESSAGE(found.code == 0, found.out, found.err);
  CHECK_MESSAGE(has(found.out, "step 2 (epoch 2, attempt 9: skipped ones are no steps)\n  cause     divergence"), found.out);
}

TEST_CASE("doctor RUN --step explains that step, whatever went wrong before it, and knows where the run ends") {
  const TempDir dir;
  write_problem(dir, 1, 21);
  CHECK(run(dir, "train run.json --set checkpoint.keep_last=0").code == 0);
  // The sample comes once in each of three epochs of eight steps.
  const Json all = run(dir, "doctor out/step-00000007 --json").json();
  REQUIRE(all["fault"].is_object());
  const int64_t second = all["fault"]["step"];
  fs::remove_all(dir / "out");
  CHECK(run(dir, "train run.json --set checkpoint.every=never").code == 0);
  const Ran of_second = run(dir, joined("doctor out --step ", second));
  CHECK_MESSAGE(has(of_second.out, joined("step ", second, " (epoch 2, attempt ", second + 1,
                                          ": skipped ones are no steps)\n  cause     input_nonfinite")),
                of_second.out);
  const Ran late = run(dir, "doctor out --step 400");
  CHECK(late.code == 2);
  CHECK_MESSAGE(has(late.err, "the run has no step 400: it ends at step 21"), late.err);
}
