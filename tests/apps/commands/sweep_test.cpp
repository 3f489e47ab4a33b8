// SPDX-License-Identifier: Apache-2.0
// `halfstep sweep` as a process: members that finish, fail, are stopped and killed.
#include <doctest/doctest.h>

#include <cmath>
#include <csignal>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "tests/apps/small_run.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

// A member takes some tenths of a second, and diverges at once with a rate of 1e38.
const char* kSwept = R"({
  "name": "swept", "device": "cpu",
  "model": {"type": "MLP", "hidden": [8], "out_features": "auto"},
  "loss": "CrossEntropyLoss", "optimizer": {"type": "SGD", "lr": 0.1},
  "data": {"train": {"type": "Random", "num_batches": 3, "input_shape": [4], "classes": 3},
           "val": {"type": "Random", "num_batches": 1, "input_shape": [4], "classes": 3}, "loader": {"batch_size": 8}},
  "train": {"epochs": 4}, "logging": {"every": "1000 steps"}, "checkpoint": {"monitor": "val/loss"}
})";

struct SweepFolder : TempDir {
  SweepFolder() { write(*this / "swept.json", kSwept); }
  Ran sweep(const std::string& text, const std::string& options = "") const {
    write(*this / "s.json", text);
    return run(*this, "sweep s.json --threads 1 " + options);
  }
  fs::path member(const std::string& name) const { return path() / "runs/s" / name; }
};

// How many members of the table have each ending.
int endings(const Json& results, const std::string& ending) {
  int n = 0;
  for (const Json& m : results["members"]) n += m["ending"] == ending;
  return n;
}

}  // namespace

TEST_CASE("sweep: a grid is trained, each member as `train` does, and ordered by the monitored value") {
  const SweepFolder dir;
  const std::string text = R"({"base": "swept.json", "set": {"train.epochs": 3}, "grid": {"optimizer.lr": [0.001, 0.1, 0.01]}})";
  const Ran listed = dir.sweep(text, "--dry-run");
  CHECK(listed.code == 0);
  CHECK(run(dir, "__complete swe").out == "sweep\n");
  CHECK(contains(run(dir, "help sweep").out, "number of runs at the same time, which share the threads"));
  CHECK(contains(listed.out, "s: 3 members -> runs/s\n"));
  CHECK(contains(listed.out, "  0003    0.01   -         -        -      -     not begun\n"));
  CHECK(!fs::exists(dir / "runs"));

  const Ran ran = dir.sweep(text, "--json --jobs 2");
  CAPTURE(ran.err);
  REQUIRE(ran.code == 0);
  const Json j = ran.json();
  CHECK(j == Json::parse(read(dir / "runs/s/sweep.json")));
  CHECK(endings(j, "finished") == 3);
  CHECK(j["monitor"] == "val/loss");
  CHECK(j["keys"] == Json{"optimizer.lr"});
  CHECK(j["best"] == j["members"][0]["member"]);
  for (int i = 0; i < 3; ++i) {
    const Json& m = j["members"][i];
    if (i > 0) CHECK(m["value"].get<double>() >= j["members"][i - 1]["value"].get<double>());
    CHECK(m["steps"] == 9);
    CHECK(m["exit_code"] == 0);
    CHECK(m["values"].size() == 1);
    CHECK(Json::parse(read(dir / m["folder"].get<std::string>() / "run.json"))["ending"] == "finished");
  }
  CHECK(contains(read(dir / "runs/s/report.html"), "0003-lr0.01"));
  // The same as by hand.
  REQUIRE(run(dir, "train swept.json --quiet --set train.epochs=3 --set optimizer.lr=0.01 --set output_dir=hand").code == 0);
  CHECK(identity(dir / "hand") == identity(dir.member("0003-lr0.01")));

  const auto when = fs::last_write_time(dir.member("0003-lr0.01") / "run.json");
  const Ran again = dir.sweep(text);
  CHECK(again.code == 0);
  CHECK(contains(again.out, "  finished before: 3\n"));
  CHECK_FALSE(contains(again.out, "begins"));
  CHECK(contains(again.out, "\n  member  lr     val/loss  at step  steps  time   ending\n"));
  CHECK(fs::last_write_time(dir.member("0003-lr0.01") / "run.json") == when);
}

