// SPDX-License-Identifier: Apache-2.0
// The program on ranks that were started without MPI: how they meet, what they write, and how they end.
#include <netinet/in.h>
#include <sys/socket.h>

#include <vector>

#include "tests/ranks/short_run.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

struct Place : TempDir {
  Place() { write(*this / "c.json", kRun); }
  std::string by_file() const { return "HALFSTEP_RENDEZVOUS_FILE=" + (*this / "meet").string(); }
};

std::string by_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  socklen_t length = sizeof any;
  bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof any);
  getsockname(fd, reinterpret_cast<sockaddr*>(&any), &length);
  close(fd);
  return "MASTER_ADDR=localhost MASTER_PORT=" + std::to_string(ntohs(any.sin_port));
}

// Processes of a job, each with its RANK; they are ended with it.
class Ranks {
 public:
  Ranks(const Place& dir, int ranks, const std::string& environment, const std::string& options) : dir_(dir) {
    for (int r = 0; r < ranks; ++r) {
      const std::string command = "cd '" + dir.path().string() + "' && exec env RANK=" + std::to_string(r) +
                                  " WORLD_SIZE=" + std::to_string(ranks) + ' ' + environment + " '" + program().string() +
                                  "' train c.json --quiet --threads 1 " + options + " >" + file(r) + " 2>&1 </dev/null";
      const pid_t pid = fork();
      if (pid == 0) {
        execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
        _exit(99);
      }
      pids_.push_back(pid);
    }
  }
  ~Ranks() {
    for (const pid_t pid : pids_)
      if (pid > 0) kill(pid, SIGKILL), waitpid(pid, nullptr, 0);
  }
  Ranks(const Ranks&) = delete;
  void signal(int r, int number) const { kill(pids_[size_t(r)], number); }
  int code(int r) {
    int status = 0;
    pid_t& pid = pids_[size_t(r)];
    if (!wait_until([&] { return waitpid(pid, &status, WNOHANG) == pid; })) return -1;
    pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string text(int r) const { return read(dir_ / file(r)); }

 private:
  static std::string file(int r) { return "rank" + std::to_string(r) + ".txt"; }
  const Place& dir_;
  std::vector<pid_t> pids_;
};

}  // namespace

TEST_CASE("gloo: two ranks write what one process writes that accumulates two batches") {
  const Place dir;
  Ranks ranks(dir, 2, by_port(), "");
  for (const int r : {0, 1}) CHECK_MESSAGE(ranks.code(r) == 0, ranks.text(r));
  const Ran alone = run(dir,
                        "train c.json --quiet --threads 1 --set output_dir=o --set data.loader.batch_size=8 --set "
                        "train.accumulate_steps=2 --set data.train.num_batches=12 --set data.val.num_batches=2");
  REQUIRE_MESSAGE(alone.code == 0, alone.err);
  CHECK(contents(dir / "r", 18) == contents(dir / "o", 18));
}

TEST_CASE("gloo: a rank that is killed, or stopped, is named, and the others end") {
  const Place dir;
  for (const int victim : {0, 1}) {
    CAPTURE(victim);
    fs::remove_all(dir / "r");
    const bool stop = victim == 1;
    Ranks ranks(dir, 3, dir.by_file(), std::string(kForever) + " --set distributed.timeout_s=" + (stop ? "1" : "60"));
    REQUIRE(wait_until([&] { return complete_lines(dir / "r/metrics.jsonl") >= 25; }));
    ranks.signal(victim, stop ? SIGSTOP : SIGKILL);
    const auto start = std::chrono::steady_clock::now();
    for (const int r : {0, 1, 2}) {
      if (r == victim) continue;
      CHECK(ranks.code(r) == 74);
      CHECK(contains(ranks.text(r), "rank " + std::to_string(victim)));
    }
    CHECK(contains(ranks.text(2) + ranks.text(1 - victim), "rank " + std::to_string(victim) + " does not answer"));
    CHECK(contains(ranks.text(2), "start all ranks again with --resume auto"));
    CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < (stop ? 3 : 5));
    CHECK(latest_checkpoint(dir / "r"));
  }
}

TEST_CASE("gloo: ranks that cannot meet end, and say why; they are not four runs beside each other") {
  const Place dir;
  {
    Ranks nowhere(dir, 2, "", "");
    for (const int r : {0, 1}) CHECK(nowhere.code(r) == 2);
    CHECK(contains(nowhere.text(0), "[distributed] WORLD_SIZE is 2, but nothing says where the ranks meet\nhelp: mpirun -np 2, "));
    CHECK(contains(nowhere.text(0), "MASTER_ADDR"));
  }
  {
    Ranks plugin(dir, 2, "HALFSTEP_GLOO_PLUGIN=/nowhere.so " + by_port(), "");
    CHECK(plugin.code(0) == 2);
    CHECK(contains(plugin.text(0), "one of 2 ranks, but libhalfstep_gloo.so could not be opened: /nowhere.so"));
    CHECK(contains(plugin.text(0), "scripts/setup.sh --with gloo"));
  }
  {
    Ranks late(dir, 1, dir.by_file() + " WORLD_SIZE=3", "--set distributed.timeout_s=0.3");
    CHECK(late.code(0) == 74);
    CHECK(contains(late.text(0), "[distributed] ranks 1 and 2 did not come within 0.3 s\nhelp: "));
  }
  CHECK(!fs::exists(dir / "r"));
}

TEST_CASE("verify starts ranks, which give the bits of one process that accumulates") {
  const Place dir;
  const Ran r = run(dir, "verify c.json --steps 4 --threads 2");
  CAPTURE(r.out);
  CAPTURE(r.err);
  CHECK(r.code == 0);
  CHECK(contains(r.out, "2 ranks               equal, 4 steps"));
}
