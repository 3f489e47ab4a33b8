// SPDX-License-Identifier: Apache-2.0
// The file of a sweep, or lines as a command line has them. What is valid has members, each with a value for each key, and the same
// ones when it is read again.
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "apps/sweep/sweep_file.h"
#include "tests/fuzz/fuzz.h"

using namespace halfstep;
using namespace halfstep::app;

HALFSTEP_FUZZ_HARNESS(sweep) {
  const auto file = fuzz::folder() / "s.json";
  fuzz::put(file, fuzz::text_of(data, size));
  std::vector<std::string> lists;
  std::istringstream lines{std::string(fuzz::text_of(data, size))};
  for (std::string line; std::getline(lines, line);) lists.push_back(line);
  const auto read_it = [&] { return size > 0 && data[0] == '{' ? read_sweep(file) : sweep_of("c.json", lists); };
  std::optional<SweepFile> first;
  fuzz::typed([&] { first = read_it(); });
  if (!first) return 0;
  const SweepFile again = read_it();
  if (first->members.empty() || first->members.size() > size_t(kMaxSweepMembers))
    fuzz::found("a sweep without members, or too many");
  for (size_t i = 0; i < first->members.size(); ++i) {
    const Settings &one = first->members[i], &two = again.members.at(i);
    if (one.size() != first->keys.size()) fuzz::found("a member that misses a key");
    for (size_t k = 0; k < one.size(); ++k) {
      if (one[k].key != first->keys[k]) fuzz::found("a key out of order", one[k].key);
      if (one[k].value != two.at(k).value) fuzz::found("a value that changes", one[k].value.dump());
    }
  }
  return 0;
}