TEST_CASE("sweep: draws are the same in every start, and more of them keep those that are there") {
  const SweepFolder dir;
  const auto text = [](int draws) {
    return joined(R"({"config": )", kSwept, R"(, "random": {"draws": )", draws,
                  R"(, "seed": 7, "keys": {"optimizer.lr": {"from": 1e-3, "to": 0.1, "scale": "log"}, "train.epochs": [1, 2]}}})");
  };
  const Ran two = dir.sweep(text(2), "--json");
  CAPTURE(two.err);
  REQUIRE(two.code == 0);
  const Ran three = dir.sweep(text(3), "--json");
  REQUIRE(three.code == 0);
  CHECK(contains(three.err, "  finished before: 2\n"));
  CHECK(contains(three.err, "0003-"));
  CHECK_FALSE(contains(three.err, "0002-"));
  CHECK(three.json()["members"].size() == 3);
}

TEST_CASE("sweep: a member that fails does not stop the others; its exit code and message are there; --retry") {
  const SweepFolder dir;
  const std::string text = R"({"base": "swept.json", "set": {"train.epochs": 8}, "grid": {"optimizer.lr": [1e38, 0.1]}})";
  const Ran ran = dir.sweep(text);
  CAPTURE(ran.out);
  CHECK(ran.code == 1);
  CHECK(contains(ran.out, "0001-lr1e+38: exit code 4: [train] the run diverged at step 12 "));
  CHECK(contains(ran.out, "; see runs/s/0001-lr1e+38/output.txt (1 of 2)\n"));
  CHECK(contains(ran.out, "0002-lr0.1: finished, val/loss "));
  CHECK(contains(ran.out, "best: runs/s/0002-lr0.1\n"));
  const Json j = Json::parse(read(dir / "runs/s/sweep.json"));
  CHECK(j["members"][1]["exit_code"] == 4);
  CHECK(j["members"][1]["error"].get<std::string>().starts_with("[train] the run diverged"));
  const Ran again = dir.sweep(text);
  CHECK(again.code == 1);
  CHECK(contains(again.out, "  failed before: 1; --retry tries them again\n"));
  CHECK_FALSE(contains(again.out, "begins"));
  const Ran retried = dir.sweep(text, "--retry");
  CHECK(retried.code == 1);
  CHECK(contains(retried.out, "0001-lr1e+38: continues\n"));
}

TEST_CASE("sweep: stopped, then killed, then finished, it has the bits of one that was not") {
  const SweepFolder dir;
  const std::string text = R"({"base": "swept.json", "set": {"train.epochs": 2500, "train.eval_every": "1000 steps",
    "checkpoint.every": "1000 steps"}, "grid": {"optimizer.lr": [0.01, 0.02, 0.03, 0.04]}})";
  REQUIRE(dir.sweep(text).code == 0);
  fs::rename(dir / "runs", dir / "whole");

  const auto begun = [&](const std::string& name) { return [&, name] { return fs::exists(dir.member(name) / "run.json"); }; };
  {
    Child child(dir, "sweep s.json --threads 1 --jobs 2");
    REQUIRE(child.until(begun("0001-lr0.01")));
    const Ran second = run(dir, "sweep s.json");
    CHECK(second.code == 2);
    CHECK(contains(second.err, "[sweep] runs/s is in use by another run: process "));
    child.send(SIGINT);
    CHECK(child.wait() == 130);
    CHECK(contains(child.output(), "of 4 members to train; the same command continues\n"));
    CHECK(fs::exists(dir / "runs/s/sweep.json"));
  }
  {
    Child child(dir, "sweep s.json --threads 1");
    REQUIRE(child.until(begun("0003-lr0.03")));
    child.end(SIGKILL);
  }
  const Ran last = run(dir, "sweep s.json --threads 1 --json");  // waits for the run of 0003, which the kernel stopped
  CAPTURE(last.err);
  CHECK(last.code == 0);
  CHECK(endings(last.json(), "finished") == 4);
  int resumed = 0;
  for (const char* name : {"0001-lr0.01", "0002-lr0.02", "0003-lr0.03", "0004-lr0.04"}) {
    CAPTURE(name);
    CHECK(identity(dir.member(name)) == identity(dir / "whole/s" / name));
    resumed += Json::parse(read(dir.member(name) / "run.json"))["starts"].size() > 1;
  }
  CHECK(resumed >= 2);
}

