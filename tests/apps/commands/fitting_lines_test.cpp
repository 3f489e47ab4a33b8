// SPDX-License-Identifier: Apache-2.0
// What commands print fits the terminal, and is whole in a file.
#include <doctest/doctest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "apps/terminal/terminal.h"
#include "tests/apps/small_run.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

// What a terminal of so many columns gets; nothing: none can be opened here.
std::string in_terminal(const TempDir& dir, unsigned short columns, const std::string& arguments) {
  struct winsize size = {24, columns, 0, 0};
  int terminal = -1;
  const std::string command = "cd '" + dir.path().string() + "' && exec '" + program().string() + "' " + arguments;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child < 0) return "";
  if (child == 0) {
    setenv("TERM", "xterm", 1);
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(99);
  }
  std::string all;
  char text[1000];
  for (ssize_t n = 0; (n = read(terminal, text, sizeof text)) > 0;) all.append(text, size_t(n));
  int status = 0;
  waitpid(child, &status, 0);
  close(terminal);
  CHECK_MESSAGE((WIFEXITED(status) && WEXITSTATUS(status) == 0), arguments << '\n' << all);
  return all;
}

// As they are seen in the end: what was redrawn is gone.
std::vector<std::string> seen_lines(const std::string& sent) {
  std::vector<std::string> out;
  std::istringstream lines(sent);
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (const size_t at = line.rfind('\r'); at != std::string::npos) line = line.substr(at + 1);
    const std::string erased = "\033[J";
    out.push_back(line.starts_with(erased) ? line.substr(erased.size()) : line);
  }
  return out;
}

}  // namespace

TEST_CASE("each line of a command fits a terminal of 80 and of 40 columns, and a file has it whole") {
  const TempDir dir;
  write(dir / "small.json", kSmall);
  std::string rows = "a long name,another column,kind\n";
  for (int i = 0; i < 60; ++i) rows += joined(i, ',', i % 7, i % 3 ? ",first kind\n" : ",another kind\n");
  write(dir / "t.csv", rows);
  if (in_terminal(dir, 80, "init t.csv --out t.json").empty()) {
    MESSAGE("SKIPPED: no terminal can be opened here (/dev/pts)");
    return;
  }
  for (const unsigned short columns : {80, 40}) {
    CAPTURE(columns);
    const std::string name = columns == 80 ? "wide" : "narrow", at = " --set output_dir=runs/" + name;
    const std::vector<std::string> commands = {"init t.csv",
                                               "validate t.json small.json",
                                               "train t.json --set train.epochs=90" + at,
                                               "eval runs/" + name,
                                               "plan small.json",
                                               "inspect runs/" + name,
                                               "compare runs/wide runs/" + name,
                                               "lr-find t.json --steps 10",
                                               "doctor t.json --no-probe",
                                               "tune runs/" + name + " --out tuned.json --overwrite",
                                               "predict runs/" + name + " t.csv --probabilities",
                                               "train small.json --dry-run"};
    for (const std::string& command : commands) {
      CAPTURE(command);
      const std::string sent = in_terminal(dir, columns, command);
      for (const std::string& line : seen_lines(sent)) {
        const size_t begin = line.find_first_not_of(' ');
        const bool is_one_word = begin == std::string::npos || line.find(' ', begin) == std::string::npos;
        CHECK_MESSAGE((columns_of(line) <= columns || is_one_word), line);
      }
      if (!command.starts_with("train t.json")) continue;
      CHECK(contains(sent, "\r\033[J"));  // a bar was there
      CHECK(contains(sent, "one epoch in 5 is shown"));
      const auto lines = seen_lines(sent);
      const auto epochs = std::count_if(lines.begin(), lines.end(), [](const std::string& l) { return l.starts_with("epoch "); });
      CHECK(epochs >= 19);
      CHECK(epochs <= 40);
    }
  }
  const Ran whole = run(dir, "train t.json --set train.epochs=90 --set output_dir=runs/file");
  CHECK(contains(whole.out, "\nepoch 89/90  train loss "));
  CHECK_FALSE(contains(whole.out, "\033"));
  CHECK_FALSE(contains(whole.out, "is shown"));
}
