// SPDX-License-Identifier: Apache-2.0
#include "framework/data/time_series.h"

#include <algorithm>
#include <cmath>

#include "framework/base/check.h"
#include "framework/data/csv_sheet.h"
#include "framework/data/form.h"
#include "framework/tensor/storage.h"

namespace halfstep {
namespace {

constexpr const char* kSeries = "TimeSeries";

bool are_later_dates(const CsvSheet& sheet, size_t column, CsvDateOrder order) {
  CsvDate before, now;
  for (size_t r = 0; r < sheet.rows(); before = now, ++r) {
    if (!parse_date(sheet.cell(r, column), order, now) || (r > 0 && !(before.days < now.days))) return false;
  }
  return true;
}

void check_times(const CsvSheet& sheet, size_t column) {
  for (const auto order : {CsvDateOrder::ymd, CsvDateOrder::dmy, CsvDateOrder::mdy})
    if (are_later_dates(sheet, column, order)) return;
  bool numbers = true;
  for (size_t r = 0; r < sheet.rows() && numbers; ++r) numbers = sheet.is_number(r, column);
  for (size_t r = 1; r < sheet.rows(); ++r) {
    bool grows = sheet.cell(r - 1, column) < sheet.cell(r, column);
    if (numbers) grows = sheet.number(r - 1, column) < sheet.number(r, column);
    if (!grows)
      sheet.fail_at(r, column, "must grow from row to row, but \"", sheet.cell(r, column).substr(0, 60), "\" follows \"",
                    sheet.cell(r - 1, column).substr(0, 60), '"');
  }
}

// The column's values. Sets the names and the format of `o` to those that were found.
std::vector<double> read_values(const std::filesystem::path& path, TimeSeriesOptions& o, DataNotes* notes = nullptr) {
  const CsvSheet sheet(kSeries, path, o.format, has_header(o.header));
  const size_t column = sheet.find(o.column.empty() ? "-1" : o.column);
  if (!o.time.empty()) check_times(sheet, sheet.find(o.time));
  std::vector<double> values;
  for (size_t r = 0; r < sheet.rows(); ++r) {
    if (sheet.cell(r, column).empty())
      sheet.fail_at(r, column, "has a gap: the cell is empty", Help{"fill it in, or leave the rows before it out"});
    values.push_back(sheet.number(r, column));
  }
  o.column = sheet.names()[column];
  o.header = sheet.has_header() ? CsvOptions::Header::yes : CsvOptions::Header::no;
  o.format = sheet.format();
  if (notes) *notes = sheet.notes();
  if (const std::string forms = sheet.number_forms(); notes && !forms.empty())
    notes->made += (notes->made.empty() ? "" : "; ") + forms;
  return values;
}

}  // namespace

TimeSeriesDataset::TimeSeriesDataset(const std::filesystem::path& path, const TimeSeriesOptions& options)
    : label_("TimeSeries " + path.string()), options_(options) {
  const TimeSeriesOptions& o = options_;
  check<ValueError>(o.window >= 1 && o.horizon >= 1 && o.stride >= 1, kSeries,
                    "window, horizon and stride must be at least 1, got ", o.window, ", ", o.horizon, " and ", o.stride);
  check<ValueError>(0 <= o.begin && o.begin < o.end && o.end <= 1, kSeries, "a part must be [a, b) with 0 <= a < b <= 1, got [",
                    o.begin, ", ", o.end, ')');
  const std::vector<double> values = read_values(path, options_, &notes_);
  const auto row_at = [&](double f) {
    return std::min(int64_t(values.size()), int64_t(std::floor(f * double(values.size()) + 1e-9)));
  };
  const int64_t begin = row_at(o.begin), end = row_at(o.end);
  first_ = std::max(begin, o.window);
  const int64_t room = end - first_ - o.horizon;  // of the last window's start
  check<DataError>(room >= 0, kSeries, path.string(), ": the part [", o.begin, ", ", o.end, ") has ", end - begin, " of ",
                   values.size(), " rows, which is too few for a window of ", o.window, " and ", o.horizon, " after it");
  size_ = room / o.stride + 1;
  if (o.scaling)
    scaling_ = *o.scaling;
  else if (o.standardize)
    scaling_ = scale_of_column(std::span(values).subspan(size_t(begin), size_t(end - begin)));
  check<ValueError>(scaling_.std > 0, kSeries, "the deviation of a scaling must be positive, got ", scaling_.std);
  for (const double v : values) values_.push_back(float((v - scaling_.mean) / scaling_.std));
}

Batch TimeSeriesDataset::batch(std::span<const int64_t> indices) const {
  const MemoryScope scope(MemoryTag::data);
  const int64_t n = int64_t(indices.size()), window = options_.window, horizon = options_.horizon;
  const Batch out{Tensor::empty({n, window, 1}, {.device = Device::cpu}), Tensor::empty({n, horizon}, {.device = Device::cpu})};
  float *input = out.input.data_ptr<float>(), *target = out.target.data_ptr<float>();
  for (const int64_t i : indices) {
    check<IndexError>(i >= 0 && i < size_, kSeries, "a sample index must be in [0, ", size_, "), got ", i);
    const float* const now = values_.data() + first_ + i * options_.stride;
    input = std::copy_n(now - window, window, input);
    target = std::copy_n(now, horizon, target);
  }
  return out;
}

DataForm TimeSeriesDataset::form() const {
  DataForm out = Dataset::form();
  TimeSeriesOptions options = options_;
  options.scaling = scaling_;
  options.format.skip_rows.clear();  // they are those of this file
  out.names = {options.column};
  out.source = SeriesForm{std::move(options)};
  return out;
}

Tensor read_last_window(const std::filesystem::path& path, const TimeSeriesOptions& training) {
  TimeSeriesOptions o = training;
  const std::vector<double> values = read_values(path, o);
  check<DataError>(int64_t(values.size()) >= o.window, kSeries, path.string(), " has ", values.size(), " rows, but a window has ",
                   o.window);
  const TargetScale scale = o.scaling.value_or(TargetScale());
  const Tensor out = Tensor::empty({o.window, 1}, {.device = Device::cpu});
  float* to = out.data_ptr<float>();
  for (auto v = values.end() - o.window; v != values.end(); ++v) *to++ = float((*v - scale.mean) / scale.std);
  return out;
}

std::string TimeSeriesDataset::describe() const {
  return joined(label_, ": ", size_, " windows of ", options_.window, " values, ", options_.horizon, " to predict, of mean ",
                scaling_.mean, " and deviation ", scaling_.std);
}

}  // namespace halfstep
