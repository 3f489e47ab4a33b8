// SPDX-License-Identifier: Apache-2.0
#include "apps/terminal/cells.h"

#include <algorithm>
#include <numeric>
#include <ostream>

#include "apps/terminal/terminal.h"

namespace halfstep::app {
namespace {

constexpr size_t kMargin = 2, kGap = 2;  // columns of blanks before a line, and between its texts
constexpr size_t kLeastWidth = 8;        // of a shortened text

struct CellColumns {
  std::vector<size_t> shown, widths;  // shown: numbers of columns; widths: of all columns, by number

  size_t line_width() const {
    size_t sum = kMargin;
    for (const size_t c : shown) sum += widths[c] + (c == shown.back() ? 0 : kGap);
    return sum;
  }
};

void print_part(std::ostream& out, const Cells& rows, const std::vector<size_t>& shown, const CellColumns& columns,
                const CellsFit& fit) {
  for (const std::vector<std::string>& row : rows) {
    std::string line(kMargin, ' ');
    for (const size_t c : shown) {
      const std::string text = shortened(c < row.size() ? row[c] : "", columns.widths[c]);
      const std::string fill(columns.widths[c] - columns_of(text), ' ');
      const bool right = std::find(fit.right.begin(), fit.right.end(), c) != fit.right.end();
      line += right ? fill + text : c == shown.back() ? text : text + fill;
      if (c != shown.back()) line.append(kGap, ' ');
    }
    out << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
  }
}

}  // namespace

void print_cells(std::ostream& out, const Cells& rows, const CellsFit& fit) {
  CellColumns columns;
  for (const std::vector<std::string>& row : rows) {
    columns.widths.resize(std::max(columns.widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) columns.widths[c] = std::max(columns.widths[c], columns_of(row[c]));
  }
  columns.shown.resize(columns.widths.size());
  std::iota(columns.shown.begin(), columns.shown.end(), size_t(0));
  if (fit.width == 0 || columns.line_width() <= fit.width) return print_part(out, rows, columns.shown, columns, fit);

  std::string left_out;
  for (const size_t c : fit.left_out) {
    if (columns.line_width() <= fit.width) break;
    std::erase(columns.shown, c);
    left_out += (left_out.empty() ? "" : ", ") + rows[0][c];
  }
  const std::vector<size_t> full = columns.widths;
  for (const size_t c : fit.shortened) {
    const size_t over = columns.line_width() > fit.width ? columns.line_width() - fit.width : 0, own = columns.widths[c];
    columns.widths[c] = own - std::min(over, own - std::min(own, kLeastWidth));
  }
  if (columns.line_width() > fit.width) columns.widths = full;  // parts of the table then have whole texts
  for (size_t& w : columns.widths) w = std::min(w, fit.width - std::min(fit.width, 2 * kMargin));
  for (size_t next = 1; next < columns.shown.size() || next == 1;) {  // a round for each part of the table
    CellColumns part{{columns.shown[0]}, columns.widths};
    for (; next < columns.shown.size(); ++next) {
      part.shown.push_back(columns.shown[next]);
      if (part.line_width() <= fit.width || part.shown.size() == 2) continue;
      part.shown.pop_back();
      break;
    }
    print_part(out, rows, part.shown, columns, fit);
    if (next >= columns.shown.size()) break;
    out << '\n';
  }
  if (!left_out.empty()) out << "  (left out, as the terminal is narrow: " << left_out << ")\n";
}

}  // namespace halfstep::app
