// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl, and what counts as the best checkpoint.
#include "framework/io/checkpoint/checkpoint.h"
#include "tests/apps/tiny_run.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

TEST_CASE("keep_best with the training loss and no validation data") {
  Folder dir;
  const std::string options = "--set data.val=null --set checkpoint.keep_best=1 --set checkpoint.monitor=train/loss ";
  REQUIRE(dir.train(options).code == 0);
  CHECK(read(dir / "r/best") == "step-00000012\n");  // the loss of such data falls
  CHECK(run(dir, "eval r/best --split train").code == 0);
  // Also when training ends inside its first epoch.
  REQUIRE(dir.train(options + "--overwrite --set train.epochs=null --set train.max_steps=2").code == 0);
  CHECK(read(dir / "r/best") == "step-00000002\n");
}

TEST_CASE("metrics: what a line holds, and no line twice") {
  Folder dir;
  REQUIRE(dir.train("--set train.clip_grad_norm=0.5 --set checkpoint.every=3").code == 0);
  const auto lines = lines_of(dir / "r/metrics.jsonl");
  REQUIRE(lines.size() == 20);  // 12 steps, 4 evaluations, 4 epochs
  for (const Json& line : lines) {
    CAPTURE(line.dump());
    if (line.contains("val/loss") || line.contains("train/epoch_loss")) continue;
    for (const char* key : {"samples_per_second", "data_wait", "peak_bytes", "grad_norm"}) REQUIRE(line[key].is_number());
    CHECK(line["samples_per_second"] > 0);
    CHECK(line["data_wait"].get<double>() >= 0);
    CHECK(line["data_wait"].get<double>() <= 1);
    CHECK(line["peak_bytes"] > 0);
    CHECK(line["grad_norm"] > 0);
  }

  // The checkpoint of step 9 is of before its evaluation, which comes again; the line of the step does not.
  const auto keys = [&] {
    std::vector<std::pair<int64_t, bool>> out;
    for (const Json& line : lines_of(dir / "r/metrics.jsonl")) out.push_back({line["step"], line.contains("val/loss")});
    return out;
  };
  const auto want = keys();
  const std::string all = read(dir / "r/metrics.jsonl");
  set_state(dir / "r/step-00000009", "/trainer/last_eval_step", 6);
  set_state(dir / "r/step-00000009", "/loader", {{"epoch", 2}, {"next_batch", 3}});
  write(dir / "r/metrics.jsonl", all + "{\"step\":\"nine\"}\n[1]\n{\"step\":13,");
  const Ran resumed = dir.train("--set train.clip_grad_norm=0.5 --set checkpoint.every=3 --resume r/step-00000009");
  CAPTURE(resumed.err);
  CHECK(resumed.code == 0);
  CHECK(keys() == want);
  CHECK(contains(resumed.err, "metrics.jsonl: left out lines that are not metrics of a run, 3 in all"));
  CHECK_FALSE(shows_library_text(resumed.err));
  // Without clipping nobody pays for a norm.
  REQUIRE(dir.train("--overwrite").code == 0);
  CHECK_FALSE(contains(read(dir / "r/metrics.jsonl"), "grad_norm"));
}

TEST_CASE("metrics that cannot be written: a warning, a count, exit code 1, and the checkpoints all the same") {
  Folder dir;
  // Room for the files of a checkpoint, not for the metrics of 300 steps.
  const std::string command = "cd '" + dir.path().string() + "' && ulimit -f 32 && '" + program().string() +
                              "' train tiny.json --threads 1 --json --set train.epochs=100 --set checkpoint.every=\"50 epochs\" "
                              "--set checkpoint.keep_best=0 >out 2>err";
  const int status = std::system(command.c_str());
  const std::string err = read(dir / "err");
  CAPTURE(err);
  CHECK(WEXITSTATUS(status) == 1);
  CHECK(contains(err, "cannot write r/metrics.jsonl: File too large; training continues without these lines"));
  const Json summary = Json::parse(read(dir / "out"));
  const int64_t lost = summary["metrics_lines_lost"];
  CHECK(lost > 0);
  CHECK(contains(err, std::to_string(lost) + " lines of metrics lost"));
  CHECK(lines_of(dir / "r/metrics.jsonl").size() + size_t(lost) == 500);  // whole lines only
  CHECK(run(dir, "eval r").code == 0);
  CHECK(summary["steps_applied"] == 300);
  // One that cannot be opened ends the run before it begins.
  fs::remove(dir / "r/metrics.jsonl");
  fs::create_directory(dir / "r/metrics.jsonl");
  const Ran r = dir.train("--resume auto");
  CHECK(r.code == 1);
  CHECK(contains(r.err, "[metrics] r/metrics.jsonl must be a regular file"));
}
