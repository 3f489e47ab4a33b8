// SPDX-License-Identifier: Apache-2.0
#include "apps/start/init_series.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "framework/base/check.h"
#include "framework/base/list_text.h"
#include "framework/data/tables/series_times.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;
using Columns = std::vector<InitColumn>;

constexpr size_t kMostSkipped = 20;  // most duplicate times that a config names

// Returns the time of a row as a number; NaN: none.
double time_at(const CsvSheet& sheet, const TableReading& r, size_t row, size_t column) {
  double value = NAN;
  CsvDate date;
  if (parse_date(sheet.cell(row, column), r.order, date)) return date.days;
  return parse_number(sheet.cell(row, column), r.format, value) ? value : NAN;
}

bool is_date(const InitColumn& c) { return c.kind == ColumnKind::date && !c.has_gaps() && c.odd_rows.empty(); }

// Returns the columns of a split time: year and quarter or month, day and so on.
std::vector<size_t> parts_of_time(const Columns& all) {
  std::vector<size_t> out;
  for (const char* part : {"year", "quarter", "month", "day", "hour", "minute"})
    for (const InitColumn& c : all)
      if (part_of_time(c.name) == part && !c.has_gaps() && (c.kind == ColumnKind::number || part == std::string("month")))
        out.push_back(c.index);
  const bool has_year = !out.empty() && part_of_time(all[out[0]].name) == "year";
  const std::string next = out.size() > 1 ? part_of_time(all[out[1]].name) : "";
  return has_year && (next == "quarter" || next == "month") ? out : std::vector<size_t>{};
}

// Returns the columns of the time; none if the table cannot be a series. Of two columns, the other one must have numbers.
std::vector<size_t> find_time(const Columns& all, const CsvSheet& sheet, const InitWishes& wishes) {
  if (wishes.task == "classification" || all.size() < 2) return {};
  const auto is_coded_time = [&](const InitColumn& c) {
    return c.kind == ColumnKind::number && c.grows && !c.counts_up &&
           (unix_times_of_day(sheet, c.index) > 0 || are_dates_in_digits(sheet, c.index));
  };
  if (all.size() == 2) {
    for (const size_t time : {size_t(0), size_t(1)}) {
      const InitColumn &t = all[time], &values = all[1 - time];
      const bool counts = t.kind == ColumnKind::number && (t.counts_up || (t.grows && is_named_as_time(t)) || is_coded_time(t));
      if (values.kind != ColumnKind::number || !(t.kind == ColumnKind::date || counts)) continue;
      if (wishes.target.empty() || sheet.find(wishes.target) == values.index) return {time};
    }
    return {};
  }
  if (!wishes.task.empty() || !sheet.has_header()) return {};
  for (const InitColumn& c : all)
    if (is_date(c) || is_coded_time(c)) return {c.index};
  if (std::vector<size_t> parts = parts_of_time(all); !parts.empty()) return parts;
  for (const InitColumn& c : all)
    if (c.kind == ColumnKind::number && c.grows && !c.name.empty() && is_named_as_time(c)) return {c.index};
  return {};
}

// Returns whether a column is named like a target that the others predict.
bool names_target(const Columns& all) {
  static const std::set<std::string> names = {"target",   "label",     "labels", "outcome", "species",
                                              "survived", "diagnosis", "churn",  "class"};
  return std::any_of(all.begin(), all.end(), [](const InitColumn& c) { return names.contains(lower_case(c.name)); });
}

// Rows with the time of the row before, and rows with an earlier time.
struct RowOrder {
  std::vector<size_t> twice, back;
};
RowOrder order_of(const CsvSheet& sheet, const TableReading& r, size_t time) {
  RowOrder out;
  for (size_t row = 1; row < sheet.rows(); ++row) {
    const double before = time_at(sheet, r, row - 1, time), now = time_at(sheet, r, row, time);
    if (now < before) out.back.push_back(row);
    if (now == before) out.twice.push_back(row);
  }
  return out;
}

// Results of an attempt to read the rows as a series.
struct SeriesColumns {
  std::vector<size_t> time;
  std::vector<const InitColumn*> values;
  std::vector<std::string> left_out;  // other columns, with reasons
  std::vector<int64_t> skipped;       // lines with a duplicate time
  std::optional<SeriesTimes> times;   // unset: the order is not checked
  std::string unchecked;              // reason for that
};

void choose_values(SeriesColumns& found, const CsvSheet& sheet, const Columns& all) {
  for (const InitColumn& c : all) {
    if (std::find(found.time.begin(), found.time.end(), c.index) != found.time.end()) continue;
    std::string why = all.size() == 2 ? "" : reason_to_leave_out(sheet, c);
    if (why.empty() && c.kind != ColumnKind::number) why = c.kind == ColumnKind::date ? "has dates" : "has texts";
    if (why.empty())
      found.values.push_back(&c);
    else
      found.left_out.push_back(phrase(sheet, c) + ' ' + why);
  }
}

