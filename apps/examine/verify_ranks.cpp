// SPDX-License-Identifier: Apache-2.0
// Starts ranks as processes of this program, as a launcher would, and compares them with this process, in which their parts of each
// batch are micro-batches of one step.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <thread>
#include <utility>

#include "apps/catalog/infer.h"
#include "apps/examine/verify.h"
#include "apps/exit_codes.h"
#include "apps/session/session.h"
#include "apps/terminal/signals.h"
#include "framework/backend/backend.h"
#include "framework/comm/launcher.h"
#include "framework/comm/plugin.h"
#include "framework/data/loading/loader.h"
#include "framework/io/files/atomic_file.h"

extern char** environ;

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;
constexpr const char* kVerify = "verify";
constexpr int kSignalBase = 128;  // exit code of a shell for signal n: 128 + n

// Processes that are killed with this object.
class RankProcesses {
 public:
  [[nodiscard]] RankProcesses() = default;
  ~RankProcesses() {
    for (const pid_t pid : pids_) kill(pid, SIGKILL), waitpid(pid, nullptr, 0);
  }
  RankProcesses(const RankProcesses&) = delete;

  // Starts a process whose output goes to `log`.
  void start(const std::vector<std::string>& command, const std::vector<std::string>& variables, const fs::path& log) {
    std::vector<std::string> words = command, environment = variables;
    for (char** v = environ; *v; ++v) environment.push_back(*v);
    const auto pointers = [](std::vector<std::string>& texts) {
      std::vector<char*> out;
      for (std::string& text : texts) out.push_back(text.data());
      out.push_back(nullptr);
      return out;
    };
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    pid_t pid = 0;
    const int error = posix_spawnp(&pid, words[0].c_str(), &files, nullptr, pointers(words).data(), pointers(environment).data());
    posix_spawn_file_actions_destroy(&files);
    check<IoError>(error == 0, kVerify, "cannot start ", words[0]);
    pids_.push_back(pid);
  }
  // Returns the exit code of the first process that failed, and its number; 0 if none did. Processes that only lost a peer come
  // last.
  std::pair<int, size_t> wait() {
    constexpr std::chrono::milliseconds kPollInterval(5);
    std::pair<int, size_t> out{0, 0};
    for (size_t i = 0; i < pids_.size(); ++i) {
      int status = 0;
      while (waitpid(pids_[i], &status, WNOHANG) == 0) {
        check_not_stopped(kVerify);
        std::this_thread::sleep_for(kPollInterval);
      }
      const int code = WIFEXITED(status) ? WEXITSTATUS(status) : kSignalBase + WTERMSIG(status);
      if (code != 0 && (out.first == 0 || out.first == kPeerLost)) out = {code, i};
    }
    pids_.clear();
    return out;
  }

 private:
  std::vector<pid_t> pids_;
};

// Returns why docs/distributed.md promises nothing for this config; empty if it does.
std::string reason_for_no_promise(const Config& c) {
  const std::string data = c.data.train.dump();
  if (c.json["data"]["loader"]["stateful"] == true) return "stateful streams are read in one process";
  if (c.distributed.sync_batch_norm || c.model.dump().find("\"sync\":true") != std::string::npos)
    return "batch normalisation over ranks is not that of micro-batches";
  if (data.find("\"Mixup\"") != std::string::npos || data.find("\"CutMix\"") != std::string::npos)
    return "Mixup and CutMix mix the samples of one rank's part";
  if (c.calibrates_scale) return "amp.scaler.init_scale \"auto\" is measured on other micro-batches";
  if (c.optimizer["type"] == "LBFGS") return "LBFGS evaluates the loss itself, in one process";
  if (c.scheduler.dump().find("\"ReduceLROnPlateau\"") != std::string::npos) return "the schedule looks at evaluations";
  if (c.distributed.wire != "float32" || c.distributed.sum != "ordered")
    return "distributed.wire or .sum rounds the sums otherwise";
  return "";
}

// Trains in one process: each step takes the parts of all ranks in order. The trace ends where they differ in size and the model
// draws random numbers, after which nothing is promised.
StateTrace train_in_micro_batches(const Config& config, int ranks, int64_t steps) {
  Session session = make_session(config, nullptr, FirstValues::with_files);
  TrainStepOptions options = step_options(config);
  options.accumulate_steps = ranks;
  TrainStep step(*session.model, *session.loss, *session.optimizer, session.scaler, session.schedule.get(), options);
  session.model->train();
  const Generator::State unused = default_generator().state();
  StateTrace out;
  int64_t applied = 0;  // the ranks' checkpoint counts applied steps
  while (applied < std::min(steps, session.total_steps)) {
    std::optional<Batch> batch;
    if (session.train->state().next_batch < session.batches_per_epoch) batch = session.train->next();
    if (!batch) {
      session.train->set_state({session.train->state().epoch + 1, 0});
      continue;
    }
    const Batch all_rows = on_device(*batch, session.device);
    if (all_rows.input.size(0) % ranks != 0 && default_generator().state() != unused) break;
    StepResult last;
    for (int r = 0; r < ranks; ++r) {
      const BatchRows rows = part_of(all_rows.input.size(0), r, ranks);
      if (rows.rows > 0)
        last = step(all_rows.input.narrow(0, rows.first, rows.rows), all_rows.target.narrow(0, rows.first, rows.rows));
    }
    if (!last.stepped) last = step.flush();
    if (last.outcome.applied()) out[++applied] = state_hashes(pack(session, config.json, {}), *session.model);
  }
  return out;
}

