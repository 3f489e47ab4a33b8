// SPDX-License-Identifier: Apache-2.0
#include "apps/examine/time_travel.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "apps/catalog/infer.h"
#include "apps/session/stored_run.h"
#include "apps/terminal/progress.h"
#include "apps/terminal/quantity_text.h"
#include "apps/terminal/scratch_folder.h"
#include "apps/terminal/signals.h"
#include "apps/train/trainer.h"
#include "framework/backend/backend.h"
#include "framework/io/checkpoint/checkpoint.h"
#include "framework/io/checkpoint/stored_json.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;

constexpr double kFarAbove = 10;  // times the usual loss: the run has diverged

int64_t threads_of(const CheckpointContents& contents) {
  const StoredJson meta(*contents.meta);
  return meta.has("written_by") ? meta.part("written_by").integer("threads", 1, num_threads()) : num_threads();
}

// Compares the replayed parameters with those of the run's own checkpoint of this step.
void compare_checkpoint(const fs::path& folder, int64_t step, const Session& session, ReplayResult& result) {
  const std::vector<int64_t> steps = list_checkpoints(folder);
  if (std::find(steps.begin(), steps.end(), step) == steps.end()) return;
  try {
    const CheckpointContents stored = load_checkpoint(folder / checkpoint_name(step));
    for (const NamedTensor& p : session.model->named_parameters()) {
      const auto at = stored.model.find(p.name);
      const Tensor now = p.tensor.detach().to(Device::cpu);
      const bool same = at != stored.model.end() && at->second.nbytes() == now.nbytes() &&
                        std::memcmp(at->second.const_data_ptr(), now.contiguous().const_data_ptr(), now.nbytes()) == 0;
      if (same) continue;
      const int64_t threads = threads_of(stored);
      result.differences.push_back(joined(p.name, " at step ", step, " is not what the run's checkpoint has",
                                          threads == num_threads() ? "" : joined(": the run computed with ", threads, " threads")));
      return;
    }
  } catch (const CheckpointError&) {}  // unreadable
}

// Checks that the data is the run's, unless `sets` change it: other samples give other steps from the same checkpoint.
void check_data(const StoredRun& start, const Session& session, const ReplayOptions& options) {
  const auto changes_data = [](const std::string& set) { return set.starts_with("data") || set.starts_with("seed="); };
  if (start.data_sha256.empty() || std::any_of(options.sets.begin(), options.sets.end(), changes_data)) return;
  check<DataError>(start.data_sha256 == session.data_sha256, "doctor",
                   "data.train must have the samples that the run had, got others: ", session.train->dataset().describe(),
                   Help{"bring back the files that it read; RUN/capsules has steps that went wrong, with their batches"});
}

// Ends the replay of a run that another process is training at the last step of its metrics. Returns false if no steps are left.
bool set_bound(const StoredRun& start, const ReplayOptions& options, Watch& watch, ReplayResult& result) {
  const std::optional<RunningRun> running = still_running(start.folder);
  if (!running) return true;
  check<ConfigError>(!options.until || !options.seeks || *options.until <= running->step, "doctor",
                     "--step must be one that the run has taken, got ", options.until.value_or(0),
                     ", and its metrics have come to step ", running->step);
  result.still_running =
      joined("the run has not ended: ", running->holder, " trains it, and its metrics have come to step ", running->step);
  watch.until_attempt = running->attempted;
  return running->attempted > (start.contents ? stored_attempts(*start.contents) : 0);
}

}  // namespace

