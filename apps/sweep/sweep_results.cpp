// SPDX-License-Identifier: Apache-2.0
#include "apps/sweep/sweep_results.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <ostream>

#include "apps/report/comparable.h"
#include "apps/terminal/cells.h"
#include "apps/terminal/quantity_text.h"

namespace halfstep::app {
namespace {

// Returns whether a key repeats a training, with other random numbers or on another part of the data.
bool is_repetition(const std::string& key) {
  const std::string last = key.substr(key.rfind('.') + 1);
  return last == "seed" || last == "fold";
}

bool is_done(const SweepResult& r) { return r.state.is_finished() && !r.state.has_failed(); }

// Finished members that differ in seed or fold alone.
struct Spread {
  Settings others;  // values of the other keys
  size_t members = 0;          // also those that have not finished
  std::vector<double> values;  // of the finished members
  double mean() const { return std::accumulate(values.begin(), values.end(), 0.0) / double(values.size()); }
  double deviation() const {  // of a sample: divides by n - 1
    double squares = 0;
    for (const double v : values) squares += (v - mean()) * (v - mean());
    return std::sqrt(squares / double(values.size() - 1));
  }
};

std::vector<Spread> spreads_of(const SweepFile& sweep, const SweepMembers& members, const std::vector<SweepResult>& results) {
  std::vector<Spread> out;
  if (std::none_of(sweep.keys.begin(), sweep.keys.end(), is_repetition)) return out;
  std::map<std::string, size_t> places;
  for (const SweepMember& m : members.all) {
    Settings others;
    Json key = Json::array();
    for (const Setting& s : m.values)
      if (!is_repetition(s.key)) others.push_back(s), key.push_back(s.value);
    const auto [at, is_new] = places.emplace(key.dump(), out.size());
    if (is_new) out.push_back({others, 0, {}});
    Spread& spread = out[at->second];
    ++spread.members;
    const auto own = std::find_if(results.begin(), results.end(), [&](const SweepResult& r) { return r.member == &m; });
    if (own != results.end() && is_done(*own) && own->state.value) spread.values.push_back(*own->state.value);
  }
  return out;
}

}  // namespace

std::vector<SweepResult> sweep_results(const SweepMembers& members) {
  std::vector<SweepResult> out;
  for (const SweepMember& m : members.all) out.push_back({&m, state_of(m)});
  const bool larger_is_better = members.mode == "max";
  std::stable_sort(out.begin(), out.end(), [&](const SweepResult& a, const SweepResult& b) {
    if (is_done(a) != is_done(b)) return is_done(a);
    const std::optional<double>&x = a.state.value, &y = b.state.value;
    if (!x || !y) return bool(x) > bool(y);
    return larger_is_better ? *x > *y : *x < *y;
  });
  return out;
}

std::vector<std::string> changed_files(const std::vector<SweepResult>& results) {
  std::vector<RecordedRun> runs;
  for (const SweepResult& r : results) {
    RecordedRun& run = runs.emplace_back();
    run.name = r.member->name, run.made_by = r.state.made_by;
  }
  std::sort(runs.begin(), runs.end(), [](const RecordedRun& a, const RecordedRun& b) { return a.name < b.name; });
  std::vector<std::string> out = changed_files(runs);
  for (std::string& line : out) line += "; a member whose folder is removed is trained again";
  return out;
}

void print_results(std::ostream& out, const SweepFile& sweep, const SweepMembers& members, const std::vector<SweepResult>& results,
                   size_t width) {
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
    const bool has_begun = !s.ending.empty();
    row.push_back(has_begun ? std::to_string(s.steps) : "-");
    row.push_back(has_begun ? duration_text(s.seconds) : "-");
    row.push_back(s.text());
  }
  print_cells(out, cells, {.width = width, .shortened = {cells[0].size() - 1}});
}

void print_spreads(std::ostream& out, const SweepFile& sweep, const SweepMembers& members,
                   const std::vector<SweepResult>& results) {
  std::string over;
  for (const std::string& key : sweep.keys)
    if (is_repetition(key)) over += (over.empty() ? "" : " and ") + key.substr(key.rfind('.') + 1);
  for (const Spread& s : spreads_of(sweep, members, results)) {
    if (s.values.empty()) continue;
    std::vector<std::string> keys;
    for (const Setting& setting : s.others) keys.push_back(setting.key);
    const std::vector<std::string> names = short_names(keys);
    for (size_t i = 0; i < names.size(); ++i) out << (i > 0 ? ", " : "") << names[i] << ' ' << value_text(s.others[i].value);
    out << (names.empty() ? "" : ": ") << members.monitor << " over " << over << ": mean " << number_text(s.mean(), 5);
    if (s.values.size() > 1) out << ", standard deviation " << number_text(s.deviation(), 3);
    out << ", of " << s.values.size() << (s.values.size() == 1 ? " run" : " runs");
    if (s.values.size() < s.members) out << " (" << s.members - s.values.size() << " not finished)";
    out << '\n';
  }
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
  Json spreads = Json::array();
  for (const Spread& s : spreads_of(sweep, members, results)) {
    Json values = Json::object();
    for (const Setting& setting : s.others) values[setting.key] = setting.value;
    spreads.push_back({{"values", values},
                       {"runs", s.values.size()},
                       {"mean", s.values.empty() ? Json() : Json(s.mean())},
                       {"std", s.values.size() < 2 ? Json() : Json(s.deviation())}});
  }
  const bool has_best = !results.empty() && is_done(results[0]) && results[0].state.value;
  return {{"sweep", sweep.name},  {"file", sweep.path.string()}, {"monitor", members.monitor},
          {"mode", members.mode}, {"keys", sweep.keys},          {"best", has_best ? Json(results[0].member->name) : Json()},
          {"members", list},      {"over_seeds", spreads},       {"others", members.others}};
}

}  // namespace halfstep::app