// Runs ranks over Gloo if its plugin can be opened, else by mpirun. Returns the first line of an error.
std::string run_ranks(const VerifyOptions& options, const fs::path& config, const fs::path& scratch) {
  const std::vector<std::string> train{
      options.program.string(),     "train", config.string(), "--quiet", "--threads", std::to_string(num_threads()), "--until",
      std::to_string(options.steps)};
  RankProcesses processes;
  if (!plugin_fault(TransportKind::gloo)) {
    for (int r = 0; r < options.ranks; ++r)
      processes.start(
          train,
          {joined("RANK=", r), joined("WORLD_SIZE=", options.ranks), "HALFSTEP_RENDEZVOUS_FILE=" + (scratch / "meet").string()},
          scratch / joined("rank-", r, ".txt"));
  } else {
    std::vector<std::string> command{"mpirun", "-np", std::to_string(options.ranks)};
    command.insert(command.end(), train.begin(), train.end());
    processes.start(command,
                    {"OMPI_MCA_rmaps_base_oversubscribe=1", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"},
                    scratch / "rank-0.txt");
  }
  constexpr size_t kMostLogBytes = size_t(1) << 20;
  const auto [code, rank] = processes.wait();
  if (code == 0) return "";
  const std::string text = read_file(scratch / joined("rank-", rank, ".txt"), kMostLogBytes);
  return joined("rank ", rank, " ended with code ", code, ": ", text.substr(0, text.find('\n')));
}

}  // namespace

Check verify_ranks(const Config& given, const VerifyOptions& options, const fs::path& scratch) {
  Check out{.name = joined(options.ranks, " ranks"), .result = Check::Result::not_run, .why = reason_for_no_promise(given)};
  if (!out.why.empty()) return out;
  if (detect_launch().size > 1 || options.program.empty()) {
    out.why = "this process does not start others";
    return out;
  }
  const std::optional<std::string> no_gloo = plugin_fault(TransportKind::gloo), no_mpi = plugin_fault(TransportKind::mpi);
  if (no_gloo && no_mpi) {
    out.why = "neither Gloo nor MPI is built in or found";
    return out;
  }
  const Config config = resolve_config(
      given.json, "the config",
      {.sets = {"train.accumulate_steps=1", R"(train.eval_every="never")", "logging.sinks=[]", R"(checkpoint.every="1 steps")",
                "checkpoint.keep_last=0", "checkpoint.keep_best=0", "checkpoint.resume=null", "train.early_stopping=null",
                "diagnostics.capsules=0", "distributed.timeout_s=120", "output_dir=" + (scratch / "ranks").string()}});
  const ThreadsScope threads(std::max(1, num_threads() / options.ranks));  // of each rank, and of the one process
  const fs::path file = scratch / "ranks.json";
  atomic_write(file, config.json.dump());
  try {
    const std::string fault = run_ranks(options, file, scratch);
    check<Error>(fault.empty(), kVerify, fault);
  } catch (const IoError& e) {  // mpirun is missing
    out.why = one_line(e);
    return out;
  }

  const StateTrace of_one_process = train_in_micro_batches(config, options.ranks, options.steps);
  const ModelParts parts = make_model(config);
  StateTrace of_ranks;
  for (const int64_t step : list_checkpoints(config.output_dir)) {
    if (!of_one_process.contains(step)) break;
    const CheckpointContents contents = load_checkpoint(fs::path(config.output_dir) / checkpoint_name(step));
    of_ranks[step] = state_hashes(contents, *parts.model);
  }
  if (of_ranks.empty()) {
    out.why = "parts that differ in size draw other random numbers than micro-batches";
    return out;
  }
  // Running statistics depend on each rank's rows.
  out.difference = first_difference(of_one_process, of_ranks, {"parameters", "optimizer", "scaler", "schedule", "generator"});
  out.result = out.difference ? Check::Result::differs : Check::Result::equal;
  out.steps = int64_t(of_ranks.size());
  if (given.train.accumulate_steps > 1) out.note = "with train.accumulate_steps 1, for which that is promised";
  return out;
}

}  // namespace halfstep::app
