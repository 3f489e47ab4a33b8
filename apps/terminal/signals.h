// SPDX-License-Identifier: Apache-2.0
// Ctrl-C and the signals of batch systems and terminals: polled between steps, never acted on inside a step.
#pragma once

namespace halfstep::app {

// From now on SIGINT, SIGTERM, SIGUSR1 and SIGHUP are noted instead of ending the process; a second SIGINT ends it at once with
// code 130, and other repetitions change nothing. A SIGHUP that was ignored, as under nohup, stays so. SIGPIPE is ignored: a run
// continues when the reader of its output exits.
void catch_stop_signals();

// The descriptor of a terminal whose last line is being redrawn: it is erased when a second SIGINT ends the process. -1: none.
void erase_when_interrupted(int descriptor);
// Erases it now, before something else is printed.
void erase_redrawn_line();

// From now on a mapped file that another program shortens ends the process with code 3 and a message that names it. Checkpoints
// that are written stay.
void name_shortened_files();

// The signal that came first, but SIGINT before all others; 0: none.
int stop_signal();
// Throws StoppedError if there was one.
void end_if_stopped(const char* command);

}  // namespace halfstep::app
