// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tables/time_series.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "framework/base/check.h"
#include "framework/base/list_text.h"
#include "framework/data/loading/equal_floats.h"
#include "framework/data/tables/csv_sheet.h"
#include "framework/data/tables/series_rows.h"
#include "framework/data/transforms/data_form.h"
#include "framework/ops/ops.h"
#include "framework/tensor/storage.h"

namespace halfstep {
namespace {

// Returns the scale of each column, from the file's values in rows [begin, end).
std::vector<ColumnScale> scales_of(const SeriesRows& s, const TimeSeriesOptions& o, int64_t begin, int64_t end) {
  std::vector<ColumnScale> out(s.columns);
  for (size_t c = 0; c < s.columns && o.standardize; ++c) {
    std::vector<double> values;
    for (auto r = size_t(begin); r < size_t(end); ++r)
      if (!s.is_filled(r, c)) values.push_back(s.values[r * s.columns + c]);
    check<DataError>(!values.empty(), kTimeSeries, "column \"", o.columns[c], "\" has no value in the part that is read");
    out[c] = scale_of_column(values);
  }
  return out;
}

// Warns of columns of the training data that always have the same value.
void warn_of_constants(const SeriesRows& s, const TimeSeriesOptions& o, int64_t begin, int64_t end, DataNotes& notes) {
  for (size_t c = 0; c < s.columns; ++c) {
    const auto value = [&](int64_t r) { return s.values[size_t(r) * s.columns + c]; };
    int64_t r = begin + 1;
    while (r < end && value(r) == value(begin)) ++r;
    if (r == end && end > begin + 1)
      notes.warnings.push_back(joined("column \"", o.columns[c], "\" has one value alone, ", value(begin)));
  }
}

void scale_rows(SeriesRows& s, const std::vector<ColumnScale>& scales) {
  for (std::vector<double>* values : {&s.values, &s.last})
    for (size_t i = 0; i < values->size(); ++i) {
      const ColumnScale& scale = scales[i % s.columns];
      (*values)[i] = ((*values)[i] - scale.mean) / scale.std;
    }
}

// Warns of columns of the training data whose scaled values become equal in float32.
void warn_of_equal_floats(const SeriesRows& s, const TimeSeriesOptions& o, int64_t begin, int64_t end, DataNotes& notes) {
  for (size_t c = 0; c < s.columns; ++c) {
    const std::string text = equal_in_float(end - begin, [&](int64_t r) { return s.values[size_t(begin + r) * s.columns + c]; });
    if (!text.empty())
      notes.warnings.push_back(
          joined("column \"", o.columns[c], "\": ", text, o.standardize ? "" : "; \"standardize\": true keeps them apart"));
  }
}

// Returns "sold has 1 value far outside of the training data's, such as 1e+06 in line 40, where that has 12 in the mean and a
// deviation of 3" for rows [from, to); "" if there is none, or if the scale is unknown.
std::string far_values(const SeriesRows& s, size_t from, size_t to, const TimeSeriesOptions& o) {
  constexpr double kFarDeviations = 40;  // from the mean
  std::string out;
  for (size_t c = 0; c < s.columns; ++c) {
    const ColumnScale& of = o.scaling[c];
    size_t count = 0, first = 0;
    for (size_t r = from; r < to; ++r)
      if (std::abs(s.values[r * s.columns + c] - of.mean) > kFarDeviations * of.std && count++ == 0) first = r;
    if (count == 0 || of == ColumnScale()) continue;
    out += joined(out.empty() ? "" : ", ", o.columns[c], " has ", count, count == 1 ? " value" : " values",
                  " far outside of the training data's, such as ", s.values[first * s.columns + c], " in line ", s.lines[first],
                  ", where that has the mean ", of.mean, " and the deviation ", of.std);
  }
  return out;
}

// Returns prefix sums, so that any stretch of rows takes one subtraction: [i] is the sum over the rows before i.
std::vector<int64_t> sums_of_rows(size_t rows, const std::function<bool(size_t)>& counts) {
  std::vector<int64_t> out{0};
  for (size_t r = 0; r < rows; ++r) out.push_back(out.back() + counts(r));
  return out;
}

}  // namespace

std::vector<int64_t> places_of_targets(const TimeSeriesOptions& o) {
  std::vector<int64_t> out;
  for (const std::string& name : o.target) out.push_back(std::find(o.columns.begin(), o.columns.end(), name) - o.columns.begin());
  return out;
}

Tensor last_values(const Tensor& input, const TimeSeriesOptions& o) {
  const Tensor last = input.select(1, -1).index_select(1, tensor(places_of_targets(o)).to(input.device()));
  std::vector<int64_t> times = {1, o.horizon};
  return last.repeat(times);
}

namespace {
// Describes `columns`, which a word replaces by all_columns.
Option<TimeSeriesOptions> columns_or_all() {
  using O = TimeSeriesOptions;
  Option<O> out =
      columns_of("columns", &O::columns, "columns that the model sees, by name or index; \"all\": all of numbers but time")
          .or_one()
          .one_of({"all"});
  out.put = [put = out.put](O& o, const OptionValue& value) {
    o.all_columns = value == OptionValue("all");
    return o.all_columns || put(o, value);
  };
  return out;
}
}  // namespace

HALFSTEP_OPTIONS(
    TimeSeriesOptions,
    OptionList<O>{
        columns_or_all(), columns_of("target", &O::target, "those of the columns that are predicted; left out: all").or_one(),
        columns_of("time", &O::time,
                   "a column of dates or numbers that must increase; or those of year, month (or quarter), day, hour, minute")
            .or_one(),
        option("missing", &O::missing,
               "handling of missing values: an error; leave out the row; the last value before it; a straight line between its "
               "neighbours. The last two also fill in rows that time lacks, which no window crosses otherwise"),
        missing_words_of<O>(), range_of_file<O>(), option("window", &O::window, "rows of the input").at_least(1).required(),
        option("horizon", &O::horizon, "rows to predict").at_least(1),
        option("stride", &O::stride, "rows from a window to the next").at_least(1), header_of<O>()} +
        within(&O::format) +
        OptionList<O>{option("standardize", &O::standardize, "each column to mean 0 and deviation 1 (of the training data)")})

TimeSeriesDataset::TimeSeriesDataset(const std::filesystem::path& path, const TimeSeriesOptions& options)
    : label_("TimeSeries " + path.string()), options_(options) {
  TimeSeriesOptions& o = options_;
  check_options(kTimeSeries, o);
  check_range(kTimeSeries, o.begin, o.end);
  SeriesRows s = read_series(path, o);
  const auto rows = int64_t(s.rows());
  constexpr double kRounding = 1e-9;  // so that 0.3 of 10 is 3
  const auto row_at = [&](double f) { return std::min(rows, int64_t(std::floor(f * double(rows) + kRounding))); };
  const int64_t begin = row_at(o.begin), end = row_at(o.end), first = std::max(begin, o.window), room = end - first - o.horizon;
  const auto windows = [](int64_t n) { return joined(n, n == 1 ? " window" : " windows"); };
  check<DataError>(room >= 0, kTimeSeries, path.string(), ": the part [", o.begin, ", ", o.end, ") has ", end - begin, " of ", rows,
                   " rows, which is too few for a window of ", o.window, " and ", o.horizon, " after it");
  const std::vector<int64_t> breaks = sums_of_rows(s.rows(), [&](size_t r) { return s.breaks[r] != 0; });
  const std::vector<int64_t> places = places_of_targets(o);
  const std::vector<int64_t> unknown = sums_of_rows(s.rows(), [&](size_t r) {
    return std::any_of(places.begin(), places.end(), [&](int64_t c) { return s.is_filled(r, size_t(c)); });
  });
  int64_t across = 0, without = 0;  // windows that cross a gap, and whose targets are missing
  for (int64_t at = first; at <= first + room; at += o.stride) {
    const auto from = size_t(at - o.window + 1), now = size_t(at), to = size_t(at + o.horizon);
    if (breaks[to] > breaks[from])
      ++across;
    else if (unknown[to] > unknown[now])
      ++without;
    else
      starts_.push_back(at);
  }
  std::string left_out;
  if (across > 0) left_out = windows(across) + " across a place where rows are lacking";
  if (without > 0) left_out += joined(across > 0 ? ", " : "", windows(without), " before values that are missing");
  check<DataError>(!starts_.empty(), kTimeSeries, path.string(), ": no window of ", o.window, " rows and ", o.horizon,
                   " after it is whole: left out are ", left_out, s.gaps_text.empty() ? "" : "; " + s.gaps_text,
                   Help{o.missing == SeriesMissing::refuse || o.missing == SeriesMissing::drop
                            ? "\"missing\": \"interpolate\" or \"last\" fills lacking rows in; else a smaller window"
                            : "a smaller horizon, or without the columns that have few values"});
  const size_t columns = s.columns;
  const bool learns = o.scaling.empty();
  if (learns) warn_of_constants(s, o, begin, end, s.notes), o.scaling = scales_of(s, o, begin, end);
  check<ValueError>(o.scaling.size() == columns, kTimeSeries, "a scaling must be of ", columns, " columns, got ", o.scaling.size());
  for (const ColumnScale& of : o.scaling)
    check<ValueError>(of.std > 0, kTimeSeries, "the deviation of a scaling must be positive, got ", of.std);
  const std::string far = learns ? "" : far_values(s, size_t(std::max<int64_t>(0, begin - o.window)), size_t(end), o);
  if (!far.empty()) s.notes.warnings.push_back(far + ": answers there may mean nothing");
  scale_rows(s, o.scaling);
  if (learns) warn_of_equal_floats(s, o, begin, end, s.notes);
  notes_ = std::move(s.notes);
  for (const std::string& part : {s.filled_text, s.gaps_text, left_out.empty() ? left_out : "left out: " + left_out})
    if (!part.empty()) notes_.summary = notes_.summary.empty() ? part : part + "; " + notes_.summary;
  rows_ = std::make_shared<const SeriesRows>(std::move(s));
}

Shape TimeSeriesDataset::input_shape() const { return {options_.window, int64_t(options_.columns.size())}; }
Shape TimeSeriesDataset::target_shape() const { return {options_.horizon * int64_t(options_.target.size())}; }

ColumnScale TimeSeriesDataset::target_scale() const {
  const std::vector<int64_t> places = places_of_targets(options_);
  ColumnScale out;
  if (places.size() == 1) return options_.scaling[size_t(places[0])];
  for (const int64_t c : places) out.each.push_back(options_.scaling[size_t(c)]);
  return out;
}

Batch TimeSeriesDataset::batch(std::span<const int64_t> indices) const {
  const MemoryScope scope(MemoryTag::data);
  const int64_t n = int64_t(indices.size());
  const Batch out{Tensor::empty(with_batch(n, input_shape()), {.device = Device::cpu}),
                  Tensor::empty(with_batch(n, target_shape()), {.device = Device::cpu})};
  float *input = out.input.data_ptr<float>(), *target = out.target.data_ptr<float>();
  const std::vector<int64_t> places = places_of_targets(options_);
  for (const int64_t i : indices) {
    check<IndexError>(i >= 0 && i < size(), kTimeSeries, "a sample index must be in [0, ", size(), "), got ", i);
    const auto now = size_t(starts_[size_t(i)]);
    input = rows_->copy_window(now - size_t(options_.window), now, input);
    for (size_t r = now; r < now + size_t(options_.horizon); ++r)
      for (const int64_t c : places) *target++ = float(rows_->values[r * rows_->columns + size_t(c)]);
  }
  return out;
}

DataForm TimeSeriesDataset::form() const {
  DataForm out = Dataset::form();
  TimeSeriesOptions options = options_;
  options.format.skip_rows.clear();  // they are lines of this file
  out.names = options.target;
  out.source = SeriesForm{std::move(options)};
  return out;
}

LastWindow read_last_window(const std::filesystem::path& path, const TimeSeriesOptions& training) {
  TimeSeriesOptions o = training;
  SeriesRows s = read_series(path, o);
  check<DataError>(int64_t(s.rows()) >= o.window, kTimeSeries, path.string(), " has ", s.rows(), " rows, but a window has ",
                   o.window);
  const size_t from = s.rows() - size_t(o.window);
  for (size_t r = from + 1; r < s.rows(); ++r)
    check<DataError>(s.breaks[r] == 0, kTimeSeries, path.string(), ": the last ", o.window,
                     " rows must follow each other, but before line ", s.lines[r], " rows are lacking",
                     s.gaps_text.empty() ? "" : " (" + s.gaps_text + ")",
                     Help{"fill them in; or train with \"missing\": \"interpolate\" or \"last\", which fills them in here, too"});
  if (o.scaling.empty()) o.scaling.assign(s.columns, ColumnScale());
  const std::string far = far_values(s, from, s.rows(), o);
  scale_rows(s, o.scaling);
  LastWindow out{Tensor::empty({o.window, int64_t(s.columns)}, {.device = Device::cpu}), {}};
  s.copy_window(from, s.rows(), out.input.data_ptr<float>());
  bool filled = false;
  for (size_t r = from; r < s.rows(); ++r)
    for (size_t c = 0; c < s.columns; ++c) filled |= s.is_filled(r, c);
  if (filled) out.note = "in its last " + std::to_string(o.window) + " rows values are filled in: " + s.filled_text;
  for (const std::string& w : s.notes.warnings) out.note += (out.note.empty() ? "" : "; ") + w;
  if (!far.empty()) out.note += (out.note.empty() ? "" : "; ") + far + ": the answer may mean nothing";
  return out;
}

std::string TimeSeriesDataset::describe() const {
  const size_t columns = options_.columns.size();
  const ColumnScale& of = options_.scaling[size_t(places_of_targets(options_)[0])];
  if (columns == 1)
    return joined(label_, ": ", size(), " windows of ", options_.window, " values, ", options_.horizon, " to predict, of mean ",
                  of.mean, " and deviation ", of.std);
  const std::string targets = list_text(options_.target), rows = joined(options_.horizon, " rows");
  const bool all = options_.target.size() == columns;
  return joined(label_, ": ", size(), " windows of ", options_.window, " rows of ", list_text(options_.columns), "; ",
                options_.horizon > 1 ? rows + (all ? "" : " of " + targets) : "the next " + (all ? "row" : targets), " to predict");
}

}  // namespace halfstep
