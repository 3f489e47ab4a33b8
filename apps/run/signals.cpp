// SPDX-License-Identifier: Apache-2.0
#include "apps/run/signals.h"

#include <unistd.h>

#include <csignal>

#include "apps/exit_codes.h"

namespace halfstep::app {
namespace {

volatile std::sig_atomic_t g_received = 0;

void on_signal(int number) {
  if (number == SIGINT && g_received == SIGINT) _exit(kInterrupted);
  if (g_received == 0 || number == SIGINT) g_received = number;
}

}  // namespace

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

int stop_signal() { return g_received; }

void end_if_stopped(const char* command) {
  if (stop_signal() != 0) fail<StoppedError>(command, "stopped by a signal; nothing was left behind");
}

}  // namespace halfstep::app
