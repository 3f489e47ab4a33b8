// SPDX-License-Identifier: Apache-2.0
// The program as a process: its standard streams, and the signals it gets.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "framework/io/checkpoint/checkpoint.h"
#include "tests/apps/support.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

const char* kLongConfig = R"({
  "name": "long", "output_dir": "r", "device": "cpu",
  "model": {"type": "Linear", "out_features": "auto"},
  "loss": "CrossEntropyLoss", "optimizer": {"type": "SGD", "lr": 0.1},
  "data": {"train": {"type": "Random", "num_batches": 3, "input_shape": [4], "classes": 3}, "loader": {"batch_size": 8}},
  "train": {"epochs": 100000000}, "logging": {"every": 1}, "checkpoint": {"every": "never"}
})";

struct Folder : TempDir {
  Folder() { write(*this / "long.json", kLongConfig); }
};

// `command` of a shell in the folder; $H is the program.
int shell(const TempDir& dir, const std::string& command) {
  const int status =
      std::system(("cd '" + dir.path().string() + "' && H='" + program().string() + "' && { " + command + "; }").c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("output that cannot be written is an error of any command") {
  const Folder dir;
  for (const std::string command :
       {"ops", "ops --json", "devices", "--help", "--version", "validate long.json", "train long.json --dry-run"}) {
    CAPTURE(command);
    CHECK(shell(dir, "\"$H\" " + command + " >/dev/full 2>err") == 1);
    CHECK(contains(read(dir / "err"), "[halfstep] some output could not be written"));
  }
  // Training is done and saved nevertheless.
  CHECK(shell(dir, "\"$H\" train long.json --set output_dir=s --set train.epochs=2 --set checkpoint.every=1 >/dev/full 2>err") ==
        1);
  CHECK(contains(read(dir / "err"), "could not be written"));
  CHECK(list_checkpoints(dir / "s").back() == 6);
  // A command's own error comes first.
  CHECK(shell(dir, "\"$H\" validate none.json >/dev/full 2>err") == 2);
}

TEST_CASE("closed standard streams: nothing that is printed lands in a file") {
  const Folder dir;
  for (const std::string closed : {">&-", "2>&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"}) {
    CAPTURE(closed);
    CHECK(shell(dir, "\"$H\" train long.json --set train.epochs=3 --set checkpoint.every=1 " + closed) == 0);
    std::ifstream metrics(dir / "r/metrics.jsonl");
    int lines = 0;
    for (std::string line; std::getline(metrics, line); ++lines) CHECK(Json::accept(line));
    CHECK(lines == 12);
    for (const char* file : {"config.resolved.json", "step-00000009/state.json", "step-00000009/manifest.json"})
      CHECK(Json::accept(read(dir / "r" / file)));
    fs::remove_all(dir / "r");
  }
}

TEST_CASE("a signal before training ends the run with its code, and nothing is written") {
  const Folder dir;
  for (const auto& each : {std::pair{SIGTERM, 75}, std::pair{SIGUSR1, 75}, std::pair{SIGHUP, 75}, std::pair{SIGINT, 130}}) {
    const int signal = each.first, code = each.second;
    CAPTURE(signal);
    // Its data comes when the signal has.
    fs::remove(dir / "t.csv");
    REQUIRE(mkfifo((dir / "t.csv").c_str(), 0600) == 0);
    Child child(dir, "train long.json --set 'data.train={\"type\":\"CSV\",\"path\":\"t.csv\"}' --set data.root=.");
    REQUIRE(child.until([&] { return child.catches(signal); }));
    child.send(signal);
    child.until([&] {
      const int fd = open((dir / "t.csv").c_str(), O_WRONLY | O_NONBLOCK);
      if (fd >= 0) CHECK(::write(fd, "1,2,a\n3,4,b\n", 12) == 12);
      if (fd >= 0) close(fd);
      return false;
    });
    CHECK(child.wait() == code);
    CHECK(contains(child.output(), "before training began; nothing was changed"));
    CHECK_FALSE(fs::exists(dir / "r"));
  }
}

TEST_CASE("signals while training: the first saves, others do not hurry it, nohup is respected") {
  const Folder dir;
  const auto begun = [&] { return read(dir / "r/metrics.jsonl").size() > 1000; };
  {
    Child child(dir, "train long.json");
    REQUIRE(child.until(begun));
    for (int i = 0; i < 200; ++i) child.send(i % 2 ? SIGTERM : SIGHUP);
    CHECK(child.wait() == 75);
    CHECK(list_checkpoints(dir / "r").size() == 1);
    CHECK_NOTHROW(load_checkpoint(dir / "r"));
  }
  fs::remove_all(dir / "r");
  {
    std::signal(SIGHUP, SIG_IGN);  // which the child inherits
    Child child(dir, "train long.json");
    std::signal(SIGHUP, SIG_DFL);
    REQUIRE(child.until(begun));
    child.send(SIGHUP);
    const size_t before = read(dir / "r/metrics.jsonl").size();
    CHECK(child.until([&] { return read(dir / "r/metrics.jsonl").size() > before + 2000; }));
    CHECK(child.end(SIGTERM) == 75);
  }
}

TEST_CASE("a run outlives the reader of its output") {
  const Folder dir;
  shell(
      dir,
      "{ \"$H\" train long.json --set train.epochs=300 --set checkpoint.every='300 epochs' 2>err; echo $? >code; } | head -1 >out");
  CHECK(contains(read(dir / "out"), "long: 15 parameters"));
  CHECK(read(dir / "code") == "1\n");
  CHECK(contains(read(dir / "err"), "could not be written"));
  CHECK(list_checkpoints(dir / "r") == std::vector<int64_t>{900});
}
