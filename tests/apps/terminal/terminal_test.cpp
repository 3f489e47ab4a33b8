// SPDX-License-Identifier: Apache-2.0
// Lines and tables that fit a terminal.
#include "apps/terminal/terminal.h"

#include <doctest/doctest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "apps/terminal/cells.h"

using namespace halfstep::app;

namespace {

size_t longest_line(const std::string& text) {
  size_t out = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) out = std::max(out, columns_of(line));
  return out;
}

std::string printed(const Cells& rows, const CellsFit& fit) {
  std::ostringstream out;
  print_cells(out, rows, fit);
  return out.str();
}

}  // namespace

TEST_CASE("a line is broken at words, below what follows its label") {
  CHECK(wrapped("one two three", 0) == "one two three");
  CHECK(wrapped("one two three", 13) == "one two three");
  CHECK(wrapped("one two three", 12) == "one two\n  three");
  CHECK(wrapped("    in four", 9) == "    in\n    four");                 // an indent is at most half of the width
  CHECK(wrapped("accuracy 97 %, loss", 12) == "accuracy\n  97 %, loss");  // a number and its sign stay together
  CHECK(wrapped("done: 12 steps, 3 skipped", 16) == "done: 12 steps,\n      3 skipped");
  CHECK(wrapped("val   12 samples", 12) == "val   12\n      samples");
  CHECK(wrapped("a /very/long/path/that/is/copied here", 12) == "a\n  /very/long/path/that/is/copied\n  here");
  CHECK(wrapped("\033[33mwarning:\033[0m one two", 12) == "\033[33mwarning:\033[0m one\n  two");
  CHECK(wrapped("\033[33mwarning:\033[0m one two", 24) == "\033[33mwarning:\033[0m one two");  // colors take no room
}

TEST_CASE("columns are those of a terminal") {
  CHECK(columns_of("abc") == 3);
  CHECK(columns_of("Zürich") == 6);
  CHECK(columns_of("u\xcc\x88") == 1);  // with a combining mark
  CHECK(columns_of("日本") == 4);
  CHECK(columns_of("\033[36m==\033[0m") == 2);
  CHECK(columns_of("\xff\xc3") == 2);  // no UTF-8
  CHECK(shortened("日本語の名前", 7) == "日本...");
  CHECK(shortened("abcdef", 6) == "abcdef");
  CHECK(shortened("abcdef", 2) == "ab");
  CHECK(in_line("a b") == "a b");
  CHECK(in_line("\n") == "\"\\u000a\"");
  CHECK(in_line("") == "\"\"");
  CHECK(in_line(" x") == "\" x\"");
}

TEST_CASE("comments of a config that do not fit go above their line") {
  const std::string config = "{\n  \"a\": 1,     // one two three four five six seven\n  \"url\": \"http://x\"\n}\n";
  CHECK(with_fitting_comments(config, 0) == config);
  CHECK(with_fitting_comments(config, 200) == config);
  CHECK(with_fitting_comments(config, 30) ==
        "{\n  // one two three four five\n  // six seven\n  \"a\": 1,\n  \"url\": \"http://x\"\n}\n");
  CHECK(with_fitting_comments("{\"long\": 1, \"key\": 2}\n", 14) == "{\"long\": 1,\n  \"key\": 2}\n");
  CHECK(with_fitting_comments("{\"a b c d e f\": 1}\n", 14) == "{\"a b c d e f\":\n  1}\n");  // a blank of a text stays
}

TEST_CASE("a stream's lines are wrapped on a terminal, as wide as it is then, and nowhere else") {
  struct winsize size = {24, 20, 0, 0};
  int master = -1, slave = -1;
  if (openpty(&master, &slave, nullptr, nullptr, &size) != 0) {
    MESSAGE("SKIPPED: no terminal can be opened here (/dev/pts)");
    return;
  }
  std::ostringstream out;
  {
    const FittedStream fitted(out, slave);
    out << "first line of some words" << std::flush;
    CHECK(out.str().empty());  // it is not complete
    out << " here\n";
    size.ws_col = 12;
    REQUIRE(ioctl(slave, TIOCSWINSZ, &size) == 0);
    out << "second line here\nrest";
  }
  CHECK(out.str() == "first line of some\n  words here\nsecond line\n  here\nrest");
  std::ostringstream plain;
  {
    const FittedStream fitted(plain, -1);
    plain << "a line of more than twelve columns\n";
  }
  CHECK(plain.str() == "a line of more than twelve columns\n");
  close(master);
  close(slave);
}

TEST_CASE("a table fits: columns are left out, texts are shortened, and the rest is printed in parts") {
  const Cells rows = {{"name", "text", "n", "m"}, {"a", "some words that are long", "1", "22"}, {"bb", "short", "10", "3"}};
  CHECK(printed(rows, {.right = {2}}) == R"(  name  text                       n  m
  a     some words that are long   1  22
  bb    short                     10  3
)");
  const std::string less = printed(rows, {.width = 36, .left_out = {3}, .right = {2}});
  CHECK(longest_line(less) <= 36 + 10);
  CHECK(less.find("22") == std::string::npos);
  CHECK(less.find("(left out, as the terminal is narrow: m)") != std::string::npos);
  const std::string shorter = printed(rows, {.width = 30, .shortened = {1}});
  CHECK(longest_line(shorter) == 30);
  CHECK(shorter.find("some words ...") != std::string::npos);
  const std::string parts = printed(rows, {.width = 34});
  CHECK(longest_line(parts) <= 34);
  CHECK(parts.find("\n\n  name  n") != std::string::npos);  // the second part has the names again
  for (const size_t width : {1, 5, 9, 17}) CHECK(!printed(rows, {.width = width}).empty());
}
