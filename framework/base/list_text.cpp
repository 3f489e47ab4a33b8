// SPDX-License-Identifier: Apache-2.0
#include "framework/base/list_text.h"

#include <algorithm>

namespace halfstep {

std::string list_text(const std::vector<std::string>& all, size_t most, std::string_view between) {
  std::string out;
  for (size_t i = 0; i < std::min(all.size(), most); ++i) out.append(i > 0 ? between : "").append(all[i]);
  if (all.size() > most) out += " and " + std::to_string(all.size() - most) + " more";
  return out;
}

std::string one_of(const std::vector<std::string>& words) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i) out += i + 1 == words.size() ? " or " : ", ";
    out += '"' + words[i] + '"';
  }
  return out;
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = lower_case(c);
  return out;
}

int edit_distance(std::string_view a, std::string_view b) {
  // Rows i - 2, i - 1 and i of the table whose element [i][j] is the distance of the first i letters of a and the first j of b.
  std::vector<int> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = int(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = int(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool equal = lower_case(a[i - 1]) == lower_case(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (equal ? 0 : 1)});
      const bool swapped =
          i > 1 && j > 1 && lower_case(a[i - 1]) == lower_case(b[j - 2]) && lower_case(a[i - 2]) == lower_case(b[j - 1]);
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
  for (const std::string& candidate : known) {
    if (name.size() >= 2 * candidate.size()) continue;  // needs as many edits as the candidate has letters
    const int distance = edit_distance(name, candidate);
    if (distance < best_distance && distance < int(candidate.size())) best = candidate, best_distance = distance;
  }
  return best;
}

}  // namespace halfstep
