// SPDX-License-Identifier: Apache-2.0
#include "apps/examine/verify.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <optional>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "apps/catalog/infer.h"
#include "apps/examine/time_travel.h"
#include "apps/exit_codes.h"
#include "apps/terminal/scratch_folder.h"
#include "apps/terminal/signals.h"
#include "apps/train/trainer.h"
#include "framework/backend/backend.h"
#include "framework/comm/launcher.h"
#include "framework/comm/plugin.h"
#include "framework/data/loading/loader.h"
#include "framework/io/files/atomic_file.h"

extern char** environ;

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;

struct TracedRun {
  StateTrace states;
  KernelHashes log;
  int64_t applied = 0;  // last step
};
// A way to run the config. log_step: the step whose kernels are listed; 0: none.
using RunVariant = std::function<TracedRun(int64_t log_step)>;

class Verifier {
 public:
  Verifier(const Config& config, const VerifyOptions& options) : config_(config), o_(options), scratch_("verify") {}

  Certificate run() {
    TracedRun all = plain(0);
    out_.states = std::move(all.states);
    half_ = all.applied / 2;
    check<ConfigError>(half_ >= 1, "verify", "a config must train for two steps at least, got ", all.applied);
    const int64_t steps = int64_t(out_.states.size()), skipped = steps - all.applied;
    add({.name = "plain", .steps = steps, .note = skipped > 0 ? joined(skipped, " of them skipped") : ""});
    compare("stopped and resumed", [this](int64_t log) { return resumed(log); });
    compare("under a witness", [this](int64_t log) { return train("witness", {}, log, true); });
    compare("replayed", [this](int64_t log) { return replayed(log); });
    const int workers = config_.data.loader.num_workers == 2 ? 0 : 2;
    compare(joined(workers, " data workers"),
            [&](int64_t log) { return train("workers", {joined("data.loader.num_workers=", workers)}, log); });
    recorded();
    add(verify_ranks(config_, o_, scratch_.path()));
    other_threads();
    return std::move(out_);
  }

 private:
  void add(Check check) {
    if (o_.say) o_.say(text_of(check));
    out_.checks.push_back(std::move(check));
  }

  // Trains in a folder of this name, from its newest checkpoint if it has one.
  TracedRun train(const std::string& folder, std::vector<std::string> sets, int64_t log_step, bool witnessed = false,
                  std::optional<int64_t> until = {}) {
    for (const char* set : {"checkpoint.resume=null", "logging.sinks=[]", "train.detect_anomaly=false", "diagnostics.capsules=0"})
      sets.push_back(set);
    if (folder != kResumed) sets.push_back(R"(checkpoint.every="never")");
    sets.push_back("output_dir=" + (scratch_.path() / folder).string());
    if (witnessed || log_step > 0) sets.push_back("diagnostics.explain=false");  // explaining would open another log
    if (config_.device.is_cuda() && folder != "recorded") sets.push_back("performance.cuda_graph=false");
    const Config config = resolve_config(config_.json, "the config", {.sets = std::move(sets)});
    RunDir dir(config.output_dir, "auto", false);
    Progress silent({.silent = true});
    RunTracer tracer(config.device, witnessed, log_step);
    Watch watch{.until = until.value_or(o_.steps)};
    watch.begins = [&](int64_t step, const Batch& batch) { tracer.begins(step, batch); };
    int64_t applied = 0;
    watch.stepped = [&](const AttemptedStep& tried, Session& session) {
      if (tried.applied) applied = tried.step;
      tracer.stepped(tried.attempt, session);
    };
    Trainer(config, dir, silent, nullptr, &watch).run();
    end_if_stopped("verify");
    return {tracer.states(), tracer.log(), applied};
  }

  TracedRun plain(int64_t log_step) { return train("plain", {}, log_step); }

