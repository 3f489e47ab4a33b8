// SPDX-License-Identifier: Apache-2.0
#include "apps/report/compare.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <ostream>
#include <set>

#include "apps/report/comparable.h"
#include "apps/terminal/cells.h"
#include "apps/terminal/quantity_text.h"
#include "apps/terminal/terminal.h"

namespace halfstep::app {
namespace {

constexpr size_t kLeastValueColumns = 12, kMostValueColumns = 40;                      // of a config's value
constexpr int kLeastCurveColumns = 8, kMostCurveColumns = 48, kCurveTextColumns = 26;  // of a small curve, and of its numbers

// Returns the value of the last point up to `step`.
double value_at(const Points& points, double step) {
  double out = NAN;
  for (const Point& p : points)
    if (p.x <= step) out = p.y;
  return out;
}

// Returns the value of a key at the chosen step, or, if the run has no line with it, that of run.json. NaN if there is none.
double compared(const RecordedRun& run, const std::string& key, double step) {
  if (const auto it = run.values.find(key); it != run.values.end()) return value_at(it->second, step);
  const auto last = run.last.find(key);
  return last == run.last.end() ? NAN : last->second;
}

// Returns the best step; infinity: the last one, as no step is the best.
double chosen_step(const RecordedRun& run) {
  const auto best = run.best();
  return best ? best->point.x : INFINITY;
}

// Returns the keys of the runs' numbers that people compare.
std::vector<std::string> compared_keys(const std::vector<RecordedRun>& runs) {
  std::set<std::string> keys;
  for (const RecordedRun& r : runs)
    for (const auto& [key, points] : r.values)  // a table's number repeats another metric
      if ((key.starts_with("val/") && !r.tables.contains(key + "/table")) || key == "train/loss" || key == "samples_per_second" ||
          key == "peak_bytes" || key == "skipped")
        keys.insert(key);
  for (const RecordedRun& r : runs)
    for (const char* key : {"samples_per_second", "peak_bytes"})
      if (r.last.contains(key)) keys.insert(key);
  return {keys.begin(), keys.end()};
}

std::string compared_text(const std::string& key, double v) {
  if (!std::isfinite(v)) return "-";
  return key == "peak_bytes" ? bytes_text(v) : key == "samples_per_second" ? count_text(v) : number_text(v, 5);
}

}  // namespace

std::string small_curve(const Points& points, int width) {
  static constexpr const char* kHeights[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  Points finite;
  std::copy_if(points.begin(), points.end(), std::back_inserter(finite), [](const Point& p) { return std::isfinite(p.y); });
  if (finite.empty()) return "";
  const auto [low, high] =
      std::minmax_element(finite.begin(), finite.end(), [](const Point& a, const Point& b) { return a.y < b.y; });
  const double from = low->y, size = high->y - low->y;
  const int columns = std::min(width, int(finite.size()));
  std::string out;
  for (int i = 0; i < columns; ++i) {  // each shows the mean of its part
    const size_t begin = finite.size() * size_t(i) / size_t(columns), end = finite.size() * size_t(i + 1) / size_t(columns);
    double sum = 0;
    for (size_t k = begin; k < end; ++k) sum += finite[k].y;
    const double part = size > 0 ? (sum / double(end - begin) - from) / size : 0.5;
    out += kHeights[std::clamp(int(part * std::size(kHeights)), 0, int(std::size(kHeights)) - 1)];
  }
  return out;
}

void print_comparison(std::ostream& out, const std::vector<RecordedRun>& runs, size_t width) {
  const CellsFit fit{.width = width};
  Cells cells{{""}};
  for (const RecordedRun& r : runs) cells[0].push_back(r.name);
  const FoldedDifferences all = folded(differences(runs), runs);
  if (all.shown.empty() && all.defaults.empty()) {
    out << "the configs are the same\n";
  } else {
    out << "configs differ in\n";
    size_t keys = 0;
    for (const Difference& d : all.shown) keys = std::max(keys, d.key.size());
    const size_t room = width > keys + 2 ? (width - keys - 2) / runs.size() : 0;
    const size_t most =
        width == 0 ? kMostValueColumns : std::clamp<size_t>(room > 2 ? room - 2 : 0, kLeastValueColumns, kMostValueColumns);
    for (const Difference& d : all.shown) {
      cells.push_back({d.key});
      for (const Json& v : d.values) { cells.back().push_back(v.is_null() ? "-" : value_words(v, most)); }
    }
    print_cells(out, cells, fit);
    if (!all.defaults.empty())
      out << "  and " << all.defaults.size()
          << (all.defaults.size() == 1 ? " key that has its default" : " keys that have their defaults") << " (--json has all)\n";
  }
  out << "\nvalues\n";
  cells = {{""}};
  for (const RecordedRun& r : runs) cells[0].push_back(r.name);
  cells.push_back({"precision"});
  for (const RecordedRun& r : runs) cells.back().push_back(r.precision());
  cells.push_back({"at step"});
  for (const RecordedRun& r : runs)
    cells.back().push_back(std::isfinite(chosen_step(r)) ? number_text(chosen_step(r), 9) + " (best)" : "the last");
  for (const std::string& key : compared_keys(runs)) {
    cells.push_back({key});
    for (const RecordedRun& r : runs) cells.back().push_back(compared_text(key, compared(r, key, chosen_step(r))));
  }
  print_cells(out, cells, fit);
  size_t names = 0;
  for (const RecordedRun& r : runs) names = std::max(names, columns_of(r.name));
  const int curve = width == 0 ? kMostCurveColumns
                               : std::clamp(int(width) - int(names) - kCurveTextColumns, kLeastCurveColumns, kMostCurveColumns);
  for (const char* key : {"train/loss", "val/loss"}) {
    cells.clear();
    for (const RecordedRun& r : runs)
      if (const auto it = r.values.find(key); it != r.values.end() && it->second.size() > 1)
        cells.push_back({r.name, small_curve(it->second, curve),
                         number_text(it->second.front().y, 4) + " to " + number_text(it->second.back().y, 4)});
    if (cells.empty()) continue;
    out << '\n' << key << '\n';
    print_cells(out, cells, fit);
  }
}

Json comparison_json(const std::vector<RecordedRun>& runs) {
  Json out{{"runs", Json::array()}, {"differences", Json::object()}, {"warnings", comparison_warnings(runs)}};
  for (const RecordedRun& r : runs) {
    Json entry{{"name", r.name}, {"precision", r.precision()}, {"values", Json::object()}};
    if (std::isfinite(chosen_step(r))) entry["best_step"] = chosen_step(r);
    for (const std::string& key : compared_keys(runs)) {
      const double v = compared(r, key, chosen_step(r));
      entry["values"][key] = std::isfinite(v) ? Json(v) : Json();
    }
    out["runs"].push_back(std::move(entry));
  }
  for (const Difference& d : differences(runs)) out["differences"][d.key] = d.values;
  return out;
}

}  // namespace halfstep::app
