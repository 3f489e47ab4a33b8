// SPDX-License-Identifier: Apache-2.0
// What a person sees while a model trains: one redrawn line on a terminal, plain lines otherwise.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace halfstep::app {

struct ProgressOptions {
  std::FILE* out = stdout;
  bool quiet = false;   // only errors and warnings
  bool silent = false;  // not even that: another rank says it
  bool color = true;   // on a terminal, unless NO_COLOR is set
  // Even on a terminal: it is the launcher's, which passes the output of ranks on to a file or mixes it with that of others.
  bool plain = false;
};

// A moment of training.
struct ProgressView {
  int64_t epoch = 0, epochs = 0;  // from 1; epochs 0: the length is given in steps
  int64_t step = 0, steps = 0;
  double loss = 0, lr = 0;
  double samples_per_second = 0, seconds_left = 0;
  std::optional<double> scale;  // with a gradient scaler
  int64_t skipped = 0;
  std::optional<double> grad_norm;  // where it is computed
  double loader_wait = 0;           // share of the time spent waiting for data, 0..1
  std::optional<double> rank_wait;  // the same for other ranks, where there are any
  double peak_bytes = 0;            // of the device's memory
};

class Progress {
 public:
  explicit Progress(const ProgressOptions& options);
  ~Progress();  // ends a line that was being redrawn

  void line(const std::string& text);     // a line that stays
  void note(const std::string& text);     // the same, marked as a remark
  void warn(const std::string& text);     // also when quiet
  void update(const ProgressView& view);  // redraws, or prints a line now and then

 private:
  void clear();
  std::string paint(const char* code, const std::string& text) const;

  ProgressOptions options_;
  bool terminal_, color_, drawn_ = false;
  std::chrono::steady_clock::time_point last_plain_{};
};

std::string duration_text(double seconds);      // "42 s", "3:07", "1:02:30"
std::string bytes_text(double bytes);           // "12.3 MB"
std::string count_text(double n);               // "12.3k"
std::string number_text(double v, int digits);  // significant digits

}  // namespace halfstep::app
