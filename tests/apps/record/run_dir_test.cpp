// SPDX-License-Identifier: Apache-2.0
// A run must never lose these: older checkpoints, an overwritten run, what is best, lines of metrics, and the folder to itself.
#include <doctest/doctest.h>

#include <functional>

#include "apps/record/run_lock.h"
#include "framework/base/check.h"
#include "framework/io/checkpoint/checkpoint.h"
#include "tests/apps/tiny_run.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

TEST_CASE("--resume auto refuses when no checkpoint can be read, and touches nothing") {
  Folder dir;
  REQUIRE(dir.train().code == 0);
  const fs::path kept = dir / "kept";
  fs::copy(dir / "r", kept, fs::copy_options::recursive);
  const auto each = [&](const std::function<void(const fs::path&)>& damage) {
    fs::remove_all(dir / "r");
    fs::copy(kept, dir / "r", fs::copy_options::recursive);
    for (const char* name : {"step-00000003", "step-00000006", "step-00000009", "step-00000012"}) damage(dir / "r" / name);
  };
  struct Case {
    const char* what;
    std::function<void(const fs::path&)> damage;
    const char* said;
  };
  const Case cases[] = {
      {"a newer version", [](const fs::path& c) { replace_in(c / "manifest.json", "\"version\": 2", "\"version\": 3"); },
       "version 3 was written by a newer halfstep, this build reads version 2"},
      {"models a byte short",
       [](const fs::path& c) { fs::resize_file(c / "model.safetensors", fs::file_size(c / "model.safetensors") - 1); },
       "model.safetensors: must have "},
      {"manifests lost", [](const fs::path& c) { fs::remove(c / "manifest.json"); }, "manifest.json: the file is missing"},
      {"manifests of nothing", [](const fs::path& c) { write(c / "manifest.json", ""); }, "manifest.json: not valid JSON"}};
  for (const Case& c : cases) {
    CAPTURE(c.what);
    each(c.damage);
    const auto before = snapshot(dir / "r");
    const Ran r = dir.train("--resume auto");
    CAPTURE(r.err);
    CHECK(r.code == 3);
    CHECK(contains(r.err, c.said));
    for (const char* name : {"step-00000003", "step-00000006", "step-00000009", "step-00000012"}) CHECK(contains(r.err, name));
    CHECK(contains(r.err, "help: nothing was changed; --overwrite in place of --resume starts over"));
    CHECK(snapshot(dir / "r") == before);
    const Ran ev = run(dir, "eval r");
    CHECK(ev.code == 3);
    CHECK(contains(ev.err, c.said));
    const Ran path = dir.train("--resume r/step-00000012");
    CHECK(path.code == 3);
    CHECK(contains(path.err, c.said));
    CHECK(snapshot(dir / "r") == before);
  }
  CHECK(dir.train("--overwrite").code == 0);
  CHECK(run(dir, "eval r").code == 0);
}

TEST_CASE("a checkpoint of a newer version is not passed over; one that cannot be read is, and is kept") {
  Folder dir;
  REQUIRE(dir.train().code == 0);
  const fs::path newest = dir / "r/step-00000012";
  const std::string manifest = read(newest / "manifest.json");
  replace_in(newest / "manifest.json", "\"version\": 2", "\"version\": 3");
  const auto before = snapshot(dir / "r");
  const Ran newer = dir.train("--resume auto");
  CHECK(newer.code == 3);
  CHECK(contains(newer.err, "r: was written by a newer halfstep"));
  CHECK(contains(newer.err, "r/step-00000009: can be read, but is not the newest"));
  CHECK(snapshot(dir / "r") == before);

  write(newest / "manifest.json", manifest);
  const std::string model = read(newest / "model.safetensors");
  fs::resize_file(newest / "model.safetensors", model.size() - 1);
  const Ran fallen = dir.train("--resume auto --set checkpoint.keep_last=1");
  CAPTURE(fallen.err);
  CHECK(fallen.code == 0);
  CHECK(contains(fallen.err, "falling back to r/step-00000009"));
  CHECK(contains(fallen.err, "r/step-00000012 cannot be read; it is kept as r/step-00000012.unreadable"));
  CHECK(read(dir / "r/step-00000012.unreadable/model.safetensors") == model.substr(0, model.size() - 1));
  CHECK(read(newest / "model.safetensors") == model);
}