  // Ends a run after a checkpoint, and starts a second one from it.
  TracedRun resumed(int64_t log_step) {
    fs::remove_all(scratch_.path() / kResumed);
    const std::string often = joined("checkpoint.every=\"", half_, " steps\"");
    TracedRun first = train(kResumed, {often, "checkpoint.keep_last=0"}, log_step, false, half_);
    TracedRun second = train(kResumed, {often, "checkpoint.keep_last=0"}, log_step);
    first.states.merge(second.states);
    if (first.log.empty()) first.log = std::move(second.log);
    return first;
  }

  // Replays from the checkpoint of the run that was stopped.
  TracedRun replayed(int64_t log_step) {
    RunTracer tracer(config_.device, false, log_step);
    ReplayOptions options{.from = half_, .until = o_.steps, .sets = {"diagnostics.explain=false"}, .seeks = false};
    options.begins = [&](int64_t step, const Batch& batch) { tracer.begins(step, batch); };
    options.stepped = [&](const AttemptedStep& tried, Session& session) { tracer.stepped(tried.attempt, session); };
    replay(scratch_.path() / kResumed, options);
    return {tracer.states(), tracer.log(), {}};
  }

  void recorded() {
    const TrainSection& t = config_.train;
    if (backend_for(config_.device).can_record() && t.accumulate_steps == 1 && !t.recomputes())
      compare("recorded", [this](int64_t) { return train("recorded", {"performance.cuda_graph=true"}, 0); });
    else
      add({.name = "recorded", .result = Check::Result::not_run, .why = joined(config_.device, " records no such steps")});
  }

  // Fails only if the config promises bits that do not depend on the number of threads. Uses more threads than cores if necessary.
  void other_threads() {
    const int now = num_threads();
    const bool judged = config_.device.is_cpu() && config_.performance.threads_independent;
    for (const int other : judged ? std::vector<int>{1, 2, 3, 8} : std::vector<int>{now == 1 ? 2 : 1}) {
      if (other == now) continue;
      const ThreadsScope scope(other);
      compare(
          joined(other, other == 1 ? " thread" : " threads"), [this](int64_t log) { return train("threads", {}, log); }, judged);
    }
  }

  void compare(const std::string& name, const RunVariant& way, bool judged = true) {
    Check check{.name = name, .judged = judged};
    try {
      const StateTrace states = way(0).states;
      check.steps = int64_t(states.size());
      check.difference = first_difference(out_.states, states);
      if (check.difference) {
        check.result = Check::Result::differs;
        if (judged)
          check.origin = place_of_difference(*check.difference, way);
        else if (config_.device.is_cpu())
          check.note = "performance.threads_independent makes them equal";
      }
    } catch (const ConfigError& e) {  // the config does not allow this way
      check.result = Check::Result::not_run;
      check.why = one_line(e);
    }
    add(std::move(check));
  }

  // Runs both ways again, with the kernels of the step logged.
  std::string place_of_difference(const StateDifference& d, const RunVariant& way) {
    if (d.parts.empty()) return "one run has no such step";
    if (std::find(d.parts.begin(), d.parts.end(), "batch") != d.parts.end()) return "the batch: the data set or its transforms";
    const KernelHashes first = plain(d.step).log, other = way(d.step).log;
    if (other.empty()) return "";
    return first_difference(first, other).value_or("no kernel: computed once more, under a witness, it did not differ");
  }

  static constexpr const char* kResumed = "resumed";
  const Config& config_;
  const VerifyOptions& o_;
  int64_t half_ = 0;  // step at which a run is stopped
  ScratchFolder scratch_;
  Certificate out_;
};

std::string list_of(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : ", ") + part;
  return out;
}

std::string word(Check::Result result) {
  return result == Check::Result::equal ? "equal" : result == Check::Result::differs ? "differs" : "not run";
}

}  // namespace

bool Certificate::holds() const {
  return std::none_of(checks.begin(), checks.end(), [](const Check& c) { return c.judged && c.result == Check::Result::differs; });
}

