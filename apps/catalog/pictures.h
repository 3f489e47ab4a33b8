// SPDX-License-Identifier: Apache-2.0
// Opens the pictures of a config's data before training: a run must not end at an unreadable one after its first epoch.
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
  int64_t pictures = 0;  // number of distinct ones in data.train, val and test
  int64_t checked = 0, bad = 0, flawed = 0;
  std::vector<std::string> faults;  // of the first ones
  std::string flaw;                 // name of the first
  // Pictures whose shapes are in their transparency alone, and not seen in front of their background; how many of them a white
  // one would show; and the first.
  int64_t hidden = 0, shown_on_white = 0;
  std::string hidden_picture;
  int64_t dark = 0;          // pictures of 16 bits that use less than 1/16 of their range, and are not normalised by the data
  std::string dark_picture;  // the first, with its largest value

  void add(const PictureReport& more);        // adds counts of other pictures
  std::string error() const;                  // all faults in one message; "" if there are none
  std::vector<std::string> warnings() const;  // about pictures that are read, but have a flaw or show nothing
  std::string opened(double seconds) const;   // "3 of 1200 pictures were opened within 10 s", or that all were
};
constexpr double kPictureSeconds = 10;  // limit for opening pictures if no run needs all of them
Json to_json(const PictureReport& report);
PictureReport read_report(const Json& json);

struct ExamineOptions {
  int rank = 0, ranks = 1;  // share of the pictures that this rank opens
  double seconds = std::numeric_limits<double>::infinity();
  bool draws = true;                   // draw a line of progress on a terminal
  std::function<bool()> stopped = {};  // checked between pictures; true ends the check
};
// Opens the pictures of data.train, val and test by check_pictures (framework/data/sets/picture_check.h). Throws as build_dataset,
// and MemoryError.
PictureReport examine_pictures(const Json& config, const ExamineOptions& options = {});

// Draws "opening pictures: 300 of 1200", or another activity, on stderr if that is a terminal, and erases it in the end.
class PicturesLine {
 public:
  [[nodiscard]] explicit PicturesLine(const char* what = "opening pictures", bool draws = true);
  ~PicturesLine();
  PicturesLine(const PicturesLine&) = delete;
  void show(int64_t done, int64_t total);

 private:
  const char* what_;
  bool draws_, drawn_ = false;
  double begun_;
};

}  // namespace halfstep::app
