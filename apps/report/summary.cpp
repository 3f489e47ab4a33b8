// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <ostream>

#include "apps/report/chart.h"
#include "apps/report/comparable.h"
#include "apps/report/report.h"
#include "apps/terminal/quantity_text.h"

namespace halfstep::app {
namespace {

// A table that a narrow screen shows as lists, with the column's name before each value.
class StackedTable {
 public:
  [[nodiscard]] StackedTable(std::ostream& out, std::vector<std::string> names, size_t numbers_from)
      : out_(out), names_(std::move(names)), numbers_from_(numbers_from) {
    out_ << "<div class=\"card\"><table class=\"stacked\"><tr>";
    for (size_t c = 0; c < names_.size(); ++c) out_ << (c < numbers_from_ ? "<th>" : "<th class=\"n\">") << names_[c] << "</th>";
    out_ << "</tr>\n";
  }
  // Adds a row of cells in HTML, in the order of the names.
  // text_class: the class of its texts, with a blank before it.
  void add_row(const std::vector<std::string>& cells, const char* text_class = "") {
    out_ << "<tr>";
    for (size_t c = 0; c < cells.size(); ++c)
      out_ << "<td"
           << (c >= numbers_from_ ? " class=\"n\""
               : c > 0            ? text_class
                                  : "")
           << (cells[c].empty() ? " data-empty" : "") << "><i>" << (c > 0 ? names_[c] : "") << "</i><span>" << cells[c]
           << "</span></td>";
    out_ << "</tr>\n";
  }
  ~StackedTable() { out_ << "</table></div>\n"; }
  StackedTable(const StackedTable&) = delete;

