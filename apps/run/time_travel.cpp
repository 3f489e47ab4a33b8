// SPDX-License-Identifier: Apache-2.0
#include "apps/run/time_travel.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "apps/catalog/infer.h"
#include "apps/run/scratch_folder.h"
#include "apps/run/stored_run.h"
#include "apps/run/trainer.h"
#include "framework/backend/backend.h"
#include "framework/io/checkpoint.h"
#include "framework/io/stored_json.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;

int64_t threads_of(const CheckpointContents& contents) {
  const StoredJson meta(*contents.meta);
  return meta.has("written_by") ? meta.part("written_by").integer("threads", 1, num_threads()) : num_threads();
}

// Do the parameters that were reached equal those of the run's own checkpoint of this step?
void compare(const fs::path& folder, int64_t step, const Session& session, ReplayResult& result) {
  const std::vector<int64_t> there = list_checkpoints(folder);
  if (std::find(there.begin(), there.end(), step) == there.end()) return;
  try {
    const CheckpointContents stored = load_checkpoint(folder / checkpoint_name(step));
    for (const NamedTensor& p : session.model->named_parameters()) {
      const auto at = stored.model.find(p.name);
      const Tensor now = p.tensor.detach().to(Device::cpu);
      const bool same = at != stored.model.end() && at->second.nbytes() == now.nbytes() &&
                        std::memcmp(at->second.data_ptr(), now.contiguous().data_ptr(), now.nbytes()) == 0;
      if (same) continue;
      const int64_t threads = threads_of(stored);
      result.differences.push_back(joined(p.name, " at step ", step, " is not what the run's checkpoint has",
                                          threads == num_threads() ? "" : joined(": the run computed with ", threads, " threads")));
      return;
    }
  } catch (const CheckpointError&) {}  // one that cannot be read
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
  if (start.contents) result.first = stored_step(*start.contents);
  result.last = result.first;
  if (o.say) {
    o.say(start.checkpoint ? joined("replays from ", start.checkpoint->string()) : "replays from the start: no earlier checkpoint");
    if (start.contents) {
      const int64_t threads = threads_of(*start.contents);
      if (threads != num_threads())
        o.say(joined("the run computed with ", threads, " threads, this replay with ", num_threads(),
                     ": last bits may differ; --threads ", threads, " avoids it"));
    }
  }
  const std::optional<std::string> resume = start.checkpoint ? std::optional(start.checkpoint->string()) : std::nullopt;
  RunDir dir(scratch.path() / "run", resume, false);
  Progress silent({.silent = true});
  Watch watch;
  watch.until = o.until;
  watch.from = o.explain_from;
  if (o.seeks)
    watch.found = [&](int64_t, int64_t epoch, const Diagnosis& d) {
      result.fault = d;
      result.epoch = epoch;
    };
  watch.begins = o.begins;
  auto last_word = std::chrono::steady_clock::now();
  watch.stepped = [&](const TriedStep& tried, Session& session) {
    if (const auto now = std::chrono::steady_clock::now(); o.say && now - last_word >= std::chrono::seconds(10)) {
      last_word = now;
      o.say(joined("step ", tried.step, ": nothing found so far"));
    }
    result.last = tried.step;
    result.losses.push_back(tried.loss);
    if (tried.applied) compare(start.folder, tried.step, session, result);
    if (o.stepped) o.stepped(tried, session);
  };
  Trainer(config, dir, silent, nullptr, &watch).run();
  return result;
}

void try_remedies(const fs::path& run, const ReplayOptions& o, ReplayResult& bad) {
  Diagnosis& d = *bad.fault;
  if (d.cause != "optimizer_blowup" && d.cause != "divergence") return;
  const Json lr = open_run("doctor", run, o.from).config["optimizer"]["lr"];
  if (!lr.is_number() || bad.losses.empty()) return;
  const double first = std::abs(bad.losses[0]);
  constexpr int kTrials = 12;
  for (int tenths = 1; tenths <= kTrials; ++tenths) {
    const double rate = lr.get<double>() * std::pow(10.0, -tenths);
    ReplayOptions lower = o;
    lower.say = nullptr;
    lower.until = bad.last;
    lower.sets.push_back(joined("optimizer.lr=", Json(rate).dump()));
    const ReplayResult r = replay(run, lower);
    double worst = 0;
    for (const double loss : r.losses) worst = std::isfinite(loss) ? std::max(worst, std::abs(loss)) : INFINITY;
    if (r.fault || (std::isfinite(first) && worst > 10 * first)) continue;
    std::erase_if(d.remedies, [](const Remedy& x) { return x.text == "a lower optimizer.lr"; });
    d.remedies.insert(d.remedies.begin(), {joined(R"("optimizer": {"lr": )", Json(rate).dump(), "}"), Remedy::Tried::holds,
                                           joined("worst loss ", worst, " in steps ", r.first + 1, " to ", r.last)});
    return;
  }
  for (Remedy& x : d.remedies)
    if (x.text == "a lower optimizer.lr")
      x = {x.text, Remedy::Tried::fails, joined("down to ", Json(lr.get<double>() * std::pow(10.0, -kTrials)).dump())};
}

}  // namespace halfstep::app
