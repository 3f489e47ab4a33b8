// SPDX-License-Identifier: Apache-2.0
#include "apps/terminal/cells.h"

#include <algorithm>
#include <numeric>
#include <ostream>

#include "apps/terminal/terminal.h"

namespace halfstep::app {
namespace {

constexpr size_t kMargin = 2, kGap = 2, kFewest = 8;  // kFewest: columns of a shortened text

struct CellColumns {
  std::vector<size_t> shown, widths;  // shown: column numbers; widths: of all columns

  size_t total() const {
    size_t sum = kMargin;
    for (const size_t c : shown) sum += widths[c] + (c == shown.back() ? 0 : kGap);
    return sum;
  }
};

void print_part(std::ostream& out, const Cells& rows, const std::vector<size_t>& shown, const CellColumns& all,
                const CellsFit& fit) {
  for (const std::vector<std::string>& row : rows) {
    std::string line(kMargin, ' ');
    for (const size_t c : shown) {
      const std::string text = shortened(c < row.size() ? row[c] : "", all.widths[c]);
      const std::string fill(all.widths[c] - columns_of(text), ' ');
      const bool right = std::find(fit.right.begin(), fit.right.end(), c) != fit.right.end();
      line += right ? fill + text : c == shown.back() ? text : text + fill;
      if (c != shown.back()) line.append(kGap, ' ');
    }
    out << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
  }
}

}  // namespace

void print_cells(std::ostream& out, const Cells& rows, const CellsFit& fit) {
  CellColumns all;
  for (const std::vector<std::string>& row : rows) {
    all.widths.resize(std::max(all.widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) all.widths[c] = std::max(all.widths[c], columns_of(row[c]));
  }
  all.shown.resize(all.widths.size());
  std::iota(all.shown.begin(), all.shown.end(), size_t(0));
  if (fit.width == 0 || all.total() <= fit.width) return print_part(out, rows, all.shown, all, fit);

  std::string missing;
  for (const size_t c : fit.left_out) {
    if (all.total() <= fit.width) break;
    std::erase(all.shown, c);
    missing += (missing.empty() ? "" : ", ") + rows[0][c];
  }
  const std::vector<size_t> full = all.widths;
  for (const size_t c : fit.shortened) {
    const size_t over = all.total() > fit.width ? all.total() - fit.width : 0, own = all.widths[c];
    all.widths[c] = own - std::min(over, own - std::min(own, kFewest));
  }
  if (all.total() > fit.width) all.widths = full;  // then prints whole texts in parts
  for (size_t& w : all.widths) w = std::min(w, fit.width - std::min(fit.width, 2 * kMargin));
  for (size_t next = 1; next < all.shown.size() || next == 1;) {  // one for each part
    CellColumns part{{all.shown[0]}, all.widths};
    for (; next < all.shown.size(); ++next) {
      part.shown.push_back(all.shown[next]);
      if (part.total() <= fit.width || part.shown.size() == 2) continue;
      part.shown.pop_back();
      break;
    }
    print_part(out, rows, part.shown, all, fit);
    if (next >= all.shown.size()) break;
    out << '\n';
  }
  if (!missing.empty()) out << "  (left out, as the terminal is narrow: " << missing << ")\n";
}

}  // namespace halfstep::app