TEST_CASE("sweep: a file that was changed adds members, and names those that it no longer has") {
  const SweepFolder dir;
  REQUIRE(dir.sweep(R"({"base": "swept.json", "grid": {"optimizer.lr": [0.1, 0.2]}})").code == 0);
  const Ran ran = dir.sweep(R"({"base": "swept.json", "grid": {"optimizer.lr": [0.3, 0.2]}})");
  CAPTURE(ran.out);
  CHECK(ran.code == 0);
  CHECK(contains(ran.out, "  finished before: 1\n  new: 1\n  not members of s.json, left alone: 0001-lr0.1\n0003-lr0.3: begins\n"));
  const Json j = Json::parse(read(dir / "runs/s/sweep.json"));
  CHECK(j["members"].size() == 2);
  CHECK(j["others"] == Json{"0001-lr0.1"});
  CHECK(fs::exists(dir.member("0001-lr0.1") / "run.json"));
}

TEST_CASE("sweep: keys on the command line, and the mean over seeds") {
  const SweepFolder dir;
  const std::string start = "sweep swept.json --threads 1 --set train.epochs=1 ";
  const Ran ran = run(dir, start + "optimizer.lr=0.01,0.1 seed=0,1,2 --json");
  REQUIRE_MESSAGE(ran.code == 0, ran.err);
  const Json j = ran.json();
  CHECK(j["sweep"] == "swept-lr-seed");
  CHECK(j["members"].size() == 6);
  CHECK(fs::exists(dir / "runs/swept-lr-seed/0001-lr0.01-seed0/run.json"));
  REQUIRE(j["over_seeds"].size() == 2);
  for (const Json& group : j["over_seeds"]) {
    std::vector<double> values;
    for (const Json& m : j["members"])
      if (m["values"]["optimizer.lr"] == group["values"]["optimizer.lr"]) values.push_back(m["value"].get<double>());
    REQUIRE(values.size() == 3);
    const double mean = (values[0] + values[1] + values[2]) / 3;
    double squares = 0;
    for (const double v : values) squares += (v - mean) * (v - mean);
    CHECK(group["runs"] == 3);
    CHECK(group["mean"].get<double>() == doctest::Approx(mean));
    CHECK(group["std"].get<double>() == doctest::Approx(std::sqrt(squares / 2)));
  }
  const Ran again = run(dir, start + "optimizer.lr=0.01,0.1 seed=0,1,2");
  CHECK_MESSAGE(contains(again.out, "lr 0.01: val/loss over seed: mean "), again.out);
  CHECK_MESSAGE(contains(again.out, ", of 3 runs\n"), again.out);
  // Parts of the data from a file; a sweep over neither has no mean.
  const Ran folds = dir.sweep(R"({"base": "swept.json", "set": {"train.epochs": 1}, "grid": {"data.fold": [[0, 2], [1, 2]]}})");
  REQUIRE_MESSAGE(folds.code == 0, folds.err);
  CHECK_MESSAGE(contains(folds.out, "\nval/loss over fold: mean "), folds.out);
  const Ran rates = run(dir, start + "optimizer.lr=[0.01,0.1] --dry-run");
  CHECK_MESSAGE(contains(rates.out, "swept-lr: 2 members -> runs/swept-lr\n"), rates.out);
  CHECK(!contains(rates.out, "mean"));
  CHECK(contains(run(dir, start + "optimizer=SGD,AdamW --dry-run").out, "AdamW"));
  CHECK(contains(run(dir, start + "data.loader.batch_size='{\"from\": 2, \"to\": 6, \"step\": 2}' --dry-run").out, ": 3 members"));
  const auto fails = [&](const std::string& lists, const std::string& part) {
    const Ran r = run(dir, start + lists);
    CHECK(r.code == 2);
    CHECK_MESSAGE(contains(r.err, part), r.err);
  };
  fails("seed", "keys must have the form KEY=VALUE,VALUE, got seed\nhelp: halfstep sweep config.json seed=0,1,2");
  fails("seed=0,1 seed=2", "a key must be given once");
  fails("sed=0,1", "sed: unknown key");
  fails("output_dir=a,b", "each member has its own folder");
  const Ran config = run(dir, "sweep swept.json");
  CHECK_MESSAGE(contains(config.err, "`halfstep sweep swept.json optimizer.lr=0.1,0.01` with each of these values"), config.err);
}

