#include <cstdlib>

#if defined(__unix__)
#include <fcntl.h>
#include <unistd.h>
#endif

#include "apps/commands/commands.h"

namespace {

// A descriptor of 0 to 2 that is closed would be given to the next file that is opened, and what is printed would land there.
void open_standard_streams() {
#if defined(__unix__)
  for (int fd = open("/dev/null", O_RDWR); fd >= 0; fd = open("/dev/null", O_RDWR)) {
    if (fd <= 2) continue;
    close(fd);
    return;
  }
#endif
}

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
  open_standard_streams();
  shorten_spinning(argv);
  return halfstep::app::run_program(argc, argv);
}
