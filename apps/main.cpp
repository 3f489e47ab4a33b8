#include <cstdlib>

#if defined(__linux__)
#include <unistd.h>
#endif

#include "apps/commands/commands.h"

namespace {

// Waiting OpenMP threads spin for milliseconds by default. That costs a factor of ten and more as soon as something else wants
// their cores. A short spin, then sleep, is as fast on an idle machine (measured on steps from 0.3 to 30 ms; sleeping at once
// costs 25 % on the shortest). The runtime reads its environment when it is loaded, before main, hence the restart. Whoever sets
// either variable is respected.
void shorten_spinning([[maybe_unused]] char** argv) {
#if defined(__linux__)
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return;
  setenv("GOMP_SPINCOUNT", "3000", 1);
  execv("/proc/self/exe", argv);  // returns only when it failed: then threads spin
#endif
}

}  // namespace

int main(int argc, char** argv) {
  shorten_spinning(argv);
  return halfstep::app::run_program(argc, argv);
}