TEST_CASE("sweep: what is wrong is an error before any member begins") {
  const SweepFolder dir;
  const Ran value = dir.sweep(R"({"base": "swept.json", "grid": {"optimizer.lr": [0.1, -1]}})");
  CHECK(value.code == 2);
  CHECK(contains(value.err,
                 "[sweep] 1 of the 2 members of s.json has a wrong config; none was started\nmember 2 (optimizer.lr=-1): "
                 "1 error in swept.json\n  --set optimizer.lr=-1: optimizer.lr: must be a number >= 0, got -1\n"));
  const Ran key = dir.sweep(R"({"base": "swept.json", "grid": {"train.epocs": [1, 2, 3, 4]}})", "--dry-run");
  CHECK(key.code == 2);
  CHECK(contains(key.err, "member 3 (train.epocs=3): 1 error in swept.json\n  --set train.epocs=3: train.epocs: unknown key"));
  CHECK(contains(key.err, "\nand 1 more\n"));
  const Ran file = dir.sweep(R"({"base": "swept.json", "gird": {}})");
  CHECK(file.code == 2);
  CHECK(contains(file.err, "s.json:1:24: gird: unknown key of a sweep; did you mean \"grid\"?"));
  const Ran base = dir.sweep(R"({"base": "none.json", "grid": {"optimizer.lr": [0.1]}})");
  CHECK(base.code == 2);
  CHECK(contains(base.err, "none.json"));
  const std::string good = R"({"base": "swept.json", "grid": {"optimizer.lr": [0.1]}})";
  CHECK(contains(dir.sweep(good, "--set optimizer.lr=1").err, "[sweep] --set optimizer.lr=1 gives all members one value of a key"));
  CHECK(dir.sweep(good, "--set optimizer.lr=1").code == 2);
  CHECK(dir.sweep(good, "--jobs 0").code == 2);
  CHECK(!fs::exists(dir / "runs"));

  REQUIRE(run(dir, "train swept.json --quiet").code == 0);
  const Ran there = dir.sweep(R"({"base": "swept.json", "name": "swept", "grid": {"optimizer.lr": [0.1]}})");
  CHECK(there.code == 2);
  CHECK(contains(there.err, "[sweep] runs/swept holds a run\nhelp: give the sweep another \"output_dir\""));
}

TEST_CASE("sweep: Ctrl-Z halts the members too, and they continue with the sweep") {
  const SweepFolder dir;
  write(dir / "s.json", R"({"base": "swept.json", "set": {"train.epochs": 4000}, "grid": {"optimizer.lr": [0.01, 0.02]}})");
  Child child(dir, "sweep s.json --threads 1 --jobs 2");
  const auto is_halted = [](const std::string& process) {
    const std::string stat = read("/proc/" + process + "/stat");
    const size_t name = stat.rfind(')');
    return name != std::string::npos && stat[name + 2] == 'T';
  };
  const std::string sweep = std::to_string(child.id());
  const auto members = [&] {
    std::istringstream list(read("/proc/" + sweep + "/task/" + sweep + "/children"));
    return std::vector<std::string>(std::istream_iterator<std::string>(list), {});
  };
  const auto begun = [&](const char* name) { return fs::exists(dir.member(name) / "run.json"); };
  REQUIRE(child.until([&] { return begun("0001-lr0.01") && begun("0002-lr0.02"); }));
  const std::vector<std::string> both = members();
  REQUIRE(both.size() == 2);
  child.send(SIGTSTP);
  CHECK(child.until([&] { return is_halted(sweep) && is_halted(both[0]) && is_halted(both[1]); }));
  child.send(SIGCONT);
  CHECK(child.until([&] { return !is_halted(sweep) && !is_halted(both[0]) && !is_halted(both[1]); }));
  child.send(SIGINT);
  CHECK(child.wait() == 130);
}

