// SPDX-License-Identifier: Apache-2.0
// run.json, and the forms that metrics are written in. tests/apps/record/sinks_check.py reads them with TensorBoard and pandas.
#include "apps/record/metric_sinks.h"

#include <algorithm>
#include <sstream>

#include "framework/io/checkpoint/checkpoint.h"
#include "tests/apps/tiny_run.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

TEST_CASE("run.json: every start, the ending, and what --json prints") {
  Folder dir;
  const Ran first = dir.train("--json --set train.epochs=2");
  REQUIRE(first.code == 0);
  Json record = Json::parse(read(dir / "r/run.json"));
  CHECK(record["version"] == 1);
  CHECK(record["ending"] == "finished");
  CHECK(record["summary"] == first.json());
  REQUIRE(record["starts"].size() == 1);
  for (const char* key : {"time", "halfstep", "commit", "compiler", "device", "host"})
    CHECK(record["starts"][0][key].get<std::string>() != "");
  CHECK(record["starts"][0]["threads"] == 1);
  CHECK(record["starts"][0]["ranks"] == 1);
  CHECK(contains(record["starts"][0]["command"].dump(), "\"train\",\"tiny.json\""));

  REQUIRE(dir.train("--resume auto --set logging.machine=false").code == 0);
  record = Json::parse(read(dir / "r/run.json"));
  REQUIRE(record["starts"].size() == 2);
  CHECK(record["starts"][1]["step"] == 6);
  CHECK_FALSE(record["starts"][1].contains("host"));
  CHECK_FALSE(record["starts"][1].contains("command"));
  // One that was damaged begins anew, with a warning.
  write(dir / "r/run.json", "{\"starts\": 3}");
  const Ran again = dir.train("--resume auto");
  CHECK(again.code == 0);
  CHECK(contains(again.err, "r/run.json is not what halfstep writes; it begins anew"));
  CHECK(Json::parse(read(dir / "r/run.json"))["starts"].size() == 1);
  REQUIRE(dir.train("--overwrite").code == 0);
  CHECK(Json::parse(read(dir / "r/run.json"))["starts"][0]["step"] == 0);
}

TEST_CASE("train --lines prints the lines of metrics.jsonl, and the result last") {
  Folder dir;
  const Ran ran = dir.train("--lines");
  REQUIRE(ran.code == 0);
  const size_t last = ran.out.rfind('\n', ran.out.size() - 2) + 1;
  CHECK(ran.out.substr(0, last) == read(dir / "r/metrics.jsonl"));
  CHECK(ran.json() == Json::parse(read(dir / "r/run.json"))["summary"]);
  // A run that resumes prints its own lines alone.
  const Ran more = dir.train("--resume auto --lines --set train.epochs=5");
  REQUIRE(more.code == 0);
  const size_t end = more.out.rfind('\n', more.out.size() - 2) + 1;
  CHECK(read(dir / "r/metrics.jsonl") == ran.out.substr(0, last) + more.out.substr(0, end));
  // Without files of metrics there are lines all the same, and still no files.
  const Ran none = dir.train("--lines --set output_dir=n --set logging.sinks=[] --set diagnostics.every=1");
  REQUIRE(none.code == 0);
  CHECK(std::count(none.out.begin(), none.out.end(), '\n') == std::count(ran.out.begin(), ran.out.end(), '\n'));
  CHECK_FALSE(fs::exists(dir / "n/metrics.jsonl"));
  CHECK_FALSE(fs::exists(dir / "n/observed.jsonl"));
  CHECK(dir.train("--lines --dry-run").code == 2);
}

TEST_CASE("run.json of a run that diverges, and of one that is killed") {
  Folder dir;
  const Ran bad = dir.train("--set optimizer.lr=1e39 --set train.epochs=50");
  REQUIRE(bad.code == 4);
  Json record = Json::parse(read(dir / "r/run.json"));
  CHECK(record["ending"] == "failed");
  CHECK(contains(record["summary"]["error"].get<std::string>(), "diverged"));
  CHECK(record["ended"].is_string());
  {
    Child child(dir, "train tiny.json --quiet --overwrite --set output_dir=k --set train.epochs=1000000");
    REQUIRE(child.until([&] { return read(dir / "k/metrics.jsonl").size() > 1000; }));
    child.end(SIGKILL);
  }
  record = Json::parse(read(dir / "k/run.json"));
  CHECK(record["ending"] == "running");
  CHECK(record["ended"].is_null());
}

