// SPDX-License-Identifier: Apache-2.0
// `halfstep train --profile N`: shows where a training step spends its time, by op and by layer, and how much of it exceeds the
// machine's minimum.
//
// After a few warm-up steps, every other step is timed call by call until N of them were; the steps between are timed as a whole,
// which shows the cost of profiling. Training is unaffected: no bit of the run changes.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "apps/config/config.h"
#include "framework/backend/machine_rates.h"
#include "framework/backend/op_log.h"
#include "framework/backend/profile.h"

namespace halfstep::app {

// Planned work, in a step, of all calls with one CallName: one op in one layer and pass. The op "autocast" is the casts of a layer,
// and "optimizer" is the whole update.
struct PlannedWork {
  double flops = 0, bytes = 0, floor_seconds = 0;
};
struct CallName {
  StepPass pass;
  std::string layer, op;
  auto operator<=>(const CallName&) const = default;
};
using PlannedCalls = std::map<CallName, PlannedWork>;
// Sums the planned work by CallName.
PlannedCalls planned_calls(const std::vector<LoggedCall>& calls, MachineRates& rates);

// A row of a profile: medians over the profiled steps.
struct ProfileRow {
  CallName call;
  bool is_wait = false;  // for data or other ranks
  double calls = 0, seconds = 0;
  std::optional<PlannedWork> work;  // unset if the plan has no such call
};

// A row for a GPU's kernels, copies and fills by name: medians over the profiled steps.
struct KernelRow {
  std::string name;
  double calls = 0, seconds = 0;
};

struct StepProfile {
  size_t steps = 0;
  double seconds = 0, fastest = 0, slowest = 0;  // of a whole profiled step: median and range
  double plain_seconds = 0;                      // of the steps between them
  std::vector<ProfileRow> rows;                  // sorted by time
  double in_calls = 0, between = 0;              // seconds of a step in calls and waits, and outside of them
  size_t left_out = 0;                           // spans beyond the limit
  std::vector<KernelRow> kernels;                // sorted by time; empty on a CPU
  double busy = 0;                               // seconds of a step in which a GPU runs a kernel, a copy or a fill
  std::string no_kernels;                        // why a GPU's kernels are unknown
};

class StepProfiler {
 public:
  static constexpr int64_t kWarmUpSteps = 3;     // first steps, which are not profiled
  static constexpr size_t kMostSpans = 100'000;  // spans and kernels of a trace: viewers fail on larger ones

  StepProfiler(int64_t steps, Device device, PlannedCalls planned) : steps_(steps), device_(device), planned_(std::move(planned)) {}

  void begin();   // call before the data of a step is fetched; does nothing if a step has begun
  void end();     // call after the step
  void cancel();  // call if the data ended instead of a step
  // Returns whether all steps were profiled, or the trace is full.
  bool done() const { return int64_t(profiled_.size()) >= steps_ || is_full_; }

  size_t profiled_steps() const { return profiled_.size(); }
  StepProfile result() const;
  // Returns a trace in Chrome's format, which Perfetto and chrome://tracing open: each span is an event with its layer, shapes and
  // dtypes; so is each kernel, with the call that launched it. Each stream of a GPU has a row.
  std::string trace(int process = 0) const;

 private:
  struct ProfiledStep {
    std::vector<ProfileSpan> spans;
    std::vector<ProfileKernel> kernels;
    double seconds;
    int64_t start_ns;  // nanoseconds since the first one began
  };
  using Clock = std::chrono::steady_clock;

  int64_t steps_, ended_steps_ = 0;
  Device device_;
  PlannedCalls planned_;
  bool is_open_ = false, is_full_ = false;
  Clock::time_point began_;
  std::optional<Clock::time_point> first_began_;
  std::optional<ProfileScope> profile_scope_;
  std::optional<CallScope> step_scope_;
  std::vector<ProfiledStep> profiled_;
  std::vector<double> plain_seconds_;
  size_t span_count_ = 0, left_out_ = 0;
  std::string no_kernels_;
};

// Returns tables: the calls that take the most time, ops and layers.
std::vector<std::string> profile_lines(const StepProfile& profile);
Json profile_json(const StepProfile& profile);
// Writes FOLDER/profile/profile.json and trace.json.gz. Throws IoError.
void write_profile(const std::filesystem::path& folder, const StepProfiler& profiler);

}  // namespace halfstep::app
