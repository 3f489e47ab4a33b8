// SPDX-License-Identifier: Apache-2.0
// The program under mpirun: what several ranks write, and how they end.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <set>
#include <utility>

#include "tests/data/array_files.h"
#include "tests/ranks/short_run.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

struct Place : TempDir {
  Place() { write(*this / "c.json", kRun); }

  // `mpirun -np N halfstep train c.json ...`; "$M" in a command of a shell.
  std::string mpirun(int ranks) const {
    return std::string(HALFSTEP_MPIRUN_COMMAND) + " -np " + std::to_string(ranks) + " '" + program().string() + "' ";
  }
  Ran shell(const std::string& command) const {
    const int status = std::system(
        ("cd '" + path().string() + "' && { timeout -s KILL 90 " + command + "; } >out.txt 2>err.txt </dev/null").c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(*this / "out.txt"), read(*this / "err.txt")};
  }
  Ran train(int ranks, const std::string& options) const {
    return shell(mpirun(ranks) + "train c.json --quiet --threads 1 " + options);
  }
};

// A job that runs beside the test, and is ended with it.
class Job {
 public:
  Job(const Place& dir, int ranks, const std::string& options) : dir_(dir), pid_(fork()) {
    if (pid_ != 0) return;
    const std::string command = "cd '" + dir.path().string() + "' && exec " + dir.mpirun(ranks) +
                                "train c.json --quiet --threads 1 " + options + " >job.txt 2>&1 </dev/null";
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(99);
  }
  ~Job() {
    if (pid_ <= 0) return;
    for (int r = 0; r < 8; ++r)
      if (const pid_t p = rank(r)) kill(p, SIGKILL);
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Job(const Job&) = delete;

  // The process of a rank; 0 when there is none.
  pid_t rank(int r) const {
    std::error_code gone;
    for (const auto& entry : fs::directory_iterator("/proc", gone)) {
      const std::string pid = entry.path().filename().string();
      if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
      std::ifstream stat(entry.path() / "stat");
      std::string text;
      std::getline(stat, text);
      const size_t end = text.rfind(')');
      if (end == std::string::npos || std::atoi(text.c_str() + end + 4) != pid_) continue;
      std::ifstream environment(entry.path() / "environ");
      for (std::string line; std::getline(environment, line, '\0');)
        if (line == "OMPI_COMM_WORLD_RANK=" + std::to_string(r) || line == "PMI_RANK=" + std::to_string(r))
          return pid_t(std::stol(pid));
    }
    return 0;
  }
  void signal(int r, int number) const {
    const pid_t process = rank(r);
    REQUIRE(process > 0);
    kill(process, number);
  }
  bool wait_for_steps(int steps) const {
    return wait_until([&] { return complete_lines(dir_ / "r/metrics.jsonl") >= steps; });
  }
  std::string text() const { return read(dir_ / "job.txt"); }

  // Its exit code when it has ended, and how long that took.
  std::pair<int, double> ended() {
    const auto start = std::chrono::steady_clock::now();
    int status = 0;
    const bool done = wait_until([&] { return waitpid(pid_, &status, WNOHANG) == pid_; });
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!done) return {-1, took};
    pid_ = 0;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, took};
  }

 private:
  const Place& dir_;
  pid_t pid_;
};

}  // namespace

TEST_CASE("program: N ranks write what one process writes that accumulates N batches, in three dtypes") {
  const Place dir;
  for (const std::string amp : {"--set amp=false", "--set amp.dtype=bfloat16", "--set amp.dtype=float16"}) {
    CAPTURE(amp);
    for (const int n : {2, 4}) {
      const std::string many = "m" + std::to_string(n), one = "o" + std::to_string(n);
      const Ran ranks = dir.train(n, amp + " --json --overwrite --set output_dir=" + many);
      REQUIRE_MESSAGE(ranks.code == 0, ranks.err);
      const Ran alone = dir.shell(
          "'" + program().string() + "' train c.json --quiet --threads 1 --json --overwrite " + amp + " --set output_dir=" + one +
          " --set data.loader.batch_size=" + std::to_string(16 / n) + " --set train.accumulate_steps=" + std::to_string(n) +
          " --set data.train.num_batches=" + std::to_string(6 * n) + " --set data.val.num_batches=" + std::to_string(n));
      REQUIRE_MESSAGE(alone.code == 0, alone.err);
      CHECK(contents(dir / many, 18) == contents(dir / one, 18));
      CHECK(ranks.json()["val.accuracy"] == alone.json()["val.accuracy"]);
      CHECK(std::abs(ranks.json()["val.loss"].get<double>() - alone.json()["val.loss"].get<double>()) < 1e-6);
      CHECK(std::abs(ranks.json()["train.loss"].get<double>() - alone.json()["train.loss"].get<double>()) < 1e-5);
      CHECK(lines_of(dir / many / "metrics.jsonl").size() == 18 + 3 + 3);
      CHECK(lines_of(dir / many / "metrics.jsonl")[3].contains("rank_wait"));
    }
  }
}

