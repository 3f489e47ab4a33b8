// SPDX-License-Identifier: Apache-2.0
// Progress of training for a person: on a terminal a bar that is redrawn, otherwise plain lines.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace halfstep::app {

struct ProgressOptions {
  std::FILE* out = stdout;
  bool quiet = false;   // only errors and warnings
  bool silent = false;  // not even these: another rank prints them
  bool color = true;    // on a terminal, unless NO_COLOR is set
  // Treats a terminal as plain: a launcher may redirect its ranks' output to a file, or mix it with that of others.
  bool plain = false;
};

// The state of training at a moment.
struct ProgressView {
  int64_t epoch = 0, epochs = 0;  // from 1; epochs 0: the length is in steps
  int64_t step = 0, steps = 0;
  std::optional<double> loss;
  double lr = 0;
  double samples_per_second = 0, seconds_left = 0;  // seconds_left: infinite if unknown
  std::optional<double> scale;                      // with a gradient scaler
  int64_t skipped = 0;
  std::optional<double> grad_norm;  // if computed
  double loader_wait = 0;           // share of the time spent waiting for data, 0..1
  std::optional<double> rank_wait;  // the same for other ranks, if there are any
  double peak_bytes = 0;            // of the device's memory
  bool evaluates = false;           // evaluating, not training
};

// Returns "epoch 3/20  [=====>          ]  31 %  loss 0.42  8.1k samples/s  0:42 left", of at most `width` columns. A narrow
// terminal gets fewer parts; the time left is dropped last.
std::string bar_text(const ProgressView& view, size_t width);

// A part of a line, and how it is shortened if the line is too long for a terminal.
struct LinePart {
  std::string text, brief = {};  // brief: shorter text; empty: the text
  bool is_optional = false;      // dropped before texts become brief
};
// Joins the parts, two spaces apart. width 0: all of them.
std::string line_of_parts(const std::vector<LinePart>& parts, size_t width);

class Progress {
 public:
  explicit Progress(const ProgressOptions& options);
  ~Progress();  // erases the bar

  void line(const std::string& text);     // prints a permanent line
  void note(const std::string& text);     // the same, marked as a note
  void warn(const std::string& text);     // also when quiet
  void update(const ProgressView& view);  // redraws the bar, or prints a line at intervals

  // Returns whether a bar is drawn: on a terminal, unless quiet or silent.
  bool has_bar() const { return is_terminal_ && !options_.quiet && !options_.silent; }
  bool is_due() const;   // whether to draw the bar again; not after each step, as drawing costs more than a short one
  size_t width() const;  // of the terminal now; 0: lines are not wrapped

 private:
  void erase_bar();
  std::string paint(const char* code, const std::string& text) const;

  ProgressOptions options_;
  bool is_terminal_, has_color_;
  size_t bar_columns_ = 0;  // of the bar on the terminal; 0: there is none
  std::chrono::steady_clock::time_point last_line_{}, last_bar_{};
};

// Prints lines of epochs. A terminal gets twenty to forty of a long run: every n-th, preceded by the best one since the last line,
// and at the end those that are left. Files and pipes get all lines.
class EpochLines {
 public:
  EpochLines(Progress& progress, int64_t epochs);
  int64_t every() const { return every_; }  // epochs between two lines
  void add(int64_t epoch, std::vector<LinePart> parts, bool is_best);
  void print_pending();

 private:
  void print(std::vector<LinePart> parts);
  Progress& progress_;
  int64_t every_;
  struct PendingLine {
    int64_t epoch;
    std::vector<LinePart> parts;
  };
  std::optional<PendingLine> best_, last_;
  std::vector<size_t> widths_;  // of the parts so far, for alignment
  std::chrono::steady_clock::time_point printed_{};
};

}  // namespace halfstep::app
