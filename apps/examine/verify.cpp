// SPDX-License-Identifier: Apache-2.0
#include "apps/examine/verify.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "apps/catalog/infer.h"
#include "apps/examine/time_travel.h"
#include "apps/exit_codes.h"
#include "apps/terminal/scratch_folder.h"
#include "apps/terminal/signals.h"
#include "apps/train/trainer.h"
#include "framework/backend/backend.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;

struct TracedRun {
  StateTrace states;
  KernelHashes log;     // of the step `log_step`
  int64_t applied = 0;  // last step
};
// A way to run the config. log_step: the step whose kernels are listed; 0: none.
using RunVariant = std::function<TracedRun(int64_t log_step)>;

class Verifier {
 public:
  Verifier(const Config& config, const VerifyOptions& options) : config_(config), options_(options), scratch_("verify") {}

  Certificate run() {
    TracedRun reference = train_plainly(0);
    out_.states = std::move(reference.states);
    half_ = reference.applied / 2;
    check<ConfigError>(half_ >= 1, "verify", "a config must train for two steps at least, got ", reference.applied);
    const int64_t steps = int64_t(out_.states.size()), skipped = steps - reference.applied;
    add({.name = "plain", .steps = steps, .note = skipped > 0 ? joined(skipped, " of them skipped") : ""});
    compare("stopped and resumed", [this](int64_t log) { return stop_and_resume(log); });
    compare("under a witness", [this](int64_t log) { return train("witness", {}, log, true); });
    compare("replayed", [this](int64_t log) { return replay_from_half(log); });
    const int workers = config_.data.loader.num_workers == 2 ? 0 : 2;
    compare(joined(workers, " data workers"),
            [&](int64_t log) { return train("workers", {joined("data.loader.num_workers=", workers)}, log); });
    check_recorded();
    add(verify_ranks(config_, options_, scratch_.path()));
    check_other_threads();
    return std::move(out_);
  }

 private:
  void add(Check check) {
    if (options_.print_line) options_.print_line(text_of(check));
    out_.checks.push_back(std::move(check));
  }

  // Trains in a folder of this name, from its newest checkpoint if it has one. Only the run in kResumed writes checkpoints, and
  // only that in kRecorded records steps on a GPU.
  TracedRun train(const std::string& folder, std::vector<std::string> sets, int64_t log_step, bool is_witnessed = false,
                  std::optional<int64_t> until = {}) {
    for (const char* set : {"checkpoint.resume=null", "logging.sinks=[]", "train.detect_anomaly=false", "diagnostics.capsules=0"})
      sets.push_back(set);
    if (folder != kResumed) sets.push_back(R"(checkpoint.every="never")");
    sets.push_back("output_dir=" + (scratch_.path() / folder).string());
    if (is_witnessed || log_step > 0) sets.push_back("diagnostics.explain=false");  // explaining would open another log
    if (config_.device.is_cuda() && folder != kRecorded) sets.push_back("performance.cuda_graph=false");
    const Config config = resolve_config(config_.json, "the config", {.sets = std::move(sets)});
    RunDir dir(config.output_dir, "auto", false);
    Progress silent({.silent = true});
    RunTracer tracer(config.device, is_witnessed, log_step);
    Watch watch{.until = until.value_or(options_.steps)};
    watch.on_begin = [&](int64_t step, const Batch& batch) { tracer.begin_batch(step, batch); };
    int64_t applied = 0;
    watch.on_step = [&](const AttemptedStep& tried, Session& session) {
      if (tried.applied) applied = tried.step;
      tracer.end_step(tried.attempt, session);
    };
    Trainer(config, dir, silent, nullptr, &watch).run();
    check_not_stopped("verify");
    return {tracer.states(), tracer.kernels(), applied};
  }

  TracedRun train_plainly(int64_t log_step) { return train("plain", {}, log_step); }

  // Ends a run after a checkpoint, and starts a second one from it.
  TracedRun stop_and_resume(int64_t log_step) {
    fs::remove_all(scratch_.path() / kResumed);
    const std::string interval = joined("checkpoint.every=\"", half_, " steps\"");
    TracedRun first = train(kResumed, {interval, "checkpoint.keep_last=0"}, log_step, false, half_);
    TracedRun second = train(kResumed, {interval, "checkpoint.keep_last=0"}, log_step);
    first.states.merge(second.states);
    if (first.log.empty()) first.log = std::move(second.log);
    return first;
  }

