// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <csignal>
#include <cstdio>

#include "framework/io/checkpoint/checkpoint.h"
#include "tests/apps/small_run.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

TEST_CASE("training: JSON result, files of the run, no run is overwritten") {
  TempDir dir;
  write(dir / "small.json", kSmall);
  const Ran first = run(dir, "train small.json --json --threads 1");
  CAPTURE(first.err);
  REQUIRE(first.code == 0);
  const Json j = first.json();
  for (const char* key : {"val.accuracy", "val.loss", "train.loss", "epochs", "steps_applied", "steps_skipped", "seconds",
                          "samples_per_second", "peak_bytes", "scale", "device", "dtype"}) {
    CAPTURE(key);
    CHECK(j.contains(key));
  }
  CHECK(j["steps_applied"].get<int>() + j["steps_skipped"].get<int>() == 24);
  CHECK(j["steps_skipped"].get<int>() > 0);
  CHECK(j["dtype"] == "float16");
  CHECK(contains(first.err, "overflow_scale: the gradients do not fit into float16"));
  CHECK(fs::exists(dir / "runs/small/config.resolved.json"));
  CHECK(contains(read(dir / "runs/small/metrics.jsonl"), "\"val/accuracy\""));

  const Ran again = run(dir, "train small.json");
  CHECK(again.code == 2);
  CHECK(contains(again.err, "[train] runs/small already holds a run\nhelp: --resume auto continues it, --overwrite starts over"));
  CHECK(run(dir, "train small.json --dry-run").code == 0);
  const std::string before = identity(dir / "runs/small");
  CHECK(run(dir, "train small.json --overwrite --quiet --threads 2").code == 0);
  CHECK(identity(dir / "runs/small") == before);  // whatever the threads

  const Ran ev = run(dir, "eval runs/small --json");
  CAPTURE(ev.err);
  REQUIRE(ev.code == 0);
  CHECK(ev.json()["val.accuracy"] == j["val.accuracy"]);
  CHECK(ev.json()["val.loss"] == j["val.loss"]);
  CHECK(run(dir, "eval runs/small/best --split train").code == 0);
  const Ran none = run(dir, "eval runs/small --split test");
  CHECK(none.code == 2);
  CHECK(contains(none.err, "[eval] the run must have data.test, but has none"));
}

TEST_CASE("a run says where its model is and what to type next; a finished one has nothing left to do") {
  TempDir dir;
  write(dir / "small.json", kSmall);
  const Ran done = run(dir, "train small.json");
  CAPTURE(done.out);
  REQUIRE(done.code == 0);
  const size_t at = done.out.find("\nbest model: runs/small/best, epoch ");
  REQUIRE(at != std::string::npos);
  CHECK(at > done.out.find("\ndone: "));
  CHECK(contains(done.out.substr(at), ", val/accuracy 0."));
  CHECK(done.out.ends_with("\nnext: halfstep predict runs/small FILE...\n"));
  CHECK(run(dir, "eval runs/small/best").code == 0);

  const Ran again = run(dir, "train small.json --resume auto");
  CAPTURE(again.out);
  CHECK(again.code == 0);
  CHECK(contains(again.out, joined(" %, ended at step ", list_checkpoints(dir / "runs/small").back(),
                                   "; a larger train.epochs continues it\n")));
  CHECK(contains(again.out, "\nnothing left to do: val accuracy "));
  CHECK(contains(again.out, "best model: runs/small/best, epoch "));
  CHECK_FALSE(contains(again.out, "done: "));

  const Ran without = run(dir, "train small.json --set data.val=null --set output_dir='my run'");
  CHECK(contains(without.out, joined("\nmodel: step ", list_checkpoints(dir / "my run").back(),
                                     " in my run\nnext: halfstep predict 'my run' FILE...\n")));
  CHECK_FALSE(contains(run(dir, "train small.json --set checkpoint.every=never --set output_dir=none").out, "next: "));
}

