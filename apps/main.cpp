#include <cstdlib>

#if defined(__linux__)
#include <unistd.h>
#endif

#include "apps/commands/commands.h"

namespace {

// Waiting OpenMP threads spin by default. That costs a factor of ten and more as soon as something else wants their cores; letting
// them sleep costs some 20 % on steps under a millisecond, and nothing on longer ones. OMP_WAIT_POLICY=active is respected. The
// runtime reads its environment when it is loaded, before main, hence the restart.
void let_threads_sleep([[maybe_unused]] char** argv) {
#if defined(__linux__)
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return;
  setenv("OMP_WAIT_POLICY", "passive", 1);
  execv("/proc/self/exe", argv);  // returns only when it failed: then threads spin
#endif
}

}  // namespace

int main(int argc, char** argv) {
  let_threads_sleep(argv);
  return halfstep::app::run_program(argc, argv);
}
