// SPDX-License-Identifier: Apache-2.0
#include "apps/sweep/sweep_results.h"

#include <algorithm>
#include <optional>
#include <ostream>

#include "apps/report/compare.h"
#include "apps/run/progress.h"

namespace halfstep::app {
namespace {

bool is_done(const SweepResult& r) { return r.state.finished() && !r.state.failed(); }

}  // namespace

std::vector<SweepResult> sweep_results(const SweepMembers& members) {
  std::vector<SweepResult> out;
  for (const SweepMember& m : members.all) out.push_back({&m, state_of(m)});
  const bool larger = members.mode == "max";
  std::stable_sort(out.begin(), out.end(), [&](const SweepResult& a, const SweepResult& b) {
    if (is_done(a) != is_done(b)) return is_done(a);
    const std::optional<double>&x = a.state.value, &y = b.state.value;
    if (!x || !y) return bool(x) > bool(y);
    return larger ? *x > *y : *x < *y;
  });
  return out;
}

void print_results(std::ostream& out, const SweepFile& sweep, const SweepMembers& members,
                   const std::vector<SweepResult>& results) {
  Cells cells(1);
  cells[0].push_back("member");
  for (const std::string& name : short_names(sweep.keys)) cells[0].push_back(name);
  cells[0].insert(cells[0].end(), {members.monitor, "at step", "steps", "time", "ending"});
  for (const SweepResult& r : results) {
    const MemberState& s = r.state;
    std::vector<std::string>& row = cells.emplace_back();
    row.push_back(r.member->name.substr(0, r.member->name.find('-')));
    for (const Setting& setting : r.member->values) row.push_back(value_text(setting.value));
    row.push_back(s.value ? number_text(*s.value, 5) : "-");
    row.push_back(s.value ? std::to_string(s.value_step) : "-");
    const bool begun = !s.ending.empty();
    row.push_back(begun ? std::to_string(s.steps) : "-");
    row.push_back(begun ? duration_text(s.seconds) : "-");
    row.push_back(s.text());
  }
  print_cells(out, cells);
}

Json results_json(const SweepFile& sweep, const SweepMembers& members, const std::vector<SweepResult>& results) {
  Json list = Json::array();
  for (const SweepResult& r : results) {
    const MemberState& s = r.state;
    Json values = Json::object();
    for (const Setting& setting : r.member->values) values[setting.key] = setting.value;
    list.push_back({{"member", r.member->name},
                    {"folder", r.member->folder.string()},
                    {"values", values},
                    {"value", s.value ? Json(*s.value) : Json()},
                    {"value_step", s.value ? Json(s.value_step) : Json()},
                    {"steps", s.steps},
                    {"seconds", s.seconds},
                    {"ending", s.text()},
                    {"exit_code", s.exit_code ? Json(*s.exit_code) : Json()},
                    {"error", s.error.empty() ? Json() : Json(s.error)}});
  }
  const bool found = !results.empty() && is_done(results[0]) && results[0].state.value;
  return {{"sweep", sweep.name},  {"file", sweep.path.string()}, {"monitor", members.monitor},
          {"mode", members.mode}, {"keys", sweep.keys},          {"best", found ? Json(results[0].member->name) : Json()},
          {"members", list},      {"others", members.others}};
}

}  // namespace halfstep::app