TEST_CASE("train --json has the values of the best beside the last, and none of other data") {
  TempDir dir;
  write(dir / "small.json", kSmall);
  const Json j = run(dir, "train small.json --json --set checkpoint.monitor=val/loss --set optimizer.lr=0.3").json();
  REQUIRE(j["best"].is_object());
  CHECK(j["best"]["val.loss"].get<double>() <= j["val.loss"].get<double>());
  CHECK(j["best"]["val.accuracy"].is_number());
  CHECK(j["best"]["epoch"].is_number_integer());
  CHECK(run(dir, "eval runs/small/best --json").json()["step"] == j["best"]["step"]);
  CHECK(run(dir, "train small.json --overwrite --json --set data.val=null").json()["val.accuracy"].is_null());

  std::string rows = "a,b\n";
  for (int i = 0; i < 20; ++i) rows += joined(i, ',', 3 * i, '\n');
  write(dir / "t.csv", rows);
  write(dir / "t.json", R"({"name": "t", "device": "cpu", "data": {"root": ".", "task": "regression",
    "train": {"type": "CSV", "path": "t.csv"}, "val": {"type": "CSV", "path": "t.csv"}, "loader": {"batch_size": 8}},
    "model": {"type": "Linear", "out_features": "auto"}, "loss": "MSELoss", "metrics": ["rmse"],
    "optimizer": {"type": "SGD", "lr": 1e-4}, "train": {"epochs": 2}})");
  const Json numbers = run(dir, "train t.json --json").json();
  CHECK_FALSE(numbers.contains("val.accuracy"));
  CHECK(numbers["best"]["val.rmse"].is_number());
  CHECK_FALSE(run(dir, "eval runs/t --json").json().contains("val.accuracy"));
}

TEST_CASE("a run that stops early says so where it is done") {
  TempDir dir;
  write(dir / "small.json", kSmall);
  const Ran r = run(dir,
                    "train small.json --set optimizer.lr=0 --set scheduler=null --set train.epochs=9 --set "
                    "train.early_stopping='{\"monitor\":\"val/loss\",\"patience\":2}'");
  CHECK_MESSAGE(contains(r.out, "\ndone: stopped early in epoch "), r.out, r.err);
  CHECK(contains(r.out, " of 9, "));
}

TEST_CASE("a checkpoint of another model is an error of the config, which names the first tensor that does not fit") {
  TempDir dir;
  write(dir / "small.json", kSmall);
  REQUIRE(run(dir, "train small.json --quiet").code == 0);
  const std::string last = latest_checkpoint(dir / "runs/small").value().filename();
  for (const std::string change : {"model.hidden.0=32", "model.hidden=[24,24]", "optimizer=SGD"}) {
    CAPTURE(change);
    const Ran r = run(dir, "train small.json --resume auto --set train.epochs=5 --set " + change);
    CAPTURE(r.err);
    CHECK(r.code == 2);
    CHECK(contains(r.err, "[resume] the config must fit the state of runs/small/" + last + ": "));
    CHECK(contains(r.err, "help: take the config that the checkpoint was trained with"));
  }
  CHECK(run(dir, "train small.json --resume auto --quiet").code == 0);  // nothing was changed
}

TEST_CASE("a run whose scale began far too high says so at its end") {
  TempDir dir;
  write(dir / "small.json", kSmall);
  const std::string options = " --set amp.scaler.growth_interval=2000 --set amp.scaler.init_scale=";
  const Ran r = run(dir, "train small.json --set train.epochs=20" + options + "1e38");
  CAPTURE(r.err);
  REQUIRE(r.code == 0);
  CHECK(contains(r.err, " of 120 steps were skipped and changed no weight: the loss scale began at 1e+38 and is "));
  CHECK(contains(r.err, "\"amp.scaler.init_scale\": "));
  const Ran fine = run(dir, "train small.json --overwrite" + options + "65536");
  CHECK_FALSE(contains(fine.err, "changed no weight"));
}

