// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tables/series_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "framework/base/check.h"
#include "framework/data/tables/csv_columns.h"
#include "framework/data/tables/csv_doubts.h"
#include "framework/data/tables/csv_sheet.h"
#include "framework/data/tables/series_times.h"

namespace halfstep {
namespace {

constexpr double kNoCell = std::numeric_limits<double>::quiet_NaN();

std::string counted_rows(size_t n, const char* singular, const char* plural) { return joined(n, ' ', n == 1 ? singular : plural); }

bool has_column(const std::vector<size_t>& columns, size_t column) {
  return std::find(columns.begin(), columns.end(), column) != columns.end();
}

// Returns the columns of numbers except those of time, and describes the others.
std::vector<size_t> number_columns(const CsvSheet& sheet, const std::vector<size_t>& time, const TimeSeriesOptions& o,
                                   std::string& left_out) {
  std::vector<size_t> out;
  for (size_t c = 0; c < sheet.names().size(); ++c) {
    if (has_column(time, c)) continue;
    size_t numbers = 0, others = 0;
    for (size_t r = 0; r < sheet.rows(); ++r) {
      if (is_missing_cell(sheet.cell(r, c), o.missing_words)) continue;
      sheet.is_number(r, c) ? ++numbers : ++others;
    }
    if (numbers > 0 && others == 0)
      out.push_back(c);
    else
      left_out += (left_out.empty() ? "" : ", ") + sheet.names()[c];
  }
  check<DataError>(!out.empty(), kTimeSeries, "\"columns\": \"all\" takes the columns of numbers, but the file has none",
                   Help{"name them, and say how missing values are written: \"missing_words\": [\"NA\"]"});
  if (!left_out.empty()) left_out = "columns that are no numbers are left out: " + left_out;
  return out;
}

std::vector<size_t> find_series_columns(const CsvSheet& sheet, const std::vector<size_t>& time, const TimeSeriesOptions& o,
                                        std::string& left_out) {
  if (o.all_columns) return number_columns(sheet, time, o, left_out);
  std::vector<size_t> out;
  for (const std::string& name : o.columns.empty() ? std::vector<std::string>{"-1"} : o.columns) {
    const size_t c = sheet.find(name);
    check<ConfigError>(!has_column(out, c), kTimeSeries, "column \"", sheet.names()[c], "\" is among the columns twice");
    check<ConfigError>(!has_column(time, c), kTimeSeries, "column \"", sheet.names()[c], "\" is the time, and no input");
    out.push_back(c);
  }
  return out;
}

// Returns the names of the targets, in the order given; of all columns in theirs.
std::vector<std::string> find_series_targets(const CsvSheet& sheet, const std::vector<size_t>& columns,
                                             const TimeSeriesOptions& o) {
  std::vector<size_t> wanted;
  for (const std::string& name : o.target) {
    const size_t c = sheet.find(name);
    check<ConfigError>(has_column(columns, c), kTimeSeries, "the target \"", sheet.names()[c], "\" must be one of the columns",
                       Help{"add it to \"columns\": what is predicted is also seen"});
    check<ConfigError>(!has_column(wanted, c), kTimeSeries, "column \"", sheet.names()[c], "\" is a target twice");
    wanted.push_back(c);
  }
  std::vector<std::string> out;
  for (const size_t c : wanted.empty() ? columns : wanted) out.push_back(sheet.names()[c]);
  return out;
}

// Reads the cells of the columns; NaN: missing. Returns how many are missing.
size_t read_series_cells(const CsvSheet& sheet, const std::vector<size_t>& columns, const TimeSeriesOptions& o,
                         std::vector<double>& out) {
  size_t missing = 0;
  std::optional<std::pair<size_t, size_t>> first;
  for (size_t r = 0; r < sheet.rows(); ++r) {
    for (const size_t c : columns) {
      const bool none = is_missing_cell(sheet.cell(r, c), o.missing_words);
      if (none && missing++ == 0) first = {r, c};
      out.push_back(none ? kNoCell : sheet.number(r, c));
    }
  }
  if (!first || o.missing != SeriesMissing::refuse) return missing;
  const std::string_view cell = sheet.cell(first->first, first->second);
  sheet.fail_at(first->first, first->second, "has no value: the cell ", cell.empty() ? "is empty" : joined("is \"", cell, '"'),
                missing > 1 ? joined(", and ", missing - 1, missing == 2 ? " more has" : " more have", " none") : "",
                Help{"\"missing\": \"interpolate\" or \"last\" fills in, \"drop\" leaves such rows out"});
}

// Warns of training data's numbers that probably are marks for missing values.
void warn_of_marks(const CsvSheet& sheet, const std::vector<size_t>& columns, const TimeSeriesOptions& o, DataNotes& notes) {
  const char* const rule = o.missing == SeriesMissing::refuse ? R"("missing": "interpolate")" : "";
  if (const std::string marks = warn_of_missing_marks(sheet, columns, o.missing_words, rule); !marks.empty())
    notes.warnings.push_back(marks);
}

// Drops the rows at the start that have no value before them to fill in. Returns their number.
size_t drop_start(SeriesRows& s) {
  std::vector<uint8_t> seen(s.columns);
  size_t start = 0;
  for (; start < s.rows(); ++start) {
    for (size_t c = 0; c < s.columns; ++c) seen[c] |= uint8_t(!std::isnan(s.values[start * s.columns + c]));
    if (std::all_of(seen.begin(), seen.end(), [](uint8_t b) { return b != 0; })) break;
  }
  if (start == s.rows() || start == 0) return 0;
  // Keeps values from before the first complete row.
  std::vector<double> before(s.values.begin(), s.values.begin() + std::ptrdiff_t(start * s.columns));
  for (size_t c = 0; c < s.columns; ++c) {
    double& v = s.values[start * s.columns + c];
    for (size_t r = start; r-- > 0 && std::isnan(v);) v = before[r * s.columns + c];
  }
  const auto cut = [&](auto& list, size_t count) {
    if (!list.empty()) list.erase(list.begin(), list.begin() + std::ptrdiff_t(count));
  };
  cut(s.values, start * s.columns), cut(s.filled, start * s.columns), cut(s.breaks, start), cut(s.lines, start);
  return start;
}

// Fills the NaN values, which `filled` marks.
void fill_series(SeriesRows& s, SeriesMissing how) {
  const size_t n = s.rows(), k = s.columns;
  s.last = s.values;
  for (size_t c = 0; c < k; ++c) {
    for (size_t r = 1; r < n; ++r)
      if (std::isnan(s.last[r * k + c])) s.last[r * k + c] = s.last[(r - 1) * k + c];
  }
  const std::vector<double> given = std::exchange(s.values, s.last);
  if (how != SeriesMissing::interpolate) return s.last.clear();
  for (size_t c = 0; c < k; ++c) {
    for (size_t r = 1; r < n; ++r) {
      if (!std::isnan(given[r * k + c])) continue;
      size_t after = r;
      while (after < n && std::isnan(given[after * k + c])) ++after;
      if (after == n) break;
      const double from = given[(r - 1) * k + c], to = given[after * k + c], length = double(after - r + 1);
      for (size_t at = r; at < after; ++at) s.values[at * k + c] = from + (to - from) * double(at - r + 1) / length;
      r = after;
    }
  }
}

// Fills in `missing` cells and `added` rows, which are NaN, and describes that in filled_text. Throws DataError for a column
// without values.
void fill_in(SeriesRows& out, const CsvSheet& sheet, const std::vector<size_t>& columns, SeriesMissing how, size_t missing,
             size_t added, const std::string& path) {
  for (const double v : out.values) out.filled.push_back(std::isnan(v));
  for (size_t c = 0; c < out.columns; ++c) {
    bool has_value = false;
    for (size_t r = 0; r < out.rows() && !has_value; ++r) has_value = !out.is_filled(r, c);
    check<DataError>(has_value, kTimeSeries, path, ": column \"", sheet.names()[columns[c]], "\" has no value to fill in with");
  }
  const size_t dropped = drop_start(out);
  fill_series(out, how);
  const char* method = how == SeriesMissing::last ? "with the last value" : "by interpolation";
  if (added > 0) out.filled_text = joined(counted_rows(added, "lacking row", "lacking rows"), missing > 0 ? " and " : "");
  if (missing > 0) out.filled_text += counted_rows(missing, "missing cell", "missing cells");
  out.filled_text += joined(missing + added == 1 ? " is" : " are", " filled in ", method);
  if (dropped > 0)
    out.filled_text += joined("; ", counted_rows(dropped, "row", "rows"), " at the start left out, before which nothing is known");
}

}  // namespace

float* SeriesRows::copy_window(size_t from, size_t to, float* out) const {
  const size_t begin = from * columns, size = (to - from) * columns;
  for (size_t i = 0; i < size; ++i) out[i] = float(values[begin + i]);
  for (size_t c = 0; c < columns && !last.empty(); ++c)
    for (size_t r = to; r-- > from && is_filled(r, c);) out[r * columns + c - begin] = float(last[r * columns + c]);
  return out + size;
}

SeriesRows read_series(const std::filesystem::path& path, TimeSeriesOptions& o) {
  const CsvSheet sheet(kTimeSeries, path, o.format, o.header);
  std::vector<size_t> time;
  for (const std::string& t : o.time) time.push_back(sheet.find(t));
  SeriesRows out;
  out.notes = sheet.notes();
  std::string left_out;
  const std::vector<size_t> columns = find_series_columns(sheet, time, o, left_out);
  o.target = find_series_targets(sheet, columns, o);
  std::vector<double> cells;
  const size_t missing = read_series_cells(sheet, columns, o, cells), k = columns.size();
  if (o.scaling.empty()) warn_of_marks(sheet, columns, o, out.notes);
  SeriesTimes times;
  if (!time.empty()) times = read_times(sheet, time, o.step);
  if (!time.empty()) o.step = times.step;
  if (!times.read_text.empty()) out.notes.summary += joined(out.notes.summary.empty() ? "" : "; ", times.read_text);
  if (!times.doubt_text.empty()) out.notes.warnings.push_back(times.doubt_text);

  const bool fills = o.missing == SeriesMissing::last || o.missing == SeriesMissing::interpolate;
  int64_t lacking_rows = 0;
  for (const SeriesGap& g : times.gaps) lacking_rows += g.lacking;
  // Fills in rows if many single ones are missing and that is requested, but not pauses such as nights.
  const bool few_lack = times.on_grid && 2 * lacking_rows <= int64_t(sheet.rows());
  const bool has_gaps = times.irregular_text.empty() || (fills && few_lack);
  if (!has_gaps) out.notes.warnings.push_back(times.irregular_text);
  if (has_gaps) out.gaps_text = times.gaps_text;
  out.columns = k;
  size_t dropped = 0, added = 0, next = 0;
  bool is_break = false;  // whether rows are missing before the next one
  for (size_t r = 0; r < sheet.rows(); ++r) {
    const auto from = cells.begin() + std::ptrdiff_t(r * k), to = from + std::ptrdiff_t(k);
    const bool is_gap = has_gaps && next < times.gaps.size() && times.gaps[next].row == r;
    if (is_gap && fills) {
      const auto lacking = size_t(times.gaps[next].lacking);
      added += lacking;
      if (added > sheet.rows())
        sheet.fail_at(
            r, time[0], "would have ", added, " rows filled in up to here, and the file has ", sheet.rows(),
            Help{joined("is \"", sheet.cell(r, time[0]).substr(0, 60), "\" right? \"missing\": \"drop\" fills nothing in")});
      out.values.insert(out.values.end(), lacking * k, kNoCell);
      out.breaks.insert(out.breaks.end(), lacking, 0);
      out.lines.insert(out.lines.end(), lacking, sheet.line(r));
    }
    next += is_gap;
    is_break |= is_gap && !fills;
    if (o.missing == SeriesMissing::drop && std::any_of(from, to, [](double v) { return std::isnan(v); })) {
      ++dropped, is_break = true;
      continue;
    }
    out.values.insert(out.values.end(), from, to);
    out.breaks.push_back(std::exchange(is_break, false));
    out.lines.push_back(sheet.line(r));
  }
  check<DataError>(out.rows() > 0, kTimeSeries, path.string(), ": each row has a missing value, so that none is left");
  if (fills && missing + added > 0) fill_in(out, sheet, columns, o.missing, missing, added, path.string());
  if (dropped > 0) out.filled_text = counted_rows(dropped, "row", "rows") + " with missing cells left out";
  for (const std::string& note : {left_out, sheet.number_forms()})
    if (!note.empty()) out.notes.summary += (out.notes.summary.empty() ? "" : "; ") + note;
  o.columns.clear();
  for (const size_t c : columns) o.columns.push_back(sheet.names()[c]);
  o.all_columns = false;
  for (size_t i = 0; i < time.size(); ++i) o.time[i] = sheet.names()[time[i]];
  o.header = sheet.has_header();
  o.format = sheet.format();
  return out;
}

}  // namespace halfstep