TEST_CASE("--overwrite keeps the old run until the new one has a checkpoint") {
  Folder dir;
  REQUIRE(dir.train("--set seed=1").code == 0);
  const auto before = snapshot(dir / "r");

  // It cannot begin: its data is missing, its model does not fit, or a signal comes first.
  CHECK(
      dir.train(
             "--overwrite --set 'data.train={\"type\":\"CSV\",\"path\":\"none.csv\"}' --set data.val=null --set data.root=nowhere")
          .code == 3);
  CHECK(snapshot(dir / "r") == before);
  CHECK(dir.train("--overwrite --set 'model={\"type\":\"Linear\",\"in_features\":5,\"out_features\":3}'").code == 2);
  CHECK(snapshot(dir / "r") == before);

  // It begins and ends before its first checkpoint.
  const Ran diverged = dir.train(
      "--overwrite --set optimizer.lr=1e39 --set train.epochs=50 --set checkpoint.every='100 epochs' "
      "--set checkpoint.keep_best=0 --set diagnostics.capsules=0");  // those would stay
  CAPTURE(diverged.err);
  CHECK(diverged.code == 4);
  CHECK(contains(diverged.err, "was put back, because the new one ended before its first checkpoint"));
  CHECK(snapshot(dir / "r") == before);

  // It is killed there.
  {
    Child child(dir,
                "train tiny.json --overwrite --set train.epochs=100000000 --set checkpoint.every='100000000 epochs' "
                "--set checkpoint.keep_best=0 --set train.eval_every=never");
    REQUIRE(child.until([&] { return fs::exists(dir / "r/replaced-run") && read(dir / "r/metrics.jsonl").size() > 1000; }));
    CHECK(child.end(SIGKILL) == -SIGKILL);
  }
  CHECK_FALSE(fs::exists(dir / "r/step-00000012"));
  const Ran ev = run(dir, "eval r");
  CHECK(ev.code == 3);
  CHECK(contains(ev.err, "help: the run that it held before is in r/replaced-run"));
  const Ran second = dir.train();
  CHECK(second.code == 2);
  CHECK(contains(second.err, "was put back"));
  CHECK(snapshot(dir / "r") == before);

  // A crash while the old run is moved, in either direction.
  fs::create_directory(dir / "r/replaced-run.moving");
  for (const char* name : {"step-00000012", "best", "metrics.jsonl"})
    fs::rename(dir / "r" / name, dir / "r/replaced-run.moving" / name);
  CHECK(dir.train("--resume auto --set seed=1").code == 0);
  CHECK(run(dir, "eval r/best").code == 0);
  CHECK(list_checkpoints(dir / "r") == std::vector<int64_t>{3, 6, 9, 12});

  // It gets as far.
  CHECK(dir.train("--overwrite --set train.epochs=2").code == 0);
  CHECK(list_checkpoints(dir / "r") == std::vector<int64_t>{3, 6});
  CHECK_FALSE(fs::exists(dir / "r/replaced-run"));
  CHECK(dir.train("--overwrite --set checkpoint.every=never").code == 0);
  CHECK(list_checkpoints(dir / "r").empty());
  CHECK_FALSE(fs::exists(dir / "r/replaced-run"));

  // A run in another folder is no excuse.
  REQUIRE(dir.train("--set output_dir=s").code == 0);
  const auto other = snapshot(dir / "s");
  REQUIRE(dir.train("--overwrite").code == 0);
  CHECK(dir.train("--set output_dir=s --resume r/step-00000006").code == 2);
  CHECK(snapshot(dir / "s") == other);
  // It continues elsewhere, with nothing left to train.
  CHECK(dir.train("--set output_dir=s --overwrite --resume r/step-00000012").code == 0);
  CHECK(list_checkpoints(dir / "s") == std::vector<int64_t>{12});
  CHECK(read(dir / "s/step-00000012/model.safetensors") == read(dir / "r/step-00000012/model.safetensors"));
  // It ends with a loss that is not finite: no checkpoint of it is wanted, and it is not done.
  const auto finished = snapshot(dir / "s");
  const Ran infinite =
      dir.train("--set output_dir=s --overwrite --set optimizer.lr=1e39 --set train.epochs=1 --set diagnostics.capsules=0");
  CHECK(infinite.code == 4);
  CHECK(contains(infinite.err, "no checkpoint was written"));
  CHECK(contains(infinite.err, "[train] the run diverged at step 3 (epoch 1, lr 1e+39): the last losses are not finite"));
  CHECK(contains(infinite.err, "was put back"));
  CHECK(snapshot(dir / "s") == finished);
}