TEST_CASE("eval scores the samples that train.overfit_batches chose, and others where data is given") {
  TempDir dir;
  std::string table = "a,b,y\n";
  for (int i = 0; i < 103; ++i) table += joined(i * 37 % 101, ',', i * 53 % 97, ',', i * 29 % 3, '\n');
  write(dir / "all.csv", table);
  write(dir / "run.json", R"({"name": "out", "output_dir": "out", "seed": 4, "model": {"type": "Linear", "out_features": "auto"},
      "loss": "CrossEntropyLoss", "optimizer": {"type": "SGD", "lr": 0.01}, "train": {"epochs": 2, "overfit_batches": 2},
      "data": {"root": ".", "train": {"type": "CSV", "path": "all.csv", "target": "y", "standardize": true},
               "val": {"type": "CSV", "path": "all.csv", "target": "y", "standardize": true},
               "loader": {"batch_size": 10}}})");
  const Ran trained = run(dir, "train run.json --quiet --json");
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  for (const std::string options : {"", " --split train"}) {
    const Ran same = run(dir, "eval out/latest --json" + options);
    REQUIRE_MESSAGE(same.code == 0, same.err);
    CHECK(same.json()["samples"] == 20);
    CHECK(same.json()[options.empty() ? "val.loss" : "train.loss"].get<double>() ==
          doctest::Approx(trained.json()["val.loss"].get<double>()));
    CHECK(contains(same.err, "train.overfit_batches: these are the samples"));
  }
  const Ran other = run(dir, "eval out/latest --json --set data.val.path=all.csv");
  REQUIRE_MESSAGE(other.code == 0, other.err);
  CHECK(other.json()["samples"] == 103);
  CHECK(contains(other.err, "data.val is read whole"));
}

TEST_CASE("a resumed run is the same run, from any step") {
  TempDir dir;
  write(dir / "small.json", kSmall);
  REQUIRE(run(dir, "train small.json --quiet --set checkpoint.every=5 --set checkpoint.keep_last=0 --set output_dir=whole").code ==
          0);
  const std::string want = identity(dir / "whole");
  const auto steps = list_checkpoints(dir / "whole");
  REQUIRE(steps.size() >= 5);
  for (const int64_t step : steps) {
    if (step == steps.back()) continue;
    CAPTURE(step);
    char name[32];
    std::snprintf(name, sizeof name, "step-%08lld", (long long)step);
    const Ran r = run(dir, "train small.json --quiet --overwrite --set checkpoint.every=5 --set output_dir=part --resume whole/" +
                               std::string(name));
    CAPTURE(r.err);
    REQUIRE(r.code == 0);
    CHECK(identity(dir / "part") == want);
    fs::remove_all(dir / "part");
  }
}

TEST_CASE("signals save and stop; --resume auto continues") {
  TempDir dir;
  write(dir / "small.json", kSmall);
  const std::string options =
      " --set train.epochs=200 --set logging.every=1 --set checkpoint.every='100 epochs' --set checkpoint.keep_best=0 --threads 1";
  REQUIRE(run(dir, "train small.json --quiet --set output_dir=whole" + options).code == 0);
  for (const auto& each : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 75}, std::pair{SIGHUP, 75}}) {
    const int signal = each.first, code = each.second;
    CAPTURE(signal);
    fs::remove_all(dir / "part");
    Child child(dir, "train small.json --set output_dir=part" + options);
    REQUIRE(child.until([&] { return read(dir / "part/metrics.jsonl").size() >= 2000; }));
    const int ended = child.end(signal);
    CAPTURE(child.output());
    CHECK(ended == code);
    CHECK(contains(child.output(), "continue with --resume auto"));
    const Ran resumed = run(dir, "train small.json --resume auto --set output_dir=part" + options);
    CAPTURE(resumed.err);
    CHECK(resumed.code == 0);
    CHECK(contains(resumed.out, "resumed from part/step-"));
    CHECK(identity(dir / "part") == identity(dir / "whole"));
  }
}

TEST_CASE("options refuse numbers that their types do not hold, of which the parser would take others") {
  TempDir dir;
  const std::pair<const char*, const char*> wrong[] = {
      {"generate r --seed -1", "--seed: must be a whole number from 0 to 18446744073709551615, got -1"},
      {"generate r --seed 18446744073709551616", "got 18446744073709551616"},
      {"generate r --seed 010", "got 010"},
      {"generate r --length 99999999999999999999", "--length: must be a whole number of less than 2^63, got 99999999999999999999"},
      {"generate r --top-k None", "--top-k: must be a whole number of less than 2^63, got None"},
      {"generate r --temperature nan", "--temperature: must be a finite number, got nan"},
      {"lr-find c.json --steps 1e3", "--steps: must be a whole number of less than 2^63, got 1e3"},
      {"verify c.json --steps 0x10", "got 0x10"},
      {"bench mlp --seed 36893488147419103232", "got 36893488147419103232"}};
  for (const auto& each : wrong) {
    const std::string command = each.first;
    CAPTURE(command);
    const Ran ran = run(dir, command);
    CHECK(ran.code == 2);
    CHECK(contains(ran.err, each.second));
  }
  CHECK(!contains(run(dir, "lr-find none.json --steps +12").err, "--steps"));
}

