// SPDX-License-Identifier: Apache-2.0
// Ctrl-C and the signals of batch systems and terminals: asked for between steps, never acted on inside one.
#pragma once

namespace halfstep::app {

// From now on SIGINT, SIGTERM, SIGUSR1 and SIGHUP are noted instead of ending the process; a second SIGINT ends it at once with
// code 130, and other repetitions change nothing. A SIGHUP that was ignored, as under nohup, stays so. SIGPIPE is ignored: a run
// outlives whoever reads its output.
void catch_stop_signals();

// The signal that came first, but SIGINT before all others; 0: none.
int stop_signal();

}  // namespace halfstep::app
