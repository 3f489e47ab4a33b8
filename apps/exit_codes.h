// SPDX-License-Identifier: Apache-2.0
// Exit codes of the halfstep program.
#pragma once

#include "framework/base/check.h"

namespace halfstep::app {

enum ExitCode : int {
  kDone = 0,
  kFailed = 1,        // runtime failure
  kUsage = 2,         // command line or config
  kData = 3,          // data or a checkpoint missing or malformed
  kDiverged = 4,      // NaN loss, or the loss scale fell below its lower limit
  kDevice = 5,        // device absent, or out of memory
  kNotHeld = 6,       // a check of a run did not hold
  kPeerLost = 74,     // another rank ended, stopped or was cut off: run again with --resume auto
  kRequeue = 75,      // stopped by SIGTERM, SIGHUP or SIGUSR1 after saving: run again with --resume auto
  kInterrupted = 130  // Ctrl-C, after saving
};

// Losses or weights became infinite or NaN.
struct DivergedError : Error {
  using Error::Error;
};

// A signal stopped a command that has nothing to save, between two steps; destructors remove its temporary files.
struct StoppedError : Error {
  using Error::Error;
};

// Returns the code for the exception being handled, and prints its message to stderr; call it inside a catch block. After a
// StoppedError the process ends by the signal.
int report_exception();

}  // namespace halfstep::app