TEST_CASE("exit codes") {
  TempDir dir;
  write(dir / "small.json", kSmall);
  CHECK(run(dir, "--version").code == 0);
  CHECK(contains(run(dir, "--version").out, "halfstep "));
  const Ran typo = run(dir, "trian small.json");
  CHECK(typo.code == 2);
  CHECK(contains(typo.err, "did you mean \"halfstep train\"?"));
  CHECK(run(dir, "train").code == 2);
  CHECK(run(dir, "train none.json").code == 2);
  CHECK(run(dir, "validate small.json --set train.epochz=3").code == 2);
  CHECK(run(dir, "validate small.json").code == 0);
  CHECK(run(dir, "eval nowhere").code == 3);

  write(dir / "here.csv", "a,b\n1,2\n");
  const Ran here = run(dir, "train small.json --set data.train='{\"type\":\"CSV\",\"path\":\"here.csv\",\"target\":\"b\"}'");
  CHECK(here.code == 3);
  CHECK(contains(here.err, "cannot read data/here.csv"));
  CHECK(contains(here.err, "\nhelp: here.csv is in the current folder, and files are read from data.root: --set data.root=."));
  const Ran data = run(dir, "train small.json --set data.train='{\"type\":\"MNIST\"}' --set data.root=nowhere");
  CHECK(data.code == 3);
  CHECK_FALSE(fs::exists(dir / "runs"));
  write(dir / "t.csv", "1,2,a\n1,x,b\n");
  const Ran csv =
      run(dir, "train small.json --set data.train='{\"type\":\"CSV\",\"path\":\"t.csv\"}' --set data.val=null --set data.root=.");
  CHECK(csv.code == 3);
  CHECK(contains(csv.err, "t.csv:2:2"));

  const Ran nan = run(dir,
                      "train small.json --set amp=false --set optimizer.lr=1e30 --set optimizer.weight_decay=0 --set "
                      "train.clip_grad_norm=null --set train.epochs=20");
  CHECK(nan.code == 4);
  CHECK(contains(nan.err, "[train] the run diverged at step"));
  CHECK(contains(nan.err, "help: the explanation above has the evidence"));
  const Ran floor = run(dir, "train small.json --overwrite --set optimizer.lr=1e30 --set scheduler=null --set train.epochs=20");
  CHECK(floor.code == 4);
  CHECK_MESSAGE(contains(floor.err, "losses are not finite"), floor.err);
  if (!contains(run(dir, "devices --json").out, "\"available\":true,\"description\":\"NVIDIA")) {
    const Ran cuda = run(dir, "train small.json --device cuda");
    CHECK(cuda.code == 5);
    CHECK(contains(cuda.err, "cuda"));
  }
}

TEST_CASE("dry run and devices") {
  TempDir dir;
  write(dir / "small.json", kSmall);
  const Ran dry = run(dir, "train small.json --dry-run");
  CHECK(dry.code == 0);
  CHECK(contains(dry.out, "Linear(in_features=784, out_features=24"));
  CHECK(contains(dry.out, "float16"));
  CHECK(contains(dry.out, "parameters  19090"));
  CHECK_FALSE(fs::exists(dir / "runs"));
  const Json devices = run(dir, "devices --json").json()["devices"];
  CHECK(devices[0]["device"] == "cpu");
  CHECK(devices[0]["available"] == true);
}