// Reads the times. Returns false if the rows of a table with more columns do not follow each other. Throws if the rows of two
// columns go back in time, and for a series of one value alone.
bool check_order(SeriesColumns& found, const CsvSheet& sheet, const TableReading& r, const fs::path& file) {
  const bool is_constant = found.values.size() == 1 && found.values[0]->distinct < 2;
  check<DataError>(!is_constant, "init", file.string(), ": a series must have two different values, but ",
                   phrase(sheet, *found.values[0]), " has one alone");
  const bool several = r.columns.size() > 2;
  const InitColumn& time = r.columns[found.time[0]];
  if (found.time.size() == 1) {
    const RowOrder order = order_of(sheet, r, time.index);
    const bool is_reversed = order.back.size() + 1 == sheet.rows() && sheet.rows() > 2;
    if (several && !order.back.empty() && !is_reversed) return false;
    if (!order.back.empty()) {
      const size_t row = order.back[0];
      fail<DataError>("init", cell_place(sheet, row, time.index), ": a series must be in the order of time, but \"",
                      sheet.cell(row, time.index), "\" follows \"", sheet.cell(row - 1, time.index), '"',
                      is_reversed ? ", and so on: the newest row is the first" : "",
                      Help{in_pandas(file, is_reversed ? "t = t[::-1]" : joined("t = t.sort_values(t.columns[", time.index, "])")) +
                           (several ? "; or --task regression, for rows that do not follow each other" : "")});
    }
    if (!order.twice.empty() && order.twice.size() <= kMostSkipped && 20 * order.twice.size() <= sheet.rows()) {
      for (const size_t row : order.twice) found.skipped.push_back(sheet.line(row));
    } else if (!order.twice.empty()) {
      if (several) return false;
      found.unchecked =
          joined("the order of ", phrase(sheet, time), " is not checked: ", cell_place(sheet, order.twice[0], time.index),
                 " is not later than the row before it");
      return true;
    }
  }
  try {
    CsvFormat format = r.format;
    format.encoding = sheet.format().encoding, format.skip_rows = sheet.format().skip_rows;
    format.skip_rows.insert(format.skip_rows.end(), found.skipped.begin(), found.skipped.end());
    const CsvSheet kept("init", file, format, sheet.has_header());
    found.times = read_times(kept, found.time);
  } catch (const DataError& e) {
    if (several) return false;
    throw;
  } catch (const ConfigError&) { return false; }
  // A rhythm with pauses, such as nights, makes a series; times without a rhythm may be independent events.
  return !several || found.times->irregular_text.empty() || (found.times->on_grid && 3 * found.times->gaps.size() < sheet.rows());
}

// Returns a model that adds a change to the last row of the window, or to its column `target` (-1: all): it starts near the
// prediction of no change, and handles levels that the training data lacks.
std::vector<InitLine> last_value_and_change(int64_t window, int64_t target) {
  std::string level = R"("Flatten")";
  if (target >= 0)
    level = joined(R"({"type": "Graph", "inputs": [{"name": "target", "start": )", target, R"(, "end": )", target + 1,
                   R"(, "dim": 2}], "nodes": [{"inputs": "target", "layer": "Flatten"}]})");
  return {{joined(R"({"type": "Graph", "inputs": [{"name": "window"}, {"name": "last", "start": )", window - 1, R"(, "dim": 1}])"),
           "the answer is the last row of the window (start: window - 1) and a change"},
          {R"( "nodes": [{"name": "level", "inputs": ["last"], "combine": "concat", "layer": )" + level + "}",
           "[\"last\", \"last\"] for a horizon of 2, and so on"},
          {R"(  {"name": "change", "inputs": "window", "layer": ["Flatten", {"type": "Linear", "out_features": 64}, "ReLU")", ""},
          {R"(    {"type": "Linear", "out_features": "auto"}]})", "\"auto\": a number for each column and row to predict"},
          {R"(  {"inputs": ["level", "change"], "combine": "add"}]})", ""}};
}

std::string json_list(const std::vector<std::string>& all) { return "[" + list_text(all, all.size()) + "]"; }

// Adds "skip_rows": the requested ones, and those whose time the row before has.
void add_skipped(InitParts& out, const SeriesColumns& found, const InitReading& reading, const std::string& time) {
  if (found.skipped.empty()) return add_skip_rows(out, reading);
  std::vector<std::string> lines;
  for (const int64_t l : found.skipped) lines.push_back(std::to_string(l));
  std::vector<std::string> all = lines;
  for (const int64_t l : reading.format.skip_rows) all.push_back(std::to_string(l));
  const bool some = all.size() > lines.size();
  out.data.push_back({"\"skip_rows\": " + json_list(all),
                      some ? "as asked, or with the time of the row before" : "they have the time of the row before"});
  out.notes.push_back(
      joined("left out, since the row before has the same ", time, ": line", lines.size() > 1 ? "s " : " ", list_text(lines)));
}

