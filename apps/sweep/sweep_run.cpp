// SPDX-License-Identifier: Apache-2.0
#include "apps/sweep/sweep_run.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <thread>
#include <vector>

#include "apps/exit_codes.h"
#include "apps/record/run_lock.h"
#include "apps/sweep/member_process.h"
#include "apps/terminal/quantity_text.h"
#include "apps/terminal/signals.h"
#include "framework/base/check.h"

namespace halfstep::app {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kPollInterval{20}, kLockPollInterval{100};
constexpr int kMostLockPolls = 600;  // a minute

struct RunningMember {
  const SweepMember* member;
  std::unique_ptr<MemberProcess> process;
};

volatile std::sig_atomic_t g_is_paused = 0;  // by Ctrl-Z
void on_terminal_stop(int) { g_is_paused = 1; }

// Notes Ctrl-Z while it lives. A SIGTSTP that was ignored, as in a shell without jobs, stays ignored.
class TerminalStops {
 public:
  [[nodiscard]] TerminalStops() {
    g_is_paused = 0;
    struct sigaction action = {};
    action.sa_handler = on_terminal_stop;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(SIGTSTP, nullptr, &before_);
    if (before_.sa_handler != SIG_IGN) sigaction(SIGTSTP, &action, nullptr);
  }
  ~TerminalStops() { sigaction(SIGTSTP, &before_, nullptr); }
  TerminalStops(const TerminalStops&) = delete;

  // After Ctrl-Z, stops the members and this process; both continue when the shell continues it, by fg or bg.
  void stop_if_requested(const std::vector<RunningMember>& running) {
    if (!g_is_paused) return;
    g_is_paused = 0;
    for (const RunningMember& r : running) r.process->pause();
    raise(SIGSTOP);
    for (const RunningMember& r : running) r.process->resume();
  }

 private:
  struct sigaction before_ = {};
};

// Waits for a run whose sweep was killed: the kernel stops it, and it saves first.
void wait_for_lock(const SweepMember& member, const SweepOptions& options) {
  for (int poll = 0; std::filesystem::exists(member.folder / "run.lock") && !stop_signal(); ++poll) {
    try {
      const RunLock free(member.folder);
      return;
    } catch (const ConfigError&) {
      if (poll >= kMostLockPolls) throw;
      if (poll == 0) options.print_line(member.name + ": waiting for the process that still trains it");
    }
    std::this_thread::sleep_for(kLockPollInterval);
  }
}

std::vector<std::string> command_for(const SweepMember& member, const SweepOptions& options, int jobs) {
  return {options.program.string(),
          "train",
          (member.folder / "config.json").string(),
          "--set",
          "output_dir=" + Json(member.folder.string()).dump(),
          "--resume",
          "auto",
          "--no-color",
          "--threads",
          std::to_string(std::max(1, options.threads / jobs))};
}

// Returns whether the run was stopped from outside, so that the next start continues it.
bool was_stopped(int code, const MemberProcess& process) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP})
    if (code == MemberProcess::kKilledBySignal + signal) return true;  // the signal came before the run could save
  return code == kRequeue || code == kInterrupted || (process.is_stopping() && code != kDone);
}

std::string outcome_of(const SweepMember& member) {
  const MemberState state = state_of(member);
  std::string out = state.text();
  if (state.has_failed())
    return out + (state.error.empty() ? "" : ": " + state.error) + "; see " + (member.folder / "output.txt").string();
  if (state.value) out += ", " + member.config["checkpoint"]["monitor"].get<std::string>() + " " + number_text(*state.value, 5);
  return out + joined(", ", state.steps, " steps, ", duration_text(state.seconds));
}

}  // namespace

std::vector<const SweepMember*> members_to_train(const SweepMembers& members, bool retry) {
  std::vector<const SweepMember*> out;
  for (const SweepMember& m : members.all) {
    const MemberState state = state_of(m);
    if (!state.is_finished() && (retry || !state.has_failed())) out.push_back(&m);
  }
  return out;
}

void train_members(const SweepMembers& members, const SweepOptions& options) {
  const std::vector<const SweepMember*> waiting = members_to_train(members, options.retry);
  for (const SweepMember* m : waiting) wait_for_lock(*m, options);
  const int jobs = std::clamp(options.jobs, 1, std::max(1, int(waiting.size())));
  size_t next = 0, ended = members.all.size() - waiting.size();
  std::vector<RunningMember> running;
  TerminalStops terminal;
  while (!running.empty() || (next < waiting.size() && !stop_signal())) {
    terminal.stop_if_requested(running);
    if (stop_signal()) {
      for (const RunningMember& r : running) r.process->stop();
    } else if (next < waiting.size() && int(running.size()) < jobs) {
      const SweepMember& m = *waiting[next++];
      const bool continues = !state_of(m).ending.empty();
      record_exit(m, {});
      running.push_back({&m, std::make_unique<MemberProcess>(command_for(m, options, jobs), m.folder / "output.txt")});
      options.print_line(m.name + (continues ? ": continues" : ": begins"));
      continue;
    }
    // Read each exit code once: a process that ends a moment later is found in the next round.
    std::erase_if(running, [&](const RunningMember& r) {
      const std::optional<int> code = r.process->exit_code();
      if (!code) return false;
      const bool is_stopped = was_stopped(*code, *r.process);
      if (!is_stopped) record_exit(*r.member, code);
      if (!is_stopped) ++ended;
      options.print_line(r.member->name + ": " + outcome_of(*r.member) + joined(" (", ended, " of ", members.all.size(), ")"));
      return true;
    });
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace halfstep::app
