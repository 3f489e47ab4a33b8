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
#include "apps/terminal/progress.h"
#include "apps/terminal/signals.h"
#include "framework/base/check.h"

namespace halfstep::app {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kBetweenLooks{20};
constexpr int kLooksAtLock = 600;  // a tenth of a second each

struct RunningMember {
  const SweepMember* member;
  std::unique_ptr<MemberProcess> process;
};

volatile std::sig_atomic_t g_paused = 0;
void on_terminal_stop(int) { g_paused = 1; }

// Notes Ctrl-Z while it lives. A SIGTSTP that was ignored, as in a shell without jobs, stays ignored.
class TerminalStops {
 public:
  [[nodiscard]] TerminalStops() {
    g_paused = 0;
    struct sigaction action = {};
    action.sa_handler = on_terminal_stop;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(SIGTSTP, nullptr, &before_);
    if (before_.sa_handler != SIG_IGN) sigaction(SIGTSTP, &action, nullptr);
  }
  ~TerminalStops() { sigaction(SIGTSTP, &before_, nullptr); }
  TerminalStops(const TerminalStops&) = delete;

  // After Ctrl-Z: stops the members and this process; both continue when the shell continues it, by fg or bg.
  void obey(const std::vector<RunningMember>& running) {
    if (!g_paused) return;
    g_paused = 0;
    for (const RunningMember& r : running) r.process->pause();
    raise(SIGSTOP);
    for (const RunningMember& r : running) r.process->resume();
  }

 private:
  struct sigaction before_ = {};
};

// Waits for a run whose sweep was killed: the kernel stops it, and it saves first.
void wait_for_lock(const SweepMember& member, const SweepOptions& o) {
  for (int look = 0; std::filesystem::exists(member.folder / "run.lock") && !stop_signal(); ++look) {
    try {
      const RunLock free(member.folder);
      return;
    } catch (const ConfigError&) {
      if (look >= kLooksAtLock) throw;
      if (look == 0) o.say(member.name + ": waiting for the process that still trains it");
    }
    std::this_thread::sleep_for(milliseconds(100));
  }
}

std::vector<std::string> command_for(const SweepMember& member, const SweepOptions& o, int jobs) {
  return {o.program.string(),
          "train",
          (member.folder / "config.json").string(),
          "--set",
          "output_dir=" + Json(member.folder.string()).dump(),
          "--resume",
          "auto",
          "--no-color",
          "--threads",
          std::to_string(std::max(1, o.threads / jobs))};
}

// Returns whether the run was stopped from outside, so that the next start continues it.
bool was_stopped(int code, const MemberProcess& process) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP})
    if (code == 128 + signal) return true;  // the signal came before the run could save
  return code == kRequeue || code == kInterrupted || (process.is_stopping() && code != kDone);
}

std::string outcome_of(const SweepMember& member) {
  const MemberState state = state_of(member);
  std::string out = state.text();
  if (state.failed())
    return out + (state.error.empty() ? "" : ": " + state.error) + "; see " + (member.folder / "output.txt").string();
  if (state.value) out += ", " + member.config["checkpoint"]["monitor"].get<std::string>() + " " + number_text(*state.value, 5);
  return out + joined(", ", state.steps, " steps, ", duration_text(state.seconds));
}

}  // namespace

std::vector<const SweepMember*> members_to_train(const SweepMembers& members, bool retry) {
  std::vector<const SweepMember*> out;
  for (const SweepMember& m : members.all) {
    const MemberState state = state_of(m);
    if (!state.finished() && (retry || !state.failed())) out.push_back(&m);
  }
  return out;
}

void train_members(const SweepMembers& members, const SweepOptions& o) {
  const std::vector<const SweepMember*> waiting = members_to_train(members, o.retry);
  for (const SweepMember* m : waiting) wait_for_lock(*m, o);
  const int jobs = std::clamp(o.jobs, 1, std::max(1, int(waiting.size())));
  size_t next = 0, ended = members.all.size() - waiting.size();
  std::vector<RunningMember> running;
  TerminalStops terminal;
  while (!running.empty() || (next < waiting.size() && !stop_signal())) {
    terminal.obey(running);
    if (stop_signal()) {
      for (const RunningMember& r : running) r.process->stop();
    } else if (next < waiting.size() && int(running.size()) < jobs) {
      const SweepMember& m = *waiting[next++];
      const bool continues = !state_of(m).ending.empty();
      record_exit(m, {});
      running.push_back({&m, std::make_unique<MemberProcess>(command_for(m, o, jobs), m.folder / "output.txt")});
      o.say(m.name + (continues ? ": continues" : ": begins"));
      continue;
    }
    // Ask each once: one that ends a moment later is found in the next round.
    std::erase_if(running, [&](const RunningMember& r) {
      const std::optional<int> code = r.process->ended();
      if (!code) return false;
      const bool stopped = was_stopped(*code, *r.process);
      if (!stopped) record_exit(*r.member, code);
      if (!stopped) ++ended;
      o.say(r.member->name + ": " + outcome_of(*r.member) + joined(" (", ended, " of ", members.all.size(), ")"));
      return true;
    });
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace halfstep::app