TEST_CASE("bench mlp") {
  TempDir dir;
  const Ran json = run(dir, "bench mlp --batch 16 --width 32 --batches 3 --epochs 2 --device cpu --json");
  CAPTURE(json.err);
  REQUIRE(json.code == 0);
  const Json j = json.json();
  REQUIRE(j["arms"].size() == 3);
  for (const Json& arm : j["arms"]) {
    for (const char* key : {"arm", "seconds", "median_ms", "speedup", "peak_bytes", "peak_bytes_by_tag", "final_loss", "skipped"})
      CHECK(arm.contains(key));
    CHECK(arm["final_loss"].get<double>() == doctest::Approx(j["arms"][0]["final_loss"].get<double>()).epsilon(0.02));
    size_t sum = 0;
    for (const auto& [tag, bytes] : arm["peak_bytes_by_tag"].items()) sum += bytes.get<size_t>();
    CHECK(sum == arm["peak_bytes"].get<size_t>());
  }
  const Ran one = run(dir, "bench mlp --batch 64 --width 256 --batches 2 --epochs 2 --device cpu --threads 1 --json");
  REQUIRE(one.code == 0);
  const Json planned = one.json();
  for (const Json& arm : planned["arms"]) CHECK(arm["planned_peak_bytes"] == arm["peak_bytes"]);
  const Ran text = run(dir, "bench mlp --batch 16 --width 32 --batches 3 --epochs 1 --arms float32,float16 --device cpu");
  CHECK(contains(text.out, "Default precision:\nTotal execution time = "));
  CHECK(contains(text.out, "Mixed precision:\nTotal execution time = "));
  CHECK(contains(text.out, "Max memory used by tensors = "));
  CHECK(contains(text.out, "fastest ms   median ms      p90 ms"));
  CHECK(contains(text.out, "Losses of float16 agree with those of float32: "));
  for (const char* key : {"version", "commit", "date", "clocks", "description"}) CHECK(j.contains(key));
  for (const Json& arm : j["arms"]) {
    CHECK(arm["step_ms"].size() == 3);  // of 6 steps 3 warm up
    CHECK(arm["losses_agree"] == true);
    CHECK(arm["loss_difference"].get<double>() <= arm["loss_tolerance"].get<double>());
  }
  const Ran tf32 = run(dir, "bench mlp --arms tf32 --device cpu");
  CHECK(tf32.code != 0);
  CHECK(contains(tf32.err, "[bench] the arm tf32 needs a GPU, got device cpu"));
  const Ran bad = run(dir, "bench mlp --arms float33");
  CHECK(bad.code == 2);
  CHECK(contains(bad.err, "got \"float33\"; did you mean \"float32\"?"));
}

TEST_CASE("bench mlp reads its network and its bench section from a config; the command line has the last word") {
  TempDir dir;
  const fs::path small = write(dir / "small.json", R"({"extends": ")" + (configs() / "mlp_amp.json").string() + R"(",
    "model": {"in_features": 16, "hidden": [16], "out_features": 16}, "data": {"train": {"num_batches": 4, "input_shape": [16],
    "target_shape": [16]}, "loader": {"batch_size": 8}}, "train": {"epochs": 2}, "device": "cpu",
    "bench": {"arms": ["float32", "bfloat16"], "warmup": 2, "repeats": 2}})");
  const Ran ran = run(dir, "bench mlp --config small.json --json");
  CAPTURE(ran.err);
  REQUIRE(ran.code == 0);
  const Json j = ran.json();
  CHECK(j["batch"] == 8);
  CHECK(j["width"] == 16);
  CHECK(j["layers"] == 2);
  CHECK(j["batches"] == 4);
  CHECK(j["epochs"] == 2);
  CHECK(j["warmup"] == 2);
  REQUIRE(j["arms"].size() == 2);
  CHECK(j["arms"][1]["arm"] == "bfloat16");
  CHECK(j["arms"][1]["step_ms"].size() == 12);
  const Json over = run(dir, "bench mlp --config small.json --json --arms float16 --batch 4 --warmup 0 --repeats 1").json();
  CHECK(over["batch"] == 4);
  CHECK(over["arms"][0]["arm"] == "float16");
  CHECK(over["arms"][0]["step_ms"].size() == 8);
  const Ran other = run(dir, "bench mlp --config '" + (configs() / "digits_mlp.json").string() + "'");
  CHECK(other.code == 2);
  CHECK(contains(other.err, "which is what this benchmark measures"));
  write(dir / "bad.json", read(small).replace(read(small).find("\"bfloat16\""), 10, "\"bfloat17\""));
  const Ran bad = run(dir, "bench mlp --config bad.json");
  CHECK(bad.code == 2);
  CHECK(contains(bad.err, "did you mean \"bfloat16\"?"));
}