  // Replays from the checkpoint of the run that was stopped.
  TracedRun replay_from_half(int64_t log_step) {
    RunTracer tracer(config_.device, false, log_step);
    ReplayOptions options{.from = half_, .until = options_.steps, .sets = {"diagnostics.explain=false"}, .seeks = false};
    options.on_begin = [&](int64_t step, const Batch& batch) { tracer.begin_batch(step, batch); };
    options.on_step = [&](const AttemptedStep& tried, Session& session) { tracer.end_step(tried.attempt, session); };
    replay(scratch_.path() / kResumed, options);
    return {tracer.states(), tracer.kernels(), 0};  // compare() needs no number of applied steps
  }

  // Trains with recorded steps, if the device can record them.
  void check_recorded() {
    const TrainSection& t = config_.train;
    if (backend_for(config_.device).can_record() && t.accumulate_steps == 1 && !t.recomputes())
      compare("recorded", [this](int64_t) { return train(kRecorded, {"performance.cuda_graph=true"}, 0); });
    else
      add({.name = "recorded", .result = Check::Result::not_run, .why = joined(config_.device, " records no such steps")});
  }

  // Fails only if the config promises bits that do not depend on the number of threads. Uses more threads than cores if necessary.
  void check_other_threads() {
    const int now = num_threads();
    const bool judged = config_.device.is_cpu() && config_.performance.threads_independent;
    // Few threads, an odd number, and more than small machines have cores.
    for (const int other : judged ? std::vector<int>{1, 2, 3, 8} : std::vector<int>{now == 1 ? 2 : 1}) {
      if (other == now) continue;
      const ThreadsScope scope(other);
      compare(
          joined(other, other == 1 ? " thread" : " threads"), [this](int64_t log) { return train("threads", {}, log); }, judged);
    }
  }

  // Runs the config in another way, and compares the states after each step. judged: whether a difference is a fault.
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

  // Returns what differs first: the batch, or a kernel, for which both ways run again with the kernels of the step logged. Empty if
  // the other way lists no kernels.
  std::string place_of_difference(const StateDifference& d, const RunVariant& way) {
    if (d.parts.empty()) return "one run has no such step";
    if (std::find(d.parts.begin(), d.parts.end(), "batch") != d.parts.end()) return "the batch: the data set or its transforms";
    const KernelHashes first = train_plainly(d.step).log, other = way(d.step).log;
    if (other.empty()) return "";
    return first_difference(first, other).value_or("no kernel: computed once more, under a witness, it did not differ");
  }

  static constexpr const char *kResumed = "resumed", *kRecorded = "recorded";  // folders of runs with other settings, see train()
  const Config& config_;
  const VerifyOptions& options_;
  int64_t half_ = 0;  // step at which a run is stopped
  ScratchFolder scratch_;
  Certificate out_;
};

std::string list_of(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : ", ") + part;
  return out;
}

std::string result_word(Check::Result result) {
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
  constexpr size_t kNameWidth = 22;
  std::string out = joined("  ", c.name, std::string(c.name.size() < kNameWidth ? kNameWidth - c.name.size() : 1, ' '));
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
    Json entry{{"name", c.name}, {"result", result_word(c.result)}, {"judged", c.judged}, {"steps", c.steps}};
    if (c.result == Check::Result::not_run) entry["why"] = c.why;
    if (!c.note.empty()) entry["note"] = c.note;
    if (c.difference) entry.update(Json{{"first_step", c.difference->step}, {"parts", c.difference->parts}, {"place", c.origin}});
    checks.push_back(std::move(entry));
  }
  for (const auto& [step, parts] : certificate.states)
    states.push_back({{"step", step}, {"sha256", hash_of(parts)}, {"parts", parts}});
  return {{"holds", certificate.holds()}, {"checks", checks}, {"states", states}};
}

}  // namespace halfstep::app