TEST_CASE("sweep and compare: members of other data, and losses of other scales, are named") {
  const TempDir dir;
  const auto table = [](double slope) {
    std::string out = "a,b\n";
    for (int i = 0; i < 40; ++i) out += joined(i, ',', slope * i, '\n');
    return out;
  };
  write(dir / "t.csv", table(2)), write(dir / "v.csv", table(5));
  write(dir / "t.json", R"({"name": "t", "device": "cpu", "data": {"root": ".", "task": "regression", "type": "CSV",
    "train": {"path": "t.csv", "range": [0, 0.8]}, "val": {"path": "t.csv", "range": [0.8, 1]}, "test": {"path": "v.csv"},
    "loader": {"batch_size": 8}}, "model": {"type": "Linear", "out_features": "auto"}, "loss": "MSELoss", "metrics": ["rmse"],
    "optimizer": {"type": "SGD", "lr": 1e-4}, "train": {"epochs": 1}, "checkpoint": {"monitor": "val/loss"}})");
  const Ran first = run(dir, "sweep t.json seed=0,1");
  REQUIRE_MESSAGE(first.code == 0, first.err);
  CHECK_MESSAGE(first.err.empty(), first.err);
  write(dir / "v.csv", table(3));
  const Ran more = run(dir, "sweep t.json seed=0,1,2");
  const char* const changed =
      "v.csv has changed between these runs, so their values are of other data: one content in 0001-seed0, 0002-seed1; another in "
      "0003-seed2";
  const std::string line = joined("warning: ", changed, "; a member whose folder is removed is trained again\n");
  CHECK_MESSAGE(contains(more.err, line), more.err);
  CHECK(!contains(more.err, "t.csv"));
  const Ran compared = run(dir, "compare runs/t-seed/0001-seed0 runs/t-seed/0002-seed1 runs/t-seed/0003-seed2");
  CHECK_MESSAGE(contains(compared.err, changed), compared.err);
  for (const char* member : {"0001-seed0", "0002-seed1"}) fs::remove_all(dir / "runs/t-seed" / member);
  CHECK(run(dir, "sweep t.json seed=0,1,2").err.empty());

  const Ran losses = run(dir, R"(sweep t.json 'loss=["L1Loss","HuberLoss"]')");
  CHECK_MESSAGE(contains(losses.err,
                         "warning: members differ in loss.type, and losses of different scales are not comparable, so "
                         "val/loss does not say which is better: order "),
                losses.err);
  CHECK(run(dir, R"(sweep t.json 'loss=["L1Loss","HuberLoss"]' --set checkpoint.monitor=val/rmse)").err.empty());
  const Ran scaled = run(dir, "sweep t.json data.standardize_target=true,false --dry-run");
  CHECK_MESSAGE(contains(scaled.err, "standardize_target, and losses of different scales"), scaled.err);
  const Ran ranges = run(dir, "sweep t.json data.val.range=[0.8,1],[0.9,1] --dry-run");
  CHECK_MESSAGE(contains(ranges.err, "members differ in data.val.range, and are measured on other samples"), ranges.err);
  const fs::path folder = fs::exists(dir / "runs/t-loss") ? "runs/t-loss/" : "";
  std::string runs;
  for (const auto& entry : fs::directory_iterator(dir / folder))
    if (entry.is_directory()) runs += " " + (folder / entry.path().filename()).string();
  const Ran two = run(dir, "compare" + runs + " --json");
  CHECK_MESSAGE(contains(two.out, "the losses are not on one scale, since the runs differ in loss"), two.out);
}