TEST_CASE("--overwrite of a run that failed before its first checkpoint: of two such runs the last one stays") {
  Folder dir;
  const std::string wrong = " --set train.epochs=1 --set optimizer.lr=";
  CHECK(dir.train(wrong + "1e39").code == 4);
  const Ran second = dir.train("--overwrite" + wrong + "3e39");
  CHECK(second.code == 4);
  CHECK_FALSE(contains(second.err, "was put back"));
  CHECK(Json::parse(read(dir / "r/config.resolved.json"))["optimizer"]["lr"] == 3e39);
  CHECK_FALSE(fs::exists(dir / "r/replaced-run"));
  CHECK_FALSE(fs::exists(dir / "r/replaced-run.moving"));
}

TEST_CASE("resuming mends latest and best, also when nothing is left to train") {
  Folder dir;
  REQUIRE(dir.train("--set checkpoint.monitor=val/loss").code == 0);
  const std::string best = read(dir / "r/best"), latest = read(dir / "r/latest");
  const auto metrics = read(dir / "r/metrics.jsonl");
  REQUIRE(best != "step-00000003\n");
  write(dir / "r/best", "step-00000003\n");
  fs::remove(dir / "r/latest");
  CHECK(dir.train("--set checkpoint.monitor=val/loss --resume auto").code == 0);
  CHECK(read(dir / "r/best") == best);
  CHECK(read(dir / "r/latest") == latest);
  CHECK(read(dir / "r/metrics.jsonl") == metrics);

  // A state that does not say which is best, as older builds wrote it.
  nlohmann::json state = nlohmann::json::parse(read(dir / "r/step-00000012/state.json"));
  state["trainer"].erase("best_step");
  state["trainer"].erase("last_log_step");
  set_state(dir / "r/step-00000012", "/trainer", state["trainer"]);
  write(dir / "r/best", "step-00000006\n");
  CHECK(dir.train("--set checkpoint.monitor=val/loss --resume auto").code == 0);
  CHECK(read(dir / "r/best") == "step-00000006\n");
}

TEST_CASE("a file that may not grow is an error, and what was there stays") {
  Folder dir;
  REQUIRE(dir.train().code == 0);
  const auto before = snapshot(dir / "r");
  const std::string command =
      "cd '" + dir.path().string() + "' && ulimit -f 2 && '" + program().string() + "' train tiny.json --overwrite --quiet 2>err";
  const int status = std::system(command.c_str());
  CHECK(WEXITSTATUS(status) == 1);
  CAPTURE(read(dir / "err"));
  CHECK(contains(read(dir / "err"), "[file] cannot write r/config.resolved.json: File too large"));
  CHECK(snapshot(dir / "r") == before);
}

TEST_CASE("one run a folder") {
  Folder dir;
  REQUIRE(dir.train().code == 0);
  CHECK_FALSE(fs::exists(dir / "r/run.lock"));
  const auto before = snapshot(dir / "r");
  {
    const RunLock lock(dir / "r");
    REQUIRE(lock.is_held());
    for (const char* options : {"", "--overwrite", "--resume auto"}) {
      CAPTURE(options);
      const Ran second = dir.train(options);
      CHECK(second.code == 2);
      CHECK(contains(second.err, "[train] r is in use by another run: process " + std::to_string(getpid()) + " on "));
    }
    CHECK(run(dir, "eval r").code == 0);  // only reads
    CHECK_THROWS_AS(static_cast<void>(RunLock(dir / "r")), ConfigError);
  }
  CHECK(snapshot(dir / "r") == before);
  // A process that was killed leaves the file and no lock.
  {
    Child child(dir, "train tiny.json --set output_dir=s --set train.epochs=100000000 --set checkpoint.every=never");
    REQUIRE(child.until([&] { return read(dir / "s/metrics.jsonl").size() > 1000; }));
    const Ran second = dir.train("--set output_dir=s");
    CHECK(second.code == 2);
    CHECK(contains(second.err, "is in use by another run: process "));
    child.end(SIGKILL);
  }
  CHECK(fs::exists(dir / "s/run.lock"));
  CHECK(dir.train("--set output_dir=s --resume auto").code == 0);
}