Certificate verify(const Config& config, const VerifyOptions& options) {
  check<ConfigError>(options.steps >= 2, "verify", "--steps must be at least 2, to stop between two steps; got ", options.steps);
  check<ConfigError>(options.ranks >= 2, "verify", "--ranks must be at least 2, got ", options.ranks);
  try {
    return Verifier(config, options).run();
  } catch (const DivergedError&) {
    fail<DivergedError>("verify", "the config does not train", Help{"halfstep train explains why"});
  }
}

std::string text_of(const Check& c) {
  std::string out = joined("  ", c.name, std::string(c.name.size() < 22 ? 22 - c.name.size() : 1, ' '));
  if (c.result == Check::Result::not_run) return out + "not run: " + c.why;
  const std::string note = c.note.empty() ? "" : ", " + c.note;
  if (c.name == "plain") return out + joined(c.steps, " steps", note);
  if (c.result == Check::Result::equal) return out + joined("equal, ", c.steps, " steps", note);
  out += joined("differs from step ", c.difference->step, " on");
  if (!c.difference->parts.empty()) out += joined(" in ", list_of(c.difference->parts));
  if (!c.origin.empty()) out += joined("; first: ", c.origin);
  return c.judged ? out + note : joined(out, " (not judged", c.note.empty() ? "" : ": " + c.note, ")");
}

Json certificate_json(const Certificate& certificate) {
  Json checks = Json::array(), states = Json::array();
  for (const Check& c : certificate.checks) {
    Json entry{{"name", c.name}, {"result", word(c.result)}, {"judged", c.judged}, {"steps", c.steps}};
    if (c.result == Check::Result::not_run) entry["why"] = c.why;
    if (!c.note.empty()) entry["note"] = c.note;
    if (c.difference) entry.update(Json{{"first_step", c.difference->step}, {"parts", c.difference->parts}, {"place", c.origin}});
    checks.push_back(std::move(entry));
  }
  for (const auto& [step, parts] : certificate.states)
    states.push_back({{"step", step}, {"sha256", hash_of(parts)}, {"parts", parts}});
  return {{"holds", certificate.holds()}, {"checks", checks}, {"states", states}};
}

// Starts ranks as processes of this program, as a launcher would. In this process their parts of each batch are micro-batches of
// one step.

namespace {

constexpr const char* kVerify = "verify";

// Processes that end with this object.
class Processes {
 public:
  [[nodiscard]] Processes() = default;
  ~Processes() {
    for (const pid_t pid : pids_) kill(pid, SIGKILL), waitpid(pid, nullptr, 0);
  }
  Processes(const Processes&) = delete;

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
    std::pair<int, size_t> out{0, 0};
    for (size_t i = 0; i < pids_.size(); ++i) {
      int status = 0;
      while (waitpid(pids_[i], &status, WNOHANG) == 0) {
        end_if_stopped(kVerify);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      if (code != 0 && (out.first == 0 || out.first == kPeerLost)) out = {code, i};
    }
    pids_.clear();
    return out;
  }

