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

// Training went to infinity or NaN.
struct DivergedError : Error {
  using Error::Error;
};

// A signal ended a command that has nothing to save, between two steps: what it wrote for itself is removed on the way out.
struct StoppedError : Error {
  using Error::Error;
};

// The code for the exception in flight; call inside a catch block. Prints its message to stderr. After a StoppedError the
// process ends by the signal.
int report_exception();

}  // namespace halfstep::app