TEST_CASE("what killed runs left is removed by the next one") {
  Folder dir;
  REQUIRE(dir.train().code == 0);
  const auto before = snapshot(dir / "r");
  pid_t gone = fork();
  if (gone == 0) _exit(0);
  waitpid(gone, nullptr, 0);
  const std::string of_gone = ".tmp-" + std::to_string(gone) + "-0", of_living = ".tmp-" + std::to_string(getpid()) + "-0";
  for (const char* name : {"latest", "best", "metrics.jsonl", "config.resolved.json"}) write(dir / "r" / (name + of_gone), "x");
  write(dir / "r" / ("latest" + of_living), "x");
  write(dir / "r" / ("notes" + of_gone), "x");  // not of a run
  fs::create_directory(dir / "r/step-00000015.tmp");
  write(dir / "r/step-00000015.tmp/model.safetensors", "half");
  fs::copy(dir / "r/step-00000003", dir / "r/step-00000002.old");
  fs::rename(dir / "r/step-00000006", dir / "r/step-00000006.tmp");  // whole, and not yet renamed
  CHECK(dir.train().code == 2);
  auto after = snapshot(dir / "r");
  CHECK(after.erase("latest" + of_living) == 1);
  CHECK(after.erase("notes" + of_gone) == 1);
  CHECK(after == before);
}

TEST_CASE("a checkpoint of an older halfstep, whose config lacks newer keys, is gone on with as it is") {
  Folder dir;
  REQUIRE(dir.train("--set train.epochs=2").code == 0);
  const fs::path checkpoint = dir / "r/step-00000006";
  nlohmann::json config = nlohmann::json::parse(read(checkpoint / "state.json"))["config"];
  for (const char* split : {"train", "val"}) REQUIRE(config["data"][split].erase("transforms") == 1);
  config["metrics"] = {"accuracy"};  // as it was written once
  REQUIRE(config["performance"].at("channels_last") == "auto");
  config["performance"]["channels_last"] = false;  // as it was by itself, and as the model lies now
  set_state(checkpoint, "/config", config);
  const Ran same = run(dir, "train tiny.json --threads 1 --resume auto --set train.epochs=2 --set 'metrics=[\"accuracy\"]'");
  CHECK(same.code == 0);
  CHECK_FALSE(contains(same.err, "the config differs"));
  CHECK(contains(same.out, "resumed from"));
  CHECK(contains(same.out, "val accuracy"));  // from the state: nothing was left to evaluate
  const Ran longer = dir.train("--resume auto");
  CHECK(longer.code == 0);
  CHECK(contains(longer.err, "the config differs from the checkpoint's in metrics/0, train/epochs"));
}