// Adds "missing" and its words.
void add_missing(InitParts& out, const SeriesColumns& found, const CsvSheet& sheet, int64_t window) {
  size_t cells = 0;
  std::set<std::string> words;
  for (const InitColumn* c : found.values) {
    note_odd_cells(out, sheet, *c);
    cells += c->rows - c->filled();
    words.insert(c->words.begin(), c->words.end());
  }
  std::vector<std::string> list;
  for (const std::string& w : words) list.push_back(in_quotes(w));
  const std::string gaps = found.times && found.times->irregular_text.empty() ? found.times->gaps_text : "";
  // Leave enough windows without gaps.
  const bool many = !gaps.empty() && int64_t(found.times->gaps.size()) * window * 2 > int64_t(sheet.rows());
  if (cells > 0 || many)
    out.data.push_back({R"("missing": "interpolate")",
                        cells > 0 ? joined(cells, cells == 1 ? " cell is missing" : " cells are missing", "; or \"last\", \"drop\"")
                                  : "rows are lacking; or \"last\""});
  if (cells > 0)
    out.notes.push_back(joined(cells, cells == 1 ? " cell is missing, and is" : " cells are missing, and are", " interpolated"));
  if (!list.empty()) out.data.push_back({"\"missing_words\": " + json_list(list), "how they are written"});
  if (!gaps.empty())
    out.notes.push_back(gaps + (cells > 0 || many ? ": lacking rows are filled in as \"missing\" says"
                                                  : ": no window crosses it; \"missing\": \"interpolate\" or \"last\" fills in"));
}

}  // namespace

bool is_named_as_time(const InitColumn& c) {
  static const std::set<std::string> names = {"year", "time",      "date", "month", "day",    "week",
                                              "hour", "timestamp", "t",    "step",  "period", ""};
  return names.contains(lower_case(c.name));
}

std::optional<InitParts> init_series(const CsvSheet& sheet, const TableReading& r, const fs::path& file, const InitWishes& wishes) {
  SeriesColumns found{.time = find_time(r.columns, sheet, wishes)};
  const bool several = r.columns.size() > 2;
  if (found.time.empty() || (several && wishes.target.empty() && names_target(r.columns))) return {};
  choose_values(found, sheet, r.columns);
  const InitColumn* const target = wishes.target.empty() ? nullptr : &r.columns[sheet.find(wishes.target)];
  if (found.values.empty() || (target && std::find(found.values.begin(), found.values.end(), target) == found.values.end()))
    return {};
  if (!check_order(found, sheet, r, file)) return {};

  const InitReading reading = table_reading(wishes);
  InitParts out;
  const auto rows = int64_t(sheet.rows());
  const int64_t window = std::clamp<int64_t>(rows / 10, 4, 28);
  std::vector<std::string> names, references, times;
  for (const InitColumn* c : found.values) names.push_back(phrase(sheet, *c)), references.push_back(reference(sheet, *c));
  for (const size_t t : found.time) times.push_back(reference(sheet, r.columns[t]));
  const bool is_single = names.size() == 1;
  out.what = is_single ? joined("a series of ", rows, " values of ", names[0])
                       : joined("a series of ", rows, " rows of ", list_text(names), ", to predict the next ",
                                target ? phrase(sheet, *target) : std::string("row"));
  out.data.push_back({"\"root\": " + in_quotes(folder_of_file(file)), ""});
  out.data.insert(out.data.end(), reading.lines.begin(), reading.lines.end());
  out.data.push_back(is_single ? InitLine{"\"column\": " + references[0], ""}
                               : InitLine{"\"columns\": " + json_list(references), "what the model sees"});
  if (!is_single && target)
    out.data.push_back({"\"target\": " + reference(sheet, *target), "what it predicts; left out: all columns"});
  if (!is_single && !target) out.notes.push_back("all columns are predicted; --target COLUMN predicts one, from all of them");
  if (!found.left_out.empty()) out.notes.push_back("left out: " + list_text(found.left_out, 8, "; "));
  if (several)
    out.notes.emplace_back(
        "rows follow each other in time, and the last fifth is for validation; for rows that do not depend on those before them, "
        "--target "
        "COLUMN --task regression|classification makes a table, with a random part for validation");
  if (found.unchecked.empty())
    out.data.push_back({"\"time\": " + (times.size() == 1 ? times[0] : json_list(times)), "must increase from row to row"});
  else
    out.notes.push_back(found.unchecked);
  add_skipped(out, found, reading, phrase(sheet, r.columns[found.time[0]]));
  if (found.times)
    for (const std::string& how : {found.times->read_text, found.times->doubt_text})
      if (!how.empty()) out.notes.push_back(how);
  add_format(out, r, reading);
  add_missing(out, found, sheet, window);
  out.data.push_back({joined("\"window\": ", window), is_single ? "values that the model sees" : "rows that the model sees"});
  out.data.push_back({"\"horizon\": 1", is_single ? "values after them, which it predicts" : "rows after them, which it predicts"});
  add_split(out, "TimeSeries", file, "the first rows", "the rows after them", false);
  const auto place = std::find(found.values.begin(), found.values.end(), target) - found.values.begin();
  out.layers = last_value_and_change(window, !is_single && target ? int64_t(place) : -1);
  out.loss = R"("MSELoss")", out.metrics = R"(["rmse"])";
  out.samples = std::max<int64_t>(1, rows * 4 / 5 - window);
  out.remedy = "a series needs some dozen rows: windows of values, and later ones to check with";
  return out;
}

}  // namespace halfstep::app