 private:
  std::vector<pid_t> pids_;
};

// Returns why docs/distributed.md promises nothing for this config; empty if it does.
std::string no_promise(const Config& c) {
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
StateTrace in_micro_batches(const Config& config, int ranks, int64_t steps) {
  Session s = make_session(config, nullptr, FirstValues::with_files);
  TrainStepOptions options = step_options(config);
  options.accumulate_steps = ranks;
  TrainStep step(*s.model, *s.loss, *s.optimizer, s.scaler, s.schedule.get(), options);
  s.model->train();
  const Generator::State unused = default_generator().state();
  StateTrace out;
  int64_t applied = 0;  // the ranks' checkpoint counts applied steps
  while (applied < std::min(steps, s.total_steps)) {
    std::optional<Batch> batch;
    if (s.train->state().next_batch < s.batches_per_epoch) batch = s.train->next();
    if (!batch) {
      s.train->set_state({s.train->state().epoch + 1, 0});
      continue;
    }
    const Batch all_rows = on_device(*batch, s.device);
    if (all_rows.input.size(0) % ranks != 0 && default_generator().state() != unused) break;
    StepResult last;
    for (int r = 0; r < ranks; ++r) {
      const BatchRows rows = part_of(all_rows.input.size(0), r, ranks);
      if (rows.rows > 0)
        last = step(all_rows.input.narrow(0, rows.first, rows.rows), all_rows.target.narrow(0, rows.first, rows.rows));
    }
    if (!last.stepped) last = step.flush();
    if (last.outcome.applied()) out[++applied] = state_hashes(pack(s, config.json, {}), *s.model);
  }
  return out;
}

// Runs ranks over Gloo if its plugin can be opened, else by mpirun. Returns the first line of an error.
std::string run_ranks(const VerifyOptions& o, const fs::path& config, const fs::path& scratch) {
  const std::vector<std::string> train{
      o.program.string(),     "train", config.string(), "--quiet", "--threads", std::to_string(num_threads()), "--until",
      std::to_string(o.steps)};
  Processes processes;
  if (!plugin_fault(TransportKind::gloo)) {
    for (int r = 0; r < o.ranks; ++r)
      processes.start(
          train, {joined("RANK=", r), joined("WORLD_SIZE=", o.ranks), "HALFSTEP_RENDEZVOUS_FILE=" + (scratch / "meet").string()},
          scratch / joined("rank-", r, ".txt"));
  } else {
    std::vector<std::string> command{"mpirun", "-np", std::to_string(o.ranks)};
    command.insert(command.end(), train.begin(), train.end());
    processes.start(command,
                    {"OMPI_MCA_rmaps_base_oversubscribe=1", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"},
                    scratch / "rank-0.txt");
  }
  const auto [code, rank] = processes.wait();
  if (code == 0) return "";
  const std::string text = read_file(scratch / joined("rank-", rank, ".txt"), 1 << 20);
  return joined("rank ", rank, " ended with code ", code, ": ", text.substr(0, text.find('\n')));
}

}  // namespace

Check verify_ranks(const Config& given, const VerifyOptions& o, const fs::path& scratch) {
  Check out{.name = joined(o.ranks, " ranks"), .result = Check::Result::not_run, .why = no_promise(given)};
  if (!out.why.empty()) return out;
  if (detect_launch().size > 1 || o.program.empty()) {
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
  const ThreadsScope threads(std::max(1, num_threads() / o.ranks));  // of each rank, and of the one process
  const fs::path file = scratch / "ranks.json";
  atomic_write(file, config.json.dump());
  try {
    const std::string fault = run_ranks(o, file, scratch);
    check<Error>(fault.empty(), kVerify, fault);
  } catch (const IoError& e) {  // mpirun is missing
    out.why = one_line(e);
    return out;
  }

  const StateTrace one = in_micro_batches(config, o.ranks, o.steps);
  const ModelParts parts = make_model(config);
  StateTrace many;
  for (const int64_t step : list_checkpoints(config.output_dir)) {
    if (!one.contains(step)) break;
    const CheckpointContents contents = load_checkpoint(fs::path(config.output_dir) / checkpoint_name(step));
    many[step] = state_hashes(contents, *parts.model);
  }
  if (many.empty()) {
    out.why = "parts that differ in size draw other random numbers than micro-batches";
    return out;
  }
  // Running statistics depend on each rank's rows.
  out.difference = first_difference(one, many, {"parameters", "optimizer", "scaler", "schedule", "generator"});
  out.result = out.difference ? Check::Result::differs : Check::Result::equal;
  out.steps = int64_t(many.size());
  if (given.train.accumulate_steps > 1) out.note = "with train.accumulate_steps 1, for which that is promised";
  return out;
}

}  // namespace halfstep::app