TEST_CASE("broken states, manifests and names: plain words, and nothing changes") {
  Folder dir;
  REQUIRE(dir.train().code == 0);
  const fs::path checkpoint = dir / "r/step-00000012";
  const std::string state = read(checkpoint / "state.json"), manifest = read(checkpoint / "manifest.json");
  struct Case {
    const char* at;
    nlohmann::json value;
    const char* said;
  };
  const Case cases[] = {
      {"/trainer", 1, "the state of a run must hold trainer, an object, got 1"},
      {"/trainer/steps", "twelve", "trainer.steps, an integer >= 0, got \"twelve\""},
      {"/trainer/steps", -1, "trainer.steps, an integer >= 0, got -1"},
      {"/trainer/steps", 1e300, "trainer.steps, an integer >= 0, got 1e+300"},
      {"/trainer/steps", UINT64_MAX, "trainer.steps, an integer >= 0, got 18446744073709551615"},
      {"/trainer/seconds", nullptr, "trainer.seconds, a number, got nothing"},
      {"/trainer/best", "high", "trainer.best, a number, got \"high\""},
      {"/trainer/next_best", {{0.5, 3}, {0.4, "x"}}, "trainer.next_best, a list of values and steps"},
      {"/trainer/stop_best", "low", "trainer.stop_best, a number, got \"low\""},
      {"/trainer/stop_waited", "long", "trainer.stop_waited, an integer >= 0, got \"long\""},
      {"/past", 5, "past, an object, got 5"},
      {"/past", {{"trained_on", {1}}, {"changes", nlohmann::json::array()}}, "past.trained_on, a list of samples"},
      {"/trainer/stop_waited", -1, "trainer.stop_waited, an integer >= 0, got -1"},
      {"/loader", nlohmann::json::array(), "loader, an object, got []"},
      {"/loader/next_batch", 99, "was saved after batch 99 of an epoch, which has only 3 now"},
      {"/generator/seed", false, "generator.seed, an integer >= 0, got false"},
      {"/schedule", "x", "schedule, an integer >= 0, got \"x\""},
      {"/schedule", {{"count", -1}}, "schedule.count, an integer >= 0, got -1"},
      {"/schedule", {{"count", 1}, {"best", "x"}}, "schedule.best, a number, got \"x\""},
      {"/config", 5, "config, an object, got 5"},
      {"/format", 3, "the state has format 3, which a newer halfstep wrote"},
      {"/format", "x", "format, an integer, got \"x\""}};
  for (const Case& c : cases) {
    CAPTURE(c.at);
    write(checkpoint / "state.json", state);
    set_state(checkpoint, c.at, c.value);
    const auto before = snapshot(dir / "r");
    const Ran r = dir.train("--resume auto"), stops = dir.train("--resume auto --set train.early_stopping.patience=3");
    CAPTURE(r.err);
    CHECK(r.code == 3);
    CHECK(stops.code == 3);
    CHECK(contains(r.err, c.said));
    CHECK_FALSE(shows_library_text(r.err));
    CHECK(snapshot(dir / "r") == before);
    const Ran ev = run(dir, "eval r");
    CHECK_FALSE(shows_library_text(ev.err));
    if (contains(c.at, "steps") || contains(c.at, "config") || contains(c.at, "format")) CHECK(ev.code == 3);
  }
  const Ran scaled = dir.train("--overwrite --set 'amp={\"dtype\":\"float16\"}'");
  REQUIRE(scaled.code == 0);
  set_state(checkpoint, "/scaler/scale", "big");
  const Ran scale = dir.train("--resume auto --set 'amp={\"dtype\":\"float16\"}'");
  CHECK(scale.code == 3);
  CHECK(contains(scale.err, "scaler.scale, a number, got \"big\""));

  for (const std::string broken : {"", "[]", "1", "{\"format\":[]}", "{\"format\":\"halfstep-checkpoint\"}", "\xff\xfe",
                                   "{\"format\":\"halfstep-checkpoint\",\"version\":1,\"files\":{\"model.safetensors\":[1]}}"}) {
    CAPTURE(broken);
    write(checkpoint / "manifest.json", broken);
    const Ran r = dir.train("--resume r/step-00000012");
    CAPTURE(r.err);
    CHECK(r.code == 3);
    CHECK(contains(r.err, "r/step-00000012/manifest.json: "));
    CHECK_FALSE(shows_library_text(r.err));
  }
  for (const std::string& name :
       {std::string(300, 'a'), std::string(5000, 'b'), std::string("tiny.json"), std::string("tiny.json/x")}) {
    const Ran r = dir.train("--set output_dir=" + name);
    CAPTURE(r.err);
    const bool too_long = name.size() > 255;  // found with the config
    CHECK(r.code == (too_long ? 2 : 1));
    CHECK(contains(r.err,
                   too_long ? "output_dir: may have 3500 bytes" : "[train] output_dir must be a folder that can be written, got "));
    CHECK_FALSE(shows_library_text(r.err));
    const Ran ev = run(dir, "eval " + name);
    CHECK(ev.code != 0);
    CHECK_FALSE(shows_library_text(ev.err));
    const Ran from = dir.train("--set output_dir=t --resume " + name);
    CHECK(from.code != 0);
    CHECK_FALSE(shows_library_text(from.err));
  }
  CHECK_FALSE(fs::exists(dir / "t"));
}

TEST_CASE("a run that is resumed with other data says so") {
  Folder dir;
  REQUIRE(dir.train("--set checkpoint.every=2 --set train.epochs=1").code == 0);
  const Ran more = dir.train("--set output_dir=s --resume r/step-00000002 --set data.train.num_batches=5");
  CHECK(more.code == 0);
  CHECK(contains(more.err, "data.train has 40 samples, but had 24 when the checkpoint was written"));
  const Ran fewer = dir.train("--set output_dir=t --resume r/step-00000002 --set data.train.num_batches=1");
  CHECK(fewer.code == 3);
  CHECK(contains(fewer.err, "[resume] the checkpoint was saved after batch 2 of an epoch, which has only 1 now"));
}
