// SPDX-License-Identifier: Apache-2.0
// What a person sees while a model trains: on a terminal a bar that is redrawn, otherwise plain lines.
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
  bool silent = false;  // not even that: another rank says it
  bool color = true;    // on a terminal, unless NO_COLOR is set
  // Even on a terminal: it is the launcher's, which passes the output of ranks on to a file or mixes it with that of others.
  bool plain = false;
};

// A moment of training.
struct ProgressView {
  int64_t epoch = 0, epochs = 0;  // from 1; epochs 0: the length is given in steps
  int64_t step = 0, steps = 0;
  std::optional<double> loss;
  double lr = 0;
  double samples_per_second = 0, seconds_left = 0;  // seconds_left is infinite where it is not known
  std::optional<double> scale;                      // with a gradient scaler
  int64_t skipped = 0;
  std::optional<double> grad_norm;  // where it is computed
  double loader_wait = 0;           // share of the time spent waiting for data, 0..1
  std::optional<double> rank_wait;  // the same for other ranks, where there are any
  double peak_bytes = 0;            // of the device's memory
  bool evaluates = false;           // and does not train
};

// "epoch 3/20  [=====>          ]  31 %  loss 0.42  8.1k samples/s  0:42 left", of at most `width` columns. A narrow terminal has
// less of it, and the time that is left at the last.
std::string bar_text(const ProgressView& view, size_t width);

// A part of a line, and what becomes of it where the line is too long for a terminal.
struct LinePart {
  std::string text, brief = {};  // brief: instead of the text; empty: the text
  bool goes_first = false;       // before texts become brief
};
// The parts, two spaces apart. width 0: all of them.
std::string line_of_parts(const std::vector<LinePart>& parts, size_t width);

class Progress {
 public:
  explicit Progress(const ProgressOptions& options);
  ~Progress();  // takes the bar away

  void line(const std::string& text);     // a line that stays
  void note(const std::string& text);     // the same, marked as a remark
  void warn(const std::string& text);     // also when quiet
  void update(const ProgressView& view);  // redraws the bar, or prints a line now and then

  bool has_bar() const { return terminal_ && !options_.quiet && !options_.silent; }
  bool is_due() const;   // was the bar drawn long ago? Drawing it costs more than a short step
  size_t width() const;  // of the terminal now; 0: lines stay whole

 private:
  void clear();
  std::string paint(const char* code, const std::string& text) const;

  ProgressOptions options_;
  bool terminal_, color_;
  size_t drawn_ = 0;  // columns of the bar
  std::chrono::steady_clock::time_point last_plain_{}, last_bar_{};
};

// The lines of epochs. A terminal gets some twenty to forty of a long run: every n-th, and before it the best one since the last
// line; with the last line of the run nothing is held back. Files and pipes get all.
class EpochLines {
 public:
  EpochLines(Progress& progress, int64_t epochs);
  int64_t every() const { return every_; }
  void add(int64_t epoch, std::vector<LinePart> parts, bool is_best);
  void end();  // prints what is held back

 private:
  void print(std::vector<LinePart> parts);
  Progress& progress_;
  int64_t every_;
  struct Held {
    int64_t epoch;
    std::vector<LinePart> parts;
  };
  std::optional<Held> best_, last_;
  std::vector<size_t> widths_;  // of the parts so far, for columns
  std::chrono::steady_clock::time_point printed_{};
};

std::string duration_text(double seconds);      // "42 s", "3:07", "1:02:30"
std::string bytes_text(double bytes);           // "12.3 MB"
std::string count_text(double n);               // "12.3k"
std::string number_text(double v, int digits);  // significant digits

}  // namespace halfstep::app
