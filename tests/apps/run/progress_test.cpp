// SPDX-License-Identifier: Apache-2.0
// The line of progress on terminals.
#include <doctest/doctest.h>
#include <pty.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "apps/run/progress.h"

using namespace halfstep;
using namespace halfstep::app;

namespace {

bool has_terminals() {
  int master = -1, slave = -1;
  if (openpty(&master, &slave, nullptr, nullptr, nullptr) != 0) return false;
  close(master);
  close(slave);
  return true;
}

// What a terminal of so many columns, of the kind that `term` names, is sent for one update.
std::string sent(unsigned short columns, const char* term) {
  struct winsize size = {24, columns, 0, 0};
  int master = -1, slave = -1;
  REQUIRE(openpty(&master, &slave, nullptr, nullptr, &size) == 0);
  const char* before = std::getenv("TERM");
  const std::string kept = before ? before : "";
  setenv("TERM", term, 1);
  std::FILE* out = fdopen(slave, "w");
  {
    Progress progress({.out = out, .color = false});
    progress.update({.epoch = 1, .epochs = 2, .step = 3, .steps = 4, .loss = 0.5});
  }
  std::fclose(out);
  if (before)
    setenv("TERM", kept.c_str(), 1);
  else
    unsetenv("TERM");
  std::string all;  // which may come in pieces; the end is an error, as nobody holds the other side any more
  char text[1000];
  for (ssize_t n = 0; (n = read(master, text, sizeof text)) > 0;) all.append(text, size_t(n));
  close(master);
  return all;
}

}  // namespace

TEST_CASE("the line of progress fits the terminal, and a dumb one gets whole lines") {
  if (!has_terminals()) {
    MESSAGE("SKIPPED: no terminal can be opened here (/dev/pts)");
    return;
  }
  const std::string wide = sent(400, "xterm"), narrow = sent(40, "xterm"), dumb = sent(40, "dumb");
  CHECK(wide.starts_with("\r\033[Kepoch 1/2  step 3/4  loss 0.5"));
  CHECK(wide.size() > 80);
  CHECK(narrow == wide.substr(0, 4 + 36) + "...\r\n");
  CHECK(dumb == wide.substr(4));
  CHECK(sent(0, "xterm") == wide);  // of unknown width
}
