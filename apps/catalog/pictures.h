// SPDX-License-Identifier: Apache-2.0
// The pictures of a config's data, opened before they are needed: one that cannot be read must not end a run after its first epoch.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "apps/schema/json.h"
#include "framework/data/sets/picture_check.h"

namespace halfstep::app {

struct PictureReport {
  int64_t pictures = 0;  // of data.train, val and test, each once
  int64_t checked = 0, bad = 0, flawed = 0;
  std::vector<std::string> faults;  // of the first ones
  std::string flaw;                 // the first one's name

  void add(const PictureReport& more);       // of other pictures
  std::string error() const;                 // all faults in one message; "" without one
  std::string warning() const;               // of pictures that lack no pixel; "" without one
  std::string opened(double seconds) const;  // "3 of 1200 pictures were opened within 10 s", or that all were
};
constexpr double kPictureSeconds = 10;  // for opening pictures where no run needs all of them
Json to_json(const PictureReport& report);
PictureReport read_report(const Json& json);

struct ExamineOptions {
  int rank = 0, ranks = 1;  // that share the pictures
  double seconds = std::numeric_limits<double>::infinity();
  bool draws = true;                   // a line of progress, on a terminal
  std::function<bool()> stopped = {};  // true ends it
};
// As check_pictures (framework/data/sets/picture_check.h). Throws as build_dataset, and MemoryError.
PictureReport examine_pictures(const Json& config, const ExamineOptions& options = {});

// Draws "opening pictures: 300 of 1200", or what else is done to them, on stderr, where that is a terminal, and wipes it away at
// the end.
class PicturesLine {
 public:
  [[nodiscard]] explicit PicturesLine(const char* what = "opening pictures", bool draws = true);
  ~PicturesLine();
  PicturesLine(const PicturesLine&) = delete;
  void show(int64_t done, int64_t all);

 private:
  const char* what_;
  bool draws_, drawn_ = false;
  double begun_;
};

}  // namespace halfstep::app
