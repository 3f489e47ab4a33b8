// SPDX-License-Identifier: Apache-2.0
// Handles Ctrl-C and the signals of batch systems and terminals: they set a flag, which a run reads between its steps.
#pragma once

namespace halfstep::app {

// Makes SIGINT, SIGTERM, SIGUSR1 and SIGHUP set a flag instead of ending the process; a second SIGINT ends it at once with code
// 130, other repetitions have no effect. A SIGHUP that was ignored, as under nohup, stays ignored. Ignores SIGPIPE: a run
// continues when the reader of its output exits.
void catch_stop_signals();

// Sets the descriptor of a terminal whose last line is redrawn: a second SIGINT erases it before the process ends. -1: none.
void erase_when_interrupted(int descriptor);
// Erases that line now, before something else is printed.
void erase_redrawn_line();

// Makes the process end with code 3 and a message that names the file if another program shortens a mapped file. Checkpoints that
// are written remain.
void report_shortened_files();

// Returns the first signal, but SIGINT before all others; 0: none.
int stop_signal();
// Throws StoppedError if a stop signal came. For commands that remove all that they write: the message says so.
void check_not_stopped(const char* command);

}  // namespace halfstep::app
