#include "apps/run/signals.h"

#include <unistd.h>

#include <csignal>

namespace halfstep::app {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1};
volatile std::sig_atomic_t g_received = 0;
struct sigaction g_before[3];

void on_signal(int number) {
  if (number == SIGINT && g_received == SIGINT) _exit(130);
  if (g_received == 0 || number == SIGINT) g_received = number;
}

}  // namespace

StopSignals::StopSignals() {
  g_received = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < 3; ++i) sigaction(kSignals[i], &action, &g_before[i]);
}

StopSignals::~StopSignals() {
  for (int i = 0; i < 3; ++i) sigaction(kSignals[i], &g_before[i], nullptr);
}

int StopSignals::received() { return g_received; }

}  // namespace halfstep::app