TEST_CASE("program: ranks that share the optimizer's states write the same files, and any number of ranks continues from them") {
  const Place dir;
  const std::string half = " --set amp.dtype=float16 --set train.clip_grad_norm=1 --set train.ema.enabled=true";
  const std::string shared = half + " --set distributed.shard_optimizer=true", end = " --resume auto --set train.epochs=4";
  for (const auto& [name, keys] : {std::pair{"whole", half}, {"parts", shared}}) {
    const Ran ran = dir.train(3, std::string("--set output_dir=") + name + keys);
    REQUIRE_MESSAGE(ran.code == 0, ran.err);
  }
  CHECK(contents(dir / "whole", 15) == contents(dir / "parts", 15));
  CHECK(contents(dir / "whole", 18) == contents(dir / "parts", 18));
  // Two ranks continue what three wrote, and so does one process.
  fs::copy(dir / "parts", dir / "alone", fs::copy_options::recursive);
  REQUIRE(dir.train(2, "--set output_dir=whole" + half + end).code == 0);
  REQUIRE(dir.train(2, "--set output_dir=parts" + shared + end).code == 0);
  CHECK(contents(dir / "whole", 24) == contents(dir / "parts", 24));
  const Ran alone =
      dir.shell("'" + program().string() + "' train c.json --quiet --threads 1 --set output_dir=alone" + shared + end);
  CHECK_MESSAGE(alone.code == 0, alone.err);
}

TEST_CASE("program: ranks within a memory budget recompute the same modules, and write the same bits") {
  const Place dir;
  const std::string block = R"({"type": "Sequential", "layers": [{"type": "Linear", "out_features": 256}, "Tanh",
                                                                 {"type": "Linear", "out_features": 13}]})";
  const std::string wide = " --set data.loader.batch_size=1024 --set train.epochs=1 --set 'model.layers=[" + block + ", " + block +
                           ", " + block + R"(, {"type": "Linear", "out_features": "auto"}]' )";
  const Ran plan = dir.shell("'" + program().string() + "' plan c.json --json --ranks 2" + wide);
  REQUIRE_MESSAGE(plan.code == 0, plan.err);
  const int64_t peak = Json::parse(plan.out)["memory"]["later_steps"]["peak_bytes"];
  const std::string budget = "--set train.memory_budget=" + std::to_string(peak * 8 / 10);
  const Ran plain = dir.train(2, "--set output_dir=p" + wide), within = dir.train(2, "--set output_dir=w " + budget + wide);
  REQUIRE_MESSAGE(plain.code == 0, plain.err);
  REQUIRE_MESSAGE(within.code == 0, within.err);
  CHECK(contents(dir / "p", 6) == contents(dir / "w", 6));
  const Json chosen = Json::parse(read(dir / "w/run.json"))["starts"][0]["recomputation"];
  CHECK(chosen["modules"].size() > 0);
  CHECK(chosen["peak_bytes_before"] == peak);
  CHECK(chosen["peak_bytes_after"].get<int64_t>() <= peak * 8 / 10);
}

TEST_CASE("program: a fault in the rows of one rank is explained once, with that rank and its sample") {
  const Place dir;
  std::vector<float> x(64 * 3), y(64);
  for (size_t i = 0; i < x.size(); ++i) x[i] = float(i % 7) / 7;
  for (size_t i = 0; i < y.size(); ++i) y[i] = x[3 * i];
  x[3 * 21 + 1] = NAN;
  const auto file = [&](const char* name, const std::vector<float>& values, const char* shape) {
    write(dir / name, halfstep::testing::npy("<f4", shape, {reinterpret_cast<const char*>(values.data()), 4 * values.size()}));
  };
  file("x.npy", x, "(64, 3)");
  file("y.npy", y, "(64, 1)");
  const Ran r =
      dir.shell(dir.mpirun(2) +
                "train c.json --threads 1 --set amp.dtype=float16 --set amp.scaler.init_scale=256 --set data.val=null --set "
                "loss=MSELoss --set 'data.train={\"type\": \"NPY\", \"root\": \".\", \"input\": \"x.npy\", \"target\": "
                "\"y.npy\"}'");
  CAPTURE(r.out);
  CAPTURE(r.err);
  CHECK(r.code == 0);
  const std::string all = r.out + r.err;
  CHECK(all.find("input_nonfinite: the inputs of the batch hold NaN") == all.rfind("input_nonfinite"));
  CHECK(all.find("  rank      ") != std::string::npos);
  CHECK(all.find("(sample 21 of the data, counted from 0)") != std::string::npos);
}

