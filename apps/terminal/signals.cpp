// SPDX-License-Identifier: Apache-2.0
#include "apps/terminal/signals.h"

#include <unistd.h>

#include <csignal>
#include <cstring>

#include "apps/exit_codes.h"
#include "framework/io/files/mapped_file.h"

namespace halfstep::app {
namespace {

volatile std::sig_atomic_t g_received = 0;  // signal that asks the process to stop
volatile std::sig_atomic_t g_redrawn = -1;  // descriptor of the terminal with a redrawn line

// Calls only async-signal-safe functions.
void erase_line(int descriptor) { [[maybe_unused]] const auto written = descriptor >= 0 ? write(descriptor, "\r\033[J", 4) : 0; }

void on_signal(int number) {
  if (number == SIGINT && g_received == SIGINT) {  // the second Ctrl-C does not wait
    erase_line(g_redrawn);
    _exit(kInterrupted);
  }
  if (g_received == 0 || number == SIGINT) g_received = number;
}

// Calls only async-signal-safe functions.
void on_lost_page(int number, siginfo_t* info, void*) {
  const char* const path = mapped_file_at(info->si_addr);
  if (!path) {
    signal(number, SIG_DFL);
    return;  // the access is repeated, and ends the process
  }
  const auto say = [](const char* text) { [[maybe_unused]] const auto written = write(STDERR_FILENO, text, std::strlen(text)); };
  say("[file] ");
  say(path);
  say(": the file was shortened while it is in use, as by saving over it\nhelp: write the new file beside it, and move it there; ");
  say("checkpoints are kept, and for a training run halfstep train --resume auto continues\n");
  _exit(kData);
}

}  // namespace

void report_shortened_files() {
  struct sigaction action = {};
  action.sa_sigaction = on_lost_page;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

void catch_stop_signals() {
  g_received = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGHUP}) {
    struct sigaction before = {};
    sigaction(number, nullptr, &before);
    if (number != SIGHUP || before.sa_handler != SIG_IGN) sigaction(number, &action, nullptr);
  }
  signal(SIGPIPE, SIG_IGN);
}

void erase_when_interrupted(int descriptor) { g_redrawn = descriptor; }

void erase_redrawn_line() { erase_line(g_redrawn); }

int stop_signal() { return g_received; }

void check_not_stopped(const char* command) {
  if (stop_signal() != 0) fail<StoppedError>(command, "stopped by a signal; nothing was left behind");
}

}  // namespace halfstep::app
