// SPDX-License-Identifier: Apache-2.0
#include "apps/examine/time_travel.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "apps/catalog/infer.h"
#include "apps/session/stored_run.h"
#include "apps/terminal/progress.h"
#include "apps/terminal/scratch_folder.h"
#include "apps/terminal/signals.h"
#include "apps/train/trainer.h"
#include "framework/backend/backend.h"
#include "framework/io/checkpoint/checkpoint.h"
#include "framework/io/checkpoint/stored_json.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;

int64_t threads_of(const CheckpointContents& contents) {
  const StoredJson meta(*contents.meta);
  return meta.has("written_by") ? meta.part("written_by").integer("threads", 1, num_threads()) : num_threads();
}

// Compares the replayed parameters with those of the run's own checkpoint of this step.
void compare(const fs::path& folder, int64_t step, const Session& session, ReplayResult& result) {
  const std::vector<int64_t> there = list_checkpoints(folder);
  if (std::find(there.begin(), there.end(), step) == there.end()) return;
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
void check_data(const StoredRun& start, const Session& session, const ReplayOptions& o) {
  const auto changes_data = [](const std::string& set) { return set.starts_with("data") || set.starts_with("seed="); };
  if (start.data_sha256.empty() || std::any_of(o.sets.begin(), o.sets.end(), changes_data)) return;
  check<DataError>(start.data_sha256 == session.data_sha256, "doctor",
                   "data.train must have the samples that the run had, got others: ", session.train->dataset().describe(),
                   Help{"bring back the files that it read; RUN/capsules has steps that went wrong, with their batches"});
}

// Ends the replay of a run that another process is training at the last step of its metrics. Returns false if no steps are left.
bool set_bound(const StoredRun& start, const ReplayOptions& o, Watch& watch, ReplayResult& result) {
  const std::optional<RunningRun> running = still_running(start.folder);
  if (!running) return true;
  check<ConfigError>(!o.until || !o.seeks || *o.until <= running->step, "doctor", "--step must be one that the run has taken, got ",
                     o.until.value_or(0), ", and its metrics have come to step ", running->step);
  result.still_running =
      joined("the run has not ended: ", running->holder, " trains it, and its metrics have come to step ", running->step);
  watch.until_attempt = running->attempted;
  return running->attempted > (start.contents ? stored_attempts(*start.contents) : 0);
}

}  // namespace

ReplayResult replay(const fs::path& run, const ReplayOptions& o) {
  const StoredRun start = open_run("doctor", run, o.from, o.say);
  const ScratchFolder scratch("doctor");
  ConfigOptions changes{.sets = o.sets};
  for (const char* set :
       {R"(checkpoint.every="never")", "checkpoint.resume=null", "logging.sinks=[]", "train.detect_anomaly=false"})
    changes.sets.push_back(set);
  changes.sets.push_back("output_dir=" + (scratch.path() / "run").string());
  const Config config = resolve_config(start.config, "the run's config", changes);

  ReplayResult result;
  if (start.contents) result.first = stored_step(*start.contents), result.loss_before = stored_usual_loss(*start.contents);
  result.last = result.first;
  if (o.say) {
    o.say(start.checkpoint ? joined("replays from ", start.checkpoint->string()) : "replays from the start: no earlier checkpoint");
    if (start.contents) {
      const int64_t threads = threads_of(*start.contents);
      if (threads != num_threads() && !config.performance.threads_independent)
        o.say(joined("the run computed with ", threads, " threads, this replay with ", num_threads(),
                     ": last bits may differ; --threads ", threads, " avoids it"));
    }
  }
  Watch watch;
  const bool is_left = set_bound(start, o, watch, result);
  if (o.say && !result.still_running.empty()) o.say(result.still_running);
  if (!is_left) return result;
  const std::optional<std::string> resume = start.checkpoint ? std::optional(start.checkpoint->string()) : std::nullopt;
  RunDir dir(scratch.path() / "run", resume, false);
  Progress silent({.silent = true});
  watch.until = o.until;
  watch.from = o.explain_from;
  if (o.seeks)
    watch.on_diagnosis = [&](const FoundStep& step, const Diagnosis& d) {
      result.fault = d;
      result.last = step.step, result.epoch = step.epoch, result.attempt = step.attempt;
    };
  watch.begins = o.begins;
  auto last_word = std::chrono::steady_clock::now();
  watch.stepped = [&](const AttemptedStep& tried, Session& session) {
    if (const auto now = std::chrono::steady_clock::now(); o.say && now - last_word >= std::chrono::seconds(10)) {
      last_word = now;
      o.say(joined("step ", tried.step, ": nothing found so far"));
    }
    result.last = tried.step;
    result.losses.push_back(tried.loss);
    if (tried.applied) compare(start.folder, tried.step, session, result);
    if (o.stepped) o.stepped(tried, session);
  };
  Trainer trainer(config, dir, silent, nullptr, &watch);
  check_data(start, trainer.session(), o);
  trainer.run();
  end_if_stopped("doctor");
  return result;
}