TEST_CASE("metrics: each epoch has a line with its loss, whatever logging.every says") {
  Folder dir;
  for (const char* every : {"never", "1 epoch", "50 steps"}) {
    CAPTURE(every);
    const Ran ran = dir.train("--overwrite --json --set logging.every='\"" + std::string(every) + "\"'");
    REQUIRE(ran.code == 0);
    std::vector<Json> epochs;
    for (const Json& line : lines_of(dir / "r/metrics.jsonl"))
      if (line.contains("train/epoch_loss")) epochs.push_back(line);
    REQUIRE(epochs.size() == 4);
    for (size_t i = 0; i < 4; ++i) CHECK(epochs[i]["epoch"] == i + 1);
    CHECK(epochs[3]["train/epoch_loss"] == ran.json()["train.loss"]);
    CHECK(epochs[0].contains("lr") == (every == std::string("1 epoch")));
  }
}

TEST_CASE("metrics.csv has the numbers of metrics.jsonl, also after a resume from the middle") {
  Folder dir;
  const std::string options =
      "--set 'logging.sinks=[\"jsonl\",\"csv\",\"csv\"]' --set checkpoint.every=3 --set checkpoint.keep_last=9 ";
  REQUIRE(dir.train(options).code == 0);
  const auto compare = [&] {
    const std::vector<Json> lines = lines_of(dir / "r/metrics.jsonl");
    std::istringstream csv(read(dir / "r/metrics.csv"));
    const auto cells = [&] {
      std::string line, cell;
      std::getline(csv, line);
      std::istringstream rest(line);
      std::vector<std::string> out;
      while (std::getline(rest, cell, ',')) out.push_back(cell);
      return out;
    };
    const std::vector<std::string> head = cells();
    CHECK(std::find(head.begin(), head.end(), "val/loss") != head.end());
    for (const Json& line : lines) {
      CAPTURE(line.dump());
      const std::vector<std::string> row = cells();
      size_t filled = 0, numbers = 0;
      for (size_t i = 0; i < row.size(); ++i) {
        if (row[i].empty()) continue;
        ++filled;
        REQUIRE(line.contains(head[i]));
        CHECK(row[i] == line[head[i]].dump());
      }
      for (const auto& [name, value] : line.items()) numbers += value.is_number();
      CHECK(filled == numbers);
    }
    CHECK(cells().empty());
    return lines.size();
  };
  const size_t whole = compare();
  REQUIRE(dir.train(options + "--resume r/step-00000006").code == 0);
  CHECK(compare() == whole);
}

TEST_CASE("metrics.csv: names with commas and quotes, values that are not finite, and tables") {
  TempDir dir;
  {
    CsvSink sink(dir / "m.csv", {});
    sink.write({{"step", 1}, {"attempted", 1}, {"val/a,\"b\"", 0.5}, {"table", {1, 2}}});
    sink.write({{"step", 2}, {"attempted", 2}, {"val/loss", nullptr}});
    CHECK(sink.lost() == 0);
  }
  const std::string head = "step,attempted,\"val/a,\"\"b\"\"\",val/loss\n";
  CHECK(read(dir / "m.csv") == head + "1,1,0.5\n2,2,,nan\n");
  { CsvSink resumed(dir / "m.csv", {.step = 2, .last_log_step = 2}); }  // the evaluation of step 2 comes again
  CHECK(read(dir / "m.csv") == head + "1,1,0.5\n");
}

TEST_CASE("event files: one each time a run starts, moved away with a run that is overwritten") {
  Folder dir;
  const std::string options = "--set 'logging.sinks=[\"tensorboard\"]' ";
  const auto files = [&] {
    size_t n = 0;
    for (const auto& entry : fs::directory_iterator(dir / "r")) n += entry.path().filename().string().starts_with(kEventsPrefix);
    return n;
  };
  REQUIRE(dir.train(options + "--set train.epochs=2").code == 0);
  CHECK(files() == 1);
  REQUIRE(dir.train(options + "--resume auto").code == 0);
  CHECK(files() == 2);
  REQUIRE(dir.train(options + "--overwrite").code == 0);
  CHECK(files() == 1);
  CHECK_FALSE(fs::exists(dir / "r/metrics.jsonl"));
}
