// SPDX-License-Identifier: Apache-2.0
// The halfstep program as a function, for programs that register components of their own:
//   HALFSTEP_REGISTER_MODULE(MyLayer);
//   int main(int argc, char** argv) { return halfstep::app::run_program(argc, argv); }
#pragma once

namespace halfstep::app {

// Runs the whole program: parses the arguments, runs the command, reports errors on stderr. Returns the exit code
// (apps/exit_codes.h). Sets handlers of signals. Never throws.
int run_program(int argc, const char* const* argv);

}  // namespace halfstep::app
