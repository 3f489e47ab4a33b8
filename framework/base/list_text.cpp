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

}  // namespace halfstep
