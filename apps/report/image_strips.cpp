// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "apps/report/chart.h"
#include "apps/terminal/quantity_text.h"
#include "framework/base/text_stream.h"

namespace halfstep::app {
namespace {

// Of a chart of strips, in its own pixels: its width, the edges of the axis, the heights of a row and of its text.
constexpr double kStripWidth = 560, kStripLeft = 12, kStripRight = kStripWidth - 20, kStripRow = 62, kStripText = 20;

// Returns the end of the axis: the largest value, unless a few are far beyond the usual ones: 1.1 times the strips' high values, or
// 1.5 times their middles.
double end_of_axis(const std::vector<Strip>& strips) {
  double usual = 0, largest = 0;
  for (const Strip& s : strips) {
    usual = std::max({usual, 1.1 * s.high, 1.5 * s.middle});
    for (const Point& p : s.values) largest = std::max(largest, p.y);
  }
  return largest <= 1.3 * usual ? std::max(largest, usual / 1.5) : usual;
}

// Draws strips, one below another.
struct StripRow {
  std::ostream& svg;
  double top, end;  // end: value at the end of the axis

  double x(double v) const { return kStripLeft + std::min(v / end, 1.0) * (kStripRight - kStripLeft); }
  std::string x_text(double v) const { return number_text(x(v), 5); }

  void draw(const Strip& s) {
    const double begin = top + kStripText, bottom = top + kStripRow - 8;
    const std::string color = color_of(s.color);
    svg << "<text class=\"strong\" x=\"" << kStripLeft << "\" y=\"" << top + 14 << "\">" << escaped(s.name)
        << " <tspan class=\"weak\">" << escaped(s.note) << "</tspan></text>";
    svg << "<rect x=\"" << x_text(s.low) << "\" y=\"" << begin << "\" width=\""
        << number_text(std::max(1.0, x(s.high) - x(s.low)), 5) << "\" height=\"" << bottom - begin << "\" fill=\"" << color
        << "\" opacity=\".2\"/>";
    const Points shown = thinned(s.values, 0, double(s.values.size() + 1), 250);
    for (const Point& p : shown) {
      const double y = begin + 4 + (bottom - begin - 8) * (p.x - 0.5) / double(s.values.size());
      if (!std::isfinite(p.y)) continue;
      if (p.y <= end)
        svg << "<circle r=\"2.2\" cx=\"" << x_text(p.y) << "\" cy=\"" << number_text(y, 5) << "\" fill=\"" << color
            << "\" opacity=\".75\"/>";
      else  // an arrow for a value beyond the axis
        svg << "<path d=\"M" << kStripRight + 4 << ' ' << number_text(y - 3.5, 5) << "l7 3.5l-7 3.5z\" fill=\"" << color << "\"/>";
    }
    svg << "<line x1=\"" << x_text(s.middle) << "\" x2=\"" << x_text(s.middle) << "\" y1=\"" << begin << "\" y2=\"" << bottom
        << "\" stroke=\"" << color << "\" stroke-width=\"2.5\"/>";
  }
};

}  // namespace

std::string strip_chart(const std::string& title, const std::string& unit, const std::vector<Strip>& strips) {
  const double end = end_of_axis(strips), bottom = kStripRow * double(strips.size());
  if (!(end > 0) || !std::isfinite(end)) return "";
  TextWriter out;
  out << "<figure class=\"card\"><figcaption><b>" << escaped(title) << "</b></figcaption><svg viewBox=\"0 0 " << kStripWidth << ' '
      << bottom + 22 << "\" role=\"img\" aria-label=\"" << escaped(title) << "\">";
  StripRow row{out, 0, end};
  for (const double v : ticks(0, end, 5))
    out << "<line class=\"axis\" x1=\"" << row.x_text(v) << "\" x2=\"" << row.x_text(v) << "\" y1=\"" << kStripText << "\" y2=\""
        << bottom << "\"/><text x=\"" << row.x_text(v) << "\" y=\"" << bottom + 16 << "\" text-anchor=\"middle\">"
        << value_text(v, ValueUnit::number) << (v == 0 ? "" : unit) << "</text>";
  for (const Strip& s : strips) {
    row.draw(s);
    row.top += kStripRow;
  }
  out << "</svg></figure>\n";
  return out.str();
}

}  // namespace halfstep::app