TEST_SUITE("data") {
  TEST_CASE("MNIST in each precision") {
    const char* data = std::getenv("HALFSTEP_DATA");
    if (!data) {
      MESSAGE("SKIPPED: set HALFSTEP_DATA to the folder that holds mnist/");
      std::puts("SKIPPED: set HALFSTEP_DATA to the folder that holds mnist/");
      return;
    }
    TempDir dir;
    for (const std::string precision : {"--no-amp", "--set amp.dtype=bfloat16", "--set amp.dtype=float16"}) {
      CAPTURE(precision);
      const Ran r = run(dir, "train '" + (configs() / "mnist_mlp.json").string() + "' --set data.root='" + data +
                                 "' --set train.epochs=1 --overwrite --json " + precision);
      CAPTURE(r.err);
      REQUIRE(r.code == 0);
      CHECK(r.json()["val.accuracy"].get<double>() > 0.95);
    }
  }

  TEST_CASE("the recipes that take seconds reach what they are to reach") {
    if (!std::getenv("HALFSTEP_DATA")) {
      MESSAGE("SKIPPED: set HALFSTEP_DATA to the folder that holds optdigits/, regression/ and timeseries/");
      return;
    }
    TempDir dir;
    const auto result = [&](const std::string& name, const std::string& precision, const char* metric) {
      const Ran r =
          run(dir, "train '" + (configs() / "recipes" / (name + ".json")).string() + "' --overwrite --quiet --json " + precision);
      CAPTURE(r.err);
      REQUIRE(r.code == 0);
      return r.json()[metric].get<double>();
    };
    CHECK(result("wine_regression", "", "val.rmse") == doctest::Approx(0.64558).epsilon(1e-5));
    for (const std::string precision : {"--no-amp", "--set amp.dtype=bfloat16", "--set amp.dtype=float16"}) {
      CAPTURE(precision);
      CHECK(result("optdigits_mlp", precision, "val.accuracy") > 0.965);
      CHECK(result("airline_lstm", precision, "val.rmse") < 30);
    }
  }
}

TEST_CASE("weights of classes stand beside the classes' names, also those of a balanced sampler") {
  const TempDir dir;
  std::string rows = "x,size\n";
  for (int i = 0; i < 40; ++i) rows += joined(i % 7, ',', i % 8 == 0 ? 10 : i % 8 < 3 ? 2 : 1, '\n');  // 5 of 10, 10 of 2, 25 of 1
  write(dir / "t.csv", rows);
  write(dir / "c.json", R"({"version": 1, "name": "c", "output_dir": "r", "amp": false, "data": {"root": ".",
      "train": {"type": "CSV", "path": "t.csv"}, "loader": {"batch_size": 10}},
      "model": {"type": "Linear", "out_features": "auto"}, "loss": "CrossEntropyLoss",
      "optimizer": {"type": "SGD", "lr": 0.1}, "train": {"epochs": 1}})");
  const auto said = [&](const std::string& command, const std::string& sets) {
    const Ran r = run(dir, command + " c.json " + sets);
    CHECK_MESSAGE(r.code == 0, r.err);
    return r.out + r.err;
  };
  const std::string train = "train --overwrite", given = R"(--set 'loss.weight=[1,5,20]')",
                    draws = R"(--set 'data.loader.sampler={"type": "weighted"}')";
  CHECK(!contains(said(train, ""), "class weights"));
  CHECK(contains(said(train, given), "class weights of the loss: 1 1, 2 5, 10 20\n"));
  CHECK(contains(said("validate", given), "  class weights of the loss: 1 1, 2 5, 10 20\n"));
  CHECK(contains(said(train, draws), "class weights of the sampler, balanced: 1 0.5333, 2 1.333, 10 2.667\n"));
  CHECK(contains(said("validate", R"(--set 'data.loader.sampler={"type": "weighted", "weights": [3, 0, 1]}')"),
                 "class weights of the sampler: 1 3, 2 0, 10 1\n"));
  CHECK(contains(run(dir, R"(validate c.json --set 'data.loader.sampler={"type": "weighted", "weights": [3, 1]}')").err,
                 "must have one number for each of the 3 classes, 1, 2, 10, got 2"));
}
