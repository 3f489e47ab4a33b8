// SPDX-License-Identifier: Apache-2.0
// Charts as SVG: they are drawn without a script, print, and follow the page's colors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/report/record.h"

namespace halfstep::app {

// Of the values: 0.93 is 93 % as a share. power: those of two, with an axis in them.
enum class Unit : uint8_t { number, share, bytes, power };

struct Curve {
  std::string name;
  Points points;
  size_t color = 0;    // 0 to 7, in turn
  bool dots = false;   // few values, such as those of evaluations
  bool faint = false;  // behind another, and without a name
  bool dashed = false;  // a bound, and no values of its own
};

struct ChartOptions {
  bool log = false;  // as it is for powers
  Unit unit = Unit::number;
  std::vector<Point> marks{};  // short lines at the bottom: x, and as y the color of the run, or -1 for the color of faults
  std::string marks_are{};     // what they mean
};

// <figure> with the title, names, axes and curves, and the values as JSON for the script. "" where no curve has a finite value.
// id: unique on the page.
std::string chart(const std::string& title, std::vector<Curve> curves, const std::string& id, const ChartOptions& options = {});

// Values of one kind beside those of another, such as the times of steps in each precision.
struct Strip {
  std::string name, note;  // note: in words, after the name
  size_t color = 0;
  Points values;                         // x: their order, from the top down
  double low = 0, middle = 0, high = 0;  // shaded from low to high, with a line at the middle
};
// <figure> with a row for each strip over one axis from 0 on, in `unit`; what is far beyond the others lies at its end.
std::string strip_chart(const std::string& title, const std::string& unit, const std::vector<Strip>& strips);

// "0.0123", "1.2k", "93.1 %", "12 MB".
std::string value_text(double v, Unit unit);
// Round numbers from `low` to `high`, about so many.
std::vector<double> ticks(double low, double high, int about);

// For HTML: < > & " become entities.
std::string escaped(const std::string& text);
std::string color_of(size_t color);  // "var(--c0)"

}  // namespace halfstep::app
