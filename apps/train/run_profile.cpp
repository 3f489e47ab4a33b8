// SPDX-License-Identifier: Apache-2.0
#include "apps/train/run_profile.h"

#include <utility>

#include "apps/catalog/infer.h"
#include "apps/session/ranks.h"
#include "apps/train/plan.h"

namespace halfstep::app {

void RunProfile::start(int64_t steps) {
  if (!writes(run_.group)) return;
  run_.progress.line("profile: measuring what this machine can do");
  MachineRates rates(run_.session.device);
  PlannedCalls planned;
  try {
    planned = planned_calls(plan_step(run_.config, 0, run_.group ? run_.group->size() : 1).calls, rates);
  } catch (const Error& e) { run_.progress.note("the profile has no operations, bytes and floors: " + one_line(e)); }
  profiler_.emplace(steps, run_.session.device, std::move(planned));
}

void RunProfile::begin_step() {
  if (profiler_) profiler_->begin();
}

void RunProfile::end_step(bool stepped) {
  if (!profiler_) return;
  if (!stepped) return profiler_->cancel();
  const bool was_done = profiler_->done();
  profiler_->end();
  if (!was_done && profiler_->done()) report();
}

void RunProfile::end_run() {
  if (profiler_ && !profiler_->done()) report();
}

// Prints and writes the profile. A failure does not fail the run.
void RunProfile::report() {
  if (profiler_->profiled_steps() == 0)
    return run_.progress.warn(joined("no profile: it needs ", StepProfiler::kWarmUpSteps + 2, " steps, the first ",
                                     StepProfiler::kWarmUpSteps, " to warm up and then every other one, and this process took ",
                                     run_.counters.attempted - run_.first_step));
  for (const std::string& line : profile_lines(profiler_->result())) run_.progress.line(line);
  try {
    write_profile(run_.dir.path(), *profiler_);
    run_.progress.line(joined("profile: ", (run_.dir.path() / "profile").string(),
                              " has all calls in profile.json, and trace.json.gz for ", "https://ui.perfetto.dev"));
  } catch (const Error& e) { run_.progress.warn("no profile: " + one_line(e)); }
}

}  // namespace halfstep::app
