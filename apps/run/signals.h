// Ctrl-C and the signals of batch systems: asked for between steps, never acted on inside one.
#pragma once

namespace halfstep::app {

// Catches SIGINT, SIGTERM and SIGUSR1 while it lives. A second SIGINT ends the process at once with code 130.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;

  // The signal that came first, or 0.
  static int received();
};

}  // namespace halfstep::app
