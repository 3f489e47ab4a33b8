// SPDX-License-Identifier: Apache-2.0
// Charts as SVG: drawn without a script, printable, in the page's colors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/report/record.h"

namespace halfstep::app {

// Units of values: 0.93 is 93 % as a share. power: powers of two, which an axis shows as such.
enum class ValueUnit : uint8_t { number, share, bytes, power };

struct Curve {
  std::string name;
  Points points;
  size_t color = 0;     // 0 to 7, cyclic
  bool dots = false;    // few values, such as evaluations'
  bool faint = false;   // behind another curve, and without a name
  bool dashed = false;  // a bound, without values of its own
};

struct ChartOptions {
  bool log = false;  // logarithmic; always for powers
  ValueUnit unit = ValueUnit::number;
  std::vector<Point> marks{};  // short lines at the bottom: x, and as y the color of the run, or -1 for the color of faults
  std::string marks_text{};    // their meaning
};

// Returns a <figure> with title, names, axes and curves, and the values as JSON for the script. "" if no curve has a finite value.
// id: unique on the page.
std::string chart(const std::string& title, std::vector<Curve> curves, const std::string& id, const ChartOptions& options = {});

// A row of values to compare with others, such as the times of steps in one precision.
struct Strip {
  std::string name, note;  // note: text after the name
  size_t color = 0;
  Points values;                         // x: their order, top down
  double low = 0, middle = 0, high = 0;  // shaded from low to high, with a line at the middle
};
// Returns a <figure> with a row for each strip over one axis from 0, in `unit`; values far beyond the others are at its end.
std::string strip_chart(const std::string& title, const std::string& unit, const std::vector<Strip>& strips);

// Formats "0.0123", "1.2k", "93.1 %", "12.3 MB", with this many more digits.
std::string value_text(double v, ValueUnit unit, int more_digits = 0);
// Returns about `count` round numbers from `low` to `high`.
std::vector<double> ticks(double low, double high, int count);

// Escapes text for HTML: < > & " become entities.
std::string escaped(const std::string& text);
std::string color_of(size_t color);  // "var(--c0)"

}  // namespace halfstep::app