ReplayResult replay(const fs::path& run, const ReplayOptions& options) {
  const StoredRun start = open_run("doctor", run, options.from, options.print_line);
  const ScratchFolder scratch("doctor");
  ConfigOptions changes{.sets = options.sets};
  for (const char* set :
       {R"(checkpoint.every="never")", "checkpoint.resume=null", "logging.sinks=[]", "train.detect_anomaly=false"})
    changes.sets.push_back(set);
  changes.sets.push_back("output_dir=" + (scratch.path() / "run").string());
  const Config config = resolve_config(start.config, "the run's config", changes);

  ReplayResult result;
  if (start.contents) result.first = stored_step(*start.contents), result.loss_before = stored_usual_loss(*start.contents);
  result.last = result.first;
  if (options.print_line) {
    options.print_line(start.checkpoint ? joined("replays from ", start.checkpoint->string())
                                        : "replays from the start: no earlier checkpoint");
    if (start.contents) {
      const int64_t threads = threads_of(*start.contents);
      if (threads != num_threads() && !config.performance.threads_independent)
        options.print_line(joined("the run computed with ", threads, " threads, this replay with ", num_threads(),
                                  ": last bits may differ; --threads ", threads, " avoids it"));
    }
  }
  Watch watch;
  const bool is_left = set_bound(start, options, watch, result);
  if (options.print_line && !result.still_running.empty()) options.print_line(result.still_running);
  if (!is_left) return result;
  const std::optional<std::string> resume = start.checkpoint ? std::optional(start.checkpoint->string()) : std::nullopt;
  RunDir dir(scratch.path() / "run", resume, false);
  Progress silent({.silent = true});
  watch.until = options.until;
  watch.from = options.explain_from;
  if (options.seeks)
    watch.on_diagnosis = [&](const StepPlace& step, const Diagnosis& d) {
      result.fault = d;
      result.last = step.step, result.epoch = step.epoch, result.attempt = step.attempt;
    };
  watch.on_begin = options.on_begin;
  constexpr std::chrono::seconds kProgressInterval(10);
  auto last_line = std::chrono::steady_clock::now();
  watch.on_step = [&](const AttemptedStep& tried, Session& session) {
    if (const auto now = std::chrono::steady_clock::now(); options.print_line && now - last_line >= kProgressInterval) {
      last_line = now;
      options.print_line(joined("step ", tried.step, ": nothing found so far"));
    }
    result.last = tried.step;
    result.losses.push_back(tried.loss);
    if (tried.applied) compare_checkpoint(start.folder, tried.step, session, result);
    if (options.on_step) options.on_step(tried, session);
  };
  Trainer trainer(config, dir, silent, nullptr, &watch);
  check_data(start, trainer.session(), options);
  trainer.run();
  check_not_stopped("doctor");
  return result;
}

namespace {

// Replays the same steps, and a few more, with a change of the config. Returns the result, or nothing if the change is no cure.
std::optional<std::string> try_change(const fs::path& run, const ReplayOptions& options, const ReplayResult& bad,
                                      const std::string& set) {
  constexpr int64_t kSteps = 20;
  ReplayOptions changed = options;
  changed.print_line = nullptr;
  changed.until = std::max(bad.last, bad.first + kSteps);
  changed.sets.push_back(set);
  const ReplayResult result = replay(run, changed);
  const bool is_later = result.fault && result.last > bad.last && result.fault->cause != "optimizer_blowup" &&
                        result.fault->cause != "divergence";  // another fault, such as of the data
  double worst = 0;
  for (const double loss : result.losses) worst = std::isfinite(loss) ? std::max(worst, std::abs(loss)) : INFINITY;
  const double usual = bad.loss_before > 0 ? bad.loss_before : bad.losses.empty() ? NAN : std::abs(bad.losses[0]);
  if ((result.fault && !is_later) || (std::isfinite(usual) && worst > kFarAbove * usual)) return {};
  return joined("worst loss ", worst, " in steps ", result.first + 1, " to ", result.last);
}

}  // namespace

void try_remedies(const fs::path& run, const ReplayOptions& given, ReplayResult& bad) {
  constexpr int64_t kMostFromStart = 200;  // steps of a replay from the run's start
  Diagnosis& d = *bad.fault;
  ReplayOptions options = given;
  // The checkpoint's weights may have diverged already.
  const bool diverged_before =
      bad.loss_before > 0 && !bad.losses.empty() && !(std::abs(bad.losses[0]) <= kFarAbove * bad.loss_before);
  if (diverged_before && bad.last > kMostFromStart) return;
  if (diverged_before) options.from = 0;
  if (d.cause != "optimizer_blowup" && d.cause != "divergence") return;
  const Json optimizer = open_run("doctor", run, options.from).config["optimizer"], lr = optimizer["lr"];
  const auto replace = [&](const char* text, const Remedy& remedy) {
    std::erase_if(d.remedies, [&](const Remedy& old) { return old.text == text; });
    d.remedies.insert(d.remedies.begin(), remedy);
  };
  if (optimizer.contains("eps") && optimizer["eps"] == 0) {
    if (const auto good = try_change(run, options, bad, "optimizer.eps=1e-8")) {
      d.remedies = {{R"("optimizer": {"eps": 1e-8})", Remedy::Tried::holds, *good}};
      return;
    }
  }
  if (!lr.is_number() || bad.losses.empty()) return;
  std::string rate;
  for (const int tenths : {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 28, 32, 36, 40}) {
    rate = number_text(lr.get<double>() * std::pow(10.0, -tenths), 6);
    if (const auto good = try_change(run, options, bad, "optimizer.lr=" + rate))
      return replace("a lower optimizer.lr", {joined(R"("optimizer": {"lr": )", rate, "}"), Remedy::Tried::holds, *good});
  }
  for (Remedy& remedy : d.remedies)
    if (remedy.text == "a lower optimizer.lr") remedy = {remedy.text, Remedy::Tried::fails, "down to " + rate};
}

}  // namespace halfstep::app