namespace {

// Replays the same steps, and a few more, with a change of the config. Returns the result, or nothing if the change is no cure.
std::optional<std::string> trial(const fs::path& run, const ReplayOptions& o, const ReplayResult& bad, const std::string& set) {
  constexpr int64_t kSteps = 20;
  ReplayOptions changed = o;
  changed.say = nullptr;
  changed.until = std::max(bad.last, bad.first + kSteps);
  changed.sets.push_back(set);
  const ReplayResult r = replay(run, changed);
  const bool of_data = r.fault && r.last > bad.last && r.fault->cause != "optimizer_blowup" && r.fault->cause != "divergence";
  double worst = 0;
  for (const double loss : r.losses) worst = std::isfinite(loss) ? std::max(worst, std::abs(loss)) : INFINITY;
  const double usual = bad.loss_before > 0 ? bad.loss_before : bad.losses.empty() ? NAN : std::abs(bad.losses[0]);
  if ((r.fault && !of_data) || (std::isfinite(usual) && worst > 10 * usual)) return {};
  return joined("worst loss ", worst, " in steps ", r.first + 1, " to ", r.last);
}

}  // namespace

void try_remedies(const fs::path& run, const ReplayOptions& given, ReplayResult& bad) {
  constexpr int64_t kFromStart = 200;
  Diagnosis& d = *bad.fault;
  ReplayOptions o = given;
  // The checkpoint's weights may have diverged already.
  const bool diverged_before = bad.loss_before > 0 && !bad.losses.empty() && !(std::abs(bad.losses[0]) <= 10 * bad.loss_before);
  if (diverged_before && bad.last > kFromStart) return;
  if (diverged_before) o.from = 0;
  if (d.cause != "optimizer_blowup" && d.cause != "divergence") return;
  const Json optimizer = open_run("doctor", run, o.from).config["optimizer"], lr = optimizer["lr"];
  const auto replace = [&](const char* text, const Remedy& by) {
    std::erase_if(d.remedies, [&](const Remedy& x) { return x.text == text; });
    d.remedies.insert(d.remedies.begin(), by);
  };
  if (optimizer.contains("eps") && optimizer["eps"] == 0) {
    if (const auto good = trial(run, o, bad, "optimizer.eps=1e-8")) {
      d.remedies = {{R"("optimizer": {"eps": 1e-8})", Remedy::Tried::holds, *good}};
      return;
    }
  }
  if (!lr.is_number() || bad.losses.empty()) return;
  std::string rate;
  for (const int tenths : {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 28, 32, 36, 40}) {
    rate = number_text(lr.get<double>() * std::pow(10.0, -tenths), 6);
    if (const auto good = trial(run, o, bad, "optimizer.lr=" + rate))
      return replace("a lower optimizer.lr", {joined(R"("optimizer": {"lr": )", rate, "}"), Remedy::Tried::holds, *good});
  }
  for (Remedy& x : d.remedies)
    if (x.text == "a lower optimizer.lr") x = {x.text, Remedy::Tried::fails, "down to " + rate};
}

}  // namespace halfstep::app
