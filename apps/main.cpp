// SPDX-License-Identifier: Apache-2.0
#if defined(__unix__)
#include <fcntl.h>
#include <unistd.h>
#endif

#include "apps/commands/program.h"

namespace {

// Opens closed descriptors 0 to 2 on /dev/null: else the next opened file would get such a number, and output would go into it.
void open_standard_streams() {
#if defined(__unix__)
  for (int fd = open("/dev/null", O_RDWR); fd >= 0; fd = open("/dev/null", O_RDWR)) {
    if (fd <= 2) continue;
    close(fd);
    return;
  }
#endif
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  return halfstep::app::run_program(argc, argv);
}
