#include "layers/near_name.h"

#include <algorithm>
#include <numeric>

namespace halfstep {

int edit_distance(const std::string& a, const std::string& b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = int(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row.back();
}

std::string nearest_name(const std::string& name, const std::vector<std::string>& known) {
  int best = std::max(1, int(name.size()) / 3) + 1;
  std::string out;
  for (const std::string& k : known) {
    const int d = edit_distance(name, k);
    if (d < best) {
      best = d;
      out = k;
    }
  }
  return out;
}

}  // namespace halfstep
