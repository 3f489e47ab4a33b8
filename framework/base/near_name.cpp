// SPDX-License-Identifier: Apache-2.0
#include "framework/base/near_name.h"

#include <algorithm>
#include <cctype>

namespace halfstep {
namespace {
char lower(char c) { return char(std::tolower(static_cast<unsigned char>(c))); }
}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = int(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = int(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool equal = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (equal ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  std::string best;
  int best_distance = std::max(1, int(name.size()) / 3) + 1;
  for (const std::string& k : known) {
    if (name.size() >= 2 * k.size()) continue;  // needs as many edits as the known name has letters
    const int d = edit_distance(name, k);
    if (d < best_distance && d < int(k.size())) best = k, best_distance = d;
  }
  return best;
}

}  // namespace halfstep