 private:
  std::ostream& out_;
  std::vector<std::string> names_;
  size_t numbers_from_;
};

// Formats the last value of a key; "" if there is none.
std::string last_of(const RecordedRun& r, const char* key, const std::function<std::string(double)>& show) {
  const auto it = r.last.find(key);
  return it == r.last.end() ? "" : show(it->second);
}

double steps_of(const RecordedRun& r) {
  double steps = 0;
  for (const auto& [key, points] : r.values)
    if (!points.empty()) steps = std::max(steps, points.back().x);
  return steps;
}

// Returns the value at this step, or at the last before it.
std::optional<double> value_at(const RecordedRun& r, const std::string& key, double step) {
  const auto found = r.values.find(key);
  std::optional<double> out;
  if (found == r.values.end()) return out;
  for (const Point& p : found->second)
    if (p.x <= step) out = p.y;
  return out;
}

// Returns the keys of validation metrics, in the order of the page: those in the units of the file before the loss.
std::vector<std::string> metric_keys(const std::vector<RecordedRun>& runs, const std::vector<Mistakes>& mistakes) {
  std::vector<std::string> out;
  const auto add = [&](const std::string& key) {
    if (std::find(out.begin(), out.end(), key) == out.end()) out.push_back(key);
  };
  for (const char* first : {"val/accuracy", "val/rmse", "val/r2"})
    for (const RecordedRun& r : runs)
      if (r.values.contains(first)) add(first);
  for (const Mistakes& m : mistakes)
    if (m.rmse) add("val/rmse"), add("val/r2");
  for (const RecordedRun& r : runs)
    for (const auto& [key, points] : r.values)  // a table's number repeats another metric
      if (key.starts_with("val/") && key != "val/loss" && !r.tables.contains(key + "/table")) add(key);
  constexpr size_t kMostMetrics = 6;
  if (out.size() > kMostMetrics) out.resize(kMostMetrics);
  for (const RecordedRun& r : runs)
    if (r.values.contains("val/loss")) add("val/loss");
  return out;
}

std::string metric_text(const RecordedRun& r, const Mistakes* m, const std::string& key, double step) {
  std::optional<double> value = value_at(r, key, step);
  if (!value && m && m->split == "val") value = key == "val/rmse" ? m->rmse : key == "val/r2" ? m->r2 : std::nullopt;
  return value ? value_text(*value, is_share(key) ? ValueUnit::share : ValueUnit::number) : "";
}

}  // namespace

std::string key_of(const std::vector<RecordedRun>& runs, size_t run) {
  return "<i class=\"key\" style=\"background:" + color_of(run) + "\"></i>" + escaped(runs[run].name);
}

bool is_share(const std::string& key) {
  return key.ends_with("/accuracy") || key.ends_with("/precision") || key.ends_with("/recall") || key.ends_with("/f1") ||
         key.find("/top_") != std::string::npos || key.ends_with("/label_error_rate");
}

void write_summary(std::ostream& out, const std::vector<RecordedRun>& runs, const std::vector<Mistakes>& mistakes) {
  const std::vector<std::string> keys = metric_keys(runs, mistakes);
  std::vector<std::string> names = {"run", "precision", "best step"};
  for (const std::string& key : keys) names.push_back(escaped(key));
  names.insert(names.end(), {"train loss", "steps", "skipped", "time", "samples/s", "peak memory"});
  out << "<h2>Result</h2>\n";
  {
    StackedTable table(out, names, 2);
    for (size_t i = 0; i < runs.size(); ++i) {
      const RecordedRun& r = runs[i];
      const auto best = r.best();
      const double step = best ? best->point.x : INFINITY;
      std::vector<std::string> cells = {key_of(runs, i), escaped(r.precision()), best ? number_text(step, 9) : ""};
      for (const std::string& key : keys) {
        std::string text = metric_text(r, mistakes.empty() ? nullptr : &mistakes[i], key, step);
        if (best && best->key == key)
          text = "<b>" + value_text(best->point.y, is_share(key) ? ValueUnit::share : ValueUnit::number) + "</b>";
        cells.push_back(text);
      }
      cells.push_back(last_of(r, r.last.contains("train/loss") ? "train/loss" : "train/epoch_loss",
                              [](double v) { return number_text(v, 4); }));
      cells.push_back(number_text(steps_of(r), 9));
      cells.push_back(last_of(r, "skipped", [](double v) { return number_text(v, 9); }));
      cells.push_back(last_of(r, "seconds", duration_text));
      cells.push_back(last_of(r, "samples_per_second", count_text));
      cells.push_back(last_of(r, "peak_bytes", [](double v) { return bytes_text(v); }));
      table.add_row(cells);
    }
  }
  for (const RecordedRun& r : runs)
    if (!r.ending.empty() && r.ending != "finished")
      out << "<p class=\"bad\">" << escaped(r.name) << ": "
          << (r.ending == "running" ? "still running, or killed" : escaped("ended as " + r.ending)) << "</p>\n";
  for (const RecordedRun& r : runs)
    if (r.lines_left_out > 0)
      out << "<p class=\"bad\">" << escaped(r.name) << ": " << r.lines_left_out
          << " lines of metrics.jsonl are no metrics and were left out</p>\n";
}

void write_differences(std::ostream& out, const std::vector<RecordedRun>& runs) {
  const FoldedDifferences all = folded(differences(runs), runs);
  out << "<h2>What differs</h2>\n";
  for (const std::string& w : comparison_warnings(runs)) out << "<p>" << escaped("Warning: " + w) << "</p>\n";
  if (all.shown.empty() && all.defaults.empty()) {
    out << "<p class=\"soft\">The configs are the same.</p>\n";
    return;
  }
  constexpr size_t kMostColumns = 200;  // of a value
  std::vector<std::string> names = {"key"};
  for (size_t i = 0; i < runs.size(); ++i) names.push_back(key_of(runs, i));
  const auto write_table = [&](const std::vector<Difference>& rows) {
    StackedTable to(out, names, names.size());
    for (const Difference& d : rows) {
      std::vector<std::string> cells = {escaped(d.key)};
      for (const Json& v : d.values) cells.push_back(escaped(value_words(v, kMostColumns)));
      to.add_row(cells, " class=\"long\"");
    }
  };
  if (!all.shown.empty()) write_table(all.shown);
  if (all.defaults.empty()) return;
  out << "<details><summary>" << all.defaults.size() << (all.defaults.size() == 1 ? " key has" : " keys have")
      << " the default value where a run has it at all</summary>\n";
  write_table(all.defaults);
  out << "</details>\n";
}

}  // namespace halfstep::app