TEST_CASE("program: ten samples, and batches of three, on four ranks") {
  const Place dir;
  for (
      const std::string data :
      {R"(--set data.train='{"type":"Digits","size":10}' --set data.val='{"type":"Digits","size":10}' )"
       R"(--set model.layers.0='"Flatten"' --set data.loader.batch_size=10)",
       R"(--set data.train='{"type":"Digits","size":10}' --set data.val='{"type":"Digits","size":7}' )"
       R"(--set model.layers.0='"Flatten"' --set data.loader.batch_size=3)"}) {
    const Ran many = dir.train(4, "--json --overwrite " + data),
              one = dir.shell("'" + program().string() + "' train c.json --quiet --json --overwrite --set output_dir=o " + data);
    REQUIRE_MESSAGE(many.code == 0, many.err);
    REQUIRE_MESSAGE(one.code == 0, one.err);
    for (const char* key : {"val.loss", "train.loss"})
      CHECK(std::abs(many.json()[key].get<double>() - one.json()[key].get<double>()) < 1e-5);
    CHECK(many.json()["val.accuracy"] == one.json()["val.accuracy"]);
    CHECK(many.json()["steps_applied"] == one.json()["steps_applied"]);
  }
}

TEST_CASE("program: ranks that were started differently are refused, with the difference") {
  const Place dir;
  const std::string train = "'" + program().string() + "' train c.json --quiet";
  const Ran r = dir.shell(std::string(HALFSTEP_MPIRUN_COMMAND) + " -np 1 " + train + " : -np 1 " + train +
                          " --set optimizer.lr=0.2 --overwrite");
  CHECK(r.code == 2);
  CHECK(contains(r.err, "[distributed] all ranks must be started with one config and the same options\n  rank 1: "));
  CHECK(contains(r.err, "config.optimizer.lr (0.2, 0.01 on rank 0)"));
  CHECK(contains(r.err, "options (\"--resume (none) --overwrite\", \"--resume (none)\" on rank 0)"));
  CHECK(!fs::exists(dir / "r"));
}

TEST_CASE("program: a launcher without the library that connects its ranks") {
  const Place dir;
  const Ran plugin = dir.shell("env HALFSTEP_MPI_PLUGIN=/nowhere.so OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 '" +
                               program().string() + "' train c.json --quiet");
  CHECK(plugin.code == 2);
  CHECK(contains(plugin.err, "[distributed] Open MPI started 2 ranks, but libhalfstep_mpi.so could not be opened: /nowhere.so"));
  CHECK(contains(plugin.err, "scripts/setup.sh --with mpi"));
  CHECK(!fs::exists(dir / "r"));
}

TEST_CASE("program: devices lists the ranks, and says whether NCCL is there") {
  const Place dir;
  const Ran ran = dir.shell(dir.mpirun(2) + "devices");
  CHECK(ran.code == 0);
  CHECK_MESSAGE(ran.out.find("rank 1   ") != std::string::npos, ran.out);
  const bool found = ran.out.find("between GPUs  NCCL 2.") != std::string::npos;
  CHECK_MESSAGE((found || ran.out.find("between GPUs  no NCCL: rank") != std::string::npos), ran.out);
}

TEST_CASE("program: a second run in the folder is refused by rank 0, and all end") {
  const Place dir;
  const Ran first = dir.shell(dir.mpirun(2) + "train c.json --threads 1");
  REQUIRE(first.code == 0);
  CHECK(contains(first.out, "epoch 3/3  train loss"));
  CHECK(first.out.find_first_of("\r\033") == std::string::npos);  // mpirun's terminal is nobody's
  const Ran again = dir.train(2, "");
  CHECK(again.code == 2);
  CHECK(contains(again.err, "already holds a run"));
}

TEST_CASE("program: kill -9 of a rank ends all; the checkpoint is whole, and two ranks resume from it as if nothing had happened") {
  const Place dir;
  int64_t step = 0;
  {
    Job job(dir, 4, kForever);
    REQUIRE(job.wait_for_steps(30));
    job.signal(2, SIGKILL);
    const auto [code, took] = job.ended();
    CHECK(code != 0);
    CHECK(took < 5);
  }
  const auto last = latest_checkpoint(dir / "r");
  REQUIRE(last);
  step = checkpoint_step(*last);
  REQUIRE(step >= 20);
  const std::string length = " --set train.epochs=null --set train.max_steps=", end = std::to_string(step + 10);
  const Ran on = dir.train(2, "--resume auto" + length + end);
  REQUIRE_MESSAGE(on.code == 0, on.err);
  // The same without the kill: four ranks until there, then two.
  REQUIRE(dir.train(4, "--set output_dir=u --set checkpoint.every='20 steps'" + length + std::to_string(step)).code == 0);
  REQUIRE(dir.train(2, "--set output_dir=u --resume auto" + length + end).code == 0);
  CHECK(contents(dir / "r", step + 10) == contents(dir / "u", step + 10));
}

