// SPDX-License-Identifier: Apache-2.0
// The bar and the lines of epochs, on terminals and elsewhere.
#include "apps/terminal/progress.h"

#include <doctest/doctest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>

using namespace halfstep;
using namespace halfstep::app;

namespace {

bool has_terminals() {
  int master = -1, slave = -1;
  if (openpty(&master, &slave, nullptr, nullptr, nullptr) != 0) {
    MESSAGE("SKIPPED: no terminal can be opened here (/dev/pts)");
    return false;
  }
  close(master);
  close(slave);
  return true;
}

// What a terminal of so many columns, of the kind that `term` names, is sent.
std::string sent(unsigned short columns, const char* term, const std::function<void(Progress&, int terminal)>& say) {
  struct winsize size = {24, columns, 0, 0};
  int master = -1, slave = -1;
  REQUIRE(openpty(&master, &slave, nullptr, nullptr, &size) == 0);
  const char* before = std::getenv("TERM");
  const std::string kept = before ? before : "";
  setenv("TERM", term, 1);
  std::FILE* out = fdopen(slave, "w");
  {
    Progress progress({.out = out, .color = false});
    say(progress, slave);
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

int count_of(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

const ProgressView kHalfway{
    .epoch = 2, .epochs = 3, .step = 15, .steps = 30, .loss = 0.51234, .samples_per_second = 8123, .seconds_left = 41.6};

}  // namespace

TEST_CASE("the bar has the time that is left, and less of the rest on a narrow terminal") {
  CHECK(bar_text(kHalfway, 100) == "epoch 2/3  [===============>              ]   50 %  loss 0.512  8.1k samples/s  42 s left");
  for (size_t width = 1; width <= 120; ++width) CHECK_MESSAGE(bar_text(kHalfway, width).size() <= width, width);
  CHECK(bar_text(kHalfway, 37) == "epoch 2/3  [===>  ]   50 %  42 s left");
  CHECK(bar_text(kHalfway, 30) == "epoch 2/3   50 %  42 s left");
  CHECK(bar_text(kHalfway, 18) == " 50 %  42 s left");
  ProgressView v = kHalfway;
  v.seconds_left = INFINITY, v.step = 0, v.loss.reset(), v.samples_per_second = 0;  // before the first step
  CHECK(bar_text(v, 60) == "epoch 2/3  [>                             ]    0 %");
  v.step = 30, v.seconds_left = 0;
  CHECK(bar_text(v, 60).ends_with("]  100 %  1 s left"));
  v = kHalfway;
  v.loader_wait = 0.4, v.skipped = 3, v.evaluates = true;
  CHECK(bar_text(v, 120).find("evaluating  3 skipped  waits for data 40 %  8.1k samples/s") != std::string::npos);
  v.epochs = 0;
  CHECK(bar_text(v, 80).starts_with("step 15/30  ["));
}

TEST_CASE("on a terminal a bar is redrawn and taken away, and a dumb one gets whole lines") {
  if (!has_terminals()) return;
  const auto once = [](Progress& p, int) { p.update(kHalfway); };
  const std::string narrow = sent(44, "xterm", once);
  CHECK(narrow == bar_text(kHalfway, 41) + "\r\033[J");
  CHECK(sent(44, "dumb", once).starts_with("epoch 2/3  step 15/30  loss 0.5123  lr 0  8.1k samples/s"));
  CHECK(sent(0, "xterm", once) == bar_text(kHalfway, 77) + "\r\033[J");  // of unknown width
  const std::string line = sent(44, "xterm", [](Progress& p, int) {
    p.update(kHalfway);
    CHECK_FALSE(p.is_due());
    p.line("done: of a line that is too long for it");
    CHECK(p.is_due());  // the bar is gone
  });
  CHECK(line == bar_text(kHalfway, 41) + "\r\033[Jdone: of a line that is too long for it\r\n");
  CHECK(sent(24, "xterm", [](Progress& p, int) { p.line("done: one two three four five"); }) ==
        "done: one two three four\r\n      five\r\n");
}

TEST_CASE("a bar that a narrower terminal has broken into lines is taken away whole") {
  if (!has_terminals()) return;
  const auto shrink = [](Progress& p, int terminal) {
    p.update(kHalfway);
    struct winsize size = {24, 20, 0, 0};
    REQUIRE(ioctl(terminal, TIOCSWINSZ, &size) == 0);
    p.update(kHalfway);
  };
  CHECK(sent(80, "xterm", shrink) == bar_text(kHalfway, 77) + "\033[3A\r\033[J" + bar_text(kHalfway, 17) + "\r\033[J");
}

TEST_CASE("a long run has some lines on a terminal: every n-th epoch and the best before it; a file has all") {
  if (!has_terminals()) return;
  const auto lines = [](int64_t epochs, int64_t best_every) {
    return [=](Progress& p, int) {
      EpochLines l(p, epochs);
      for (int64_t e = 1; e <= epochs; ++e) l.add(e, {{"epoch " + std::to_string(e) + "."}}, e % best_every == 0);
      l.print_pending();
    };
  };
  const std::string many = sent(80, "xterm", lines(200, 7));
  CHECK(count_of(many, "epoch ") > 20);
  CHECK(count_of(many, "epoch ") <= 41);
  for (const char* shown : {"epoch 1.", "epoch 10.", "epoch 199.", "epoch 200.", "epoch 196.  best"})
    CHECK_MESSAGE(count_of(many, shown) == (std::string(shown) == "epoch 199." ? 0 : 1), shown);
  CHECK(many.find("epoch 196.") < many.find("epoch 200."));
  CHECK(count_of(sent(80, "xterm", lines(200, 1)), "epoch ") == 21);  // each is the best, and the last one of some is printed
  CHECK(count_of(sent(80, "xterm", lines(40, 3)), "epoch ") == 40);
  CHECK(count_of(sent(80, "dumb", lines(200, 7)), "epoch ") == 200);
  CHECK(count_of(sent(80, "xterm", lines(203, 500)), "epoch 203.") == 1);  // the last, though no multiple
}

TEST_CASE("a line of parts loses first what says least") {
  const std::vector<LinePart> parts = {
      {"epoch 1/2"}, {"val accuracy 97.31 %", "accuracy 97.31 %"}, {"lr 0.001", "", true}, {"3 s"}};
  CHECK(line_of_parts(parts, 0) == "epoch 1/2  val accuracy 97.31 %  lr 0.001  3 s");
  CHECK(line_of_parts(parts, 46) == line_of_parts(parts, 0));
  CHECK(line_of_parts(parts, 45) == "epoch 1/2  val accuracy 97.31 %  3 s");
  CHECK(line_of_parts(parts, 20) == "epoch 1/2  accuracy 97.31 %  3 s");
}