TEST_CASE("program: a rank that is stopped is named, and all end, with a code of their own") {
  const Place dir;
  Job job(dir, 4, std::string(kForever) + " --set distributed.timeout_s=4");  // longer than a busy machine keeps a rank waiting
  REQUIRE(job.wait_for_steps(30));
  job.signal(1, SIGSTOP);
  const auto [code, took] = job.ended();
  CHECK(code == 74);
  CHECK(took < 7);
  CHECK(contains(job.text(), "did not end within 4 s: rank 1 does not answer"));
  CHECK(contains(job.text(), "start all ranks again with --resume auto"));
  CHECK(latest_checkpoint(dir / "r"));
}

TEST_CASE("program: a signal to one rank stops all at one step, after saving") {
  const Place dir;
  for (const int victim : {0, 3}) {
    fs::remove_all(dir / "r");
    Job job(dir, 4, kForever);
    REQUIRE(job.wait_for_steps(10));
    job.signal(victim, SIGUSR1);
    const auto [code, took] = job.ended();
    CHECK(code == 75);
    CHECK(took < 5);
    const auto last = latest_checkpoint(dir / "r");
    REQUIRE(last);
    const int64_t step = checkpoint_step(*last);
    CHECK(lines_of(dir / "r/metrics.jsonl").back()["step"].get<int64_t>() == step);
    const Ran on = dir.train(2, "--resume auto --json --set train.epochs=null --set train.max_steps=" + std::to_string(step + 1));
    CHECK_MESSAGE(on.code == 0, on.err);
    CHECK(on.json()["steps_applied"] == step + 1);
  }
}

TEST_CASE("program: an interval in seconds is rank 0's, on all of them") {
  const Place dir;
  // On a busy machine each step takes longer than an interval and is saved, so there are few.
  const Ran r = dir.train(
      3,
      R"(--json --set train.epochs=null --set train.max_steps=200 --set checkpoint.every="0.02 s" )"
      R"(--set train.eval_every="0.03 s" --set logging.every="0.01 s")");
  REQUIRE_MESSAGE(r.code == 0, r.err);
  CHECK(list_checkpoints(dir / "r").size() > 1);
  CHECK(r.json()["steps_applied"] == 200);
}

TEST_CASE("program: running statistics are averaged before they are saved and used") {
  const Place dir;
  const std::string norm =
      R"(--set model.layers.1='"BatchNorm1d"' --set model.layers.2='"Tanh"' --set optimizer='{"type":"SGD","lr":0.1}' )"
      R"(--set train.epochs=1)";
  const Ran r = dir.train(2, "--json " + norm);
  REQUIRE_MESSAGE(r.code == 0, r.err);
  // One process that evaluates the checkpoint gets the ranks' results.
  const Ran eval = dir.shell("'" + program().string() + "' eval r/latest --split val --json");
  REQUIRE_MESSAGE(eval.code == 0, eval.err);
  CHECK(std::abs(eval.json()["val.loss"].get<double>() - r.json()["val.loss"].get<double>()) < 1e-6);
  // Over ranks they are those of the whole batch.
  const Ran sync = dir.train(2, "--json --overwrite --set distributed.sync_batch_norm=true " + norm),
            one = dir.shell("'" + program().string() + "' train c.json --quiet --json --set output_dir=o " + norm);
  REQUIRE_MESSAGE(sync.code == 0, sync.err);
  REQUIRE_MESSAGE(one.code == 0, one.err);
  CHECK(std::abs(sync.json()["val.loss"].get<double>() - one.json()["val.loss"].get<double>()) < 1e-5);
  CHECK(std::abs(r.json()["val.loss"].get<double>() - one.json()["val.loss"].get<double>()) > 1e-5);
}

TEST_CASE("verify starts ranks, which give the bits of one process that accumulates") {
  const Place dir;
  const Ran r = dir.shell("'" + program().string() + "' verify c.json --steps 4 --threads 2");
  CAPTURE(r.out);
  CAPTURE(r.err);
  CHECK(r.code == 0);
  CHECK(contains(r.out, "2 ranks               equal, 4 steps"));
}
