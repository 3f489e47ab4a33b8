// SPDX-License-Identifier: Apache-2.0
#include "apps/use/array_categories.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "framework/base/check.h"
#include "framework/data/tables/labels.h"
#include "framework/ops/ops.h"

namespace halfstep::app {
namespace {

std::string text_of_number(double x) { return std::isnan(x) ? "NaN" : joined(x); }

// Returns whether missing values are a category of their own, which comes first.
bool has_missing(const CsvEncoding::Column& column) { return column.categories.front().empty(); }

// Returns whether this is the number of a category. NaN is filled in with that of a missing value, 0.
bool is_number_of(const CsvEncoding::Column& column, bool fills, double x) {
  if (std::isnan(x)) return fills && has_missing(column);
  return x == std::floor(x) && x >= 0 && x < double(column.categories.size());
}

// Returns what is wrong with the 0/1 inputs of one column; "": nothing. no_category: whether a row may have none of the categories.
std::string fault_of_bits(const CsvEncoding::Column& column, bool fills, bool no_category, std::span<const double> numbers) {
  const auto is_nan = [](double x) { return std::isnan(x); };
  if (fills && has_missing(column) && std::all_of(numbers.begin(), numbers.end(), is_nan)) return "";
  if (std::any_of(numbers.begin(), numbers.end(), is_nan)) return "NaN";
  const auto other = std::find_if(numbers.begin(), numbers.end(), [](double x) { return x != 0 && x != 1; });
  if (other != numbers.end()) return text_of_number(*other);
  const auto ones = std::count(numbers.begin(), numbers.end(), 1);
  return ones > 1 ? joined(ones, " times 1") : ones == 0 && !no_category ? "0 for all" : "";
}

// Checks the inputs of one column of one sample.
void check_column(const CsvEncoding::Column& column, const CsvOptions& options, std::span<const double> numbers, int64_t sample,
                  const std::string& what) {
  const bool fills = !options.encoding->fill.empty();
  if (options.one_hot) {
    const std::string fault = fault_of_bits(column, fills, options.unknown == "missing" && !has_missing(column), numbers);
    if (fault.empty()) return;
    fail<DataError>(what, "sample ", sample, ": the ", numbers.size(), " inputs of ", column.name,
                    " must be 0, but 1 for its category, got ", fault,
                    Help{joined("the categories are, in order, ", some_labels(column.categories))});
  }
  if (is_number_of(column, fills, numbers[0])) return;
  fail<DataError>(what, "sample ", sample, ": ", column.name, " must be the number of a category from 0 to ",
                  column.categories.size() - 1, ", got ", text_of_number(numbers[0]),
                  Help{joined("the categories are, from 0 on, ", some_labels(column.categories),
                              std::isnan(numbers[0]) ? "; a missing value was none of them in the training data" : "")});
}

}  // namespace

void check_categories(const Tensor& x, const DataForm& form, const std::string& what) {
  const auto* const table = std::get_if<TableForm>(&form.source);
  if (!table || !table->options.encoding || table->options.encoding->tokens || x.numel() == 0) return;
  const CsvEncoding& encoding = *table->options.encoding;
  const bool one_hot = table->options.one_hot;
  const auto has_categories = [](const CsvEncoding::Column& c) { return !c.categories.empty(); };
  if (std::none_of(encoding.columns.begin(), encoding.columns.end(), has_categories)) return;
  const Tensor numbers = x.to(DType::f64).contiguous();
  const int64_t width = numel(form.input), rows = numbers.numel() / width;
  size_t at = 0;  // the column's first input
  for (const CsvEncoding::Column& c : encoding.columns) {
    const size_t inputs = has_categories(c) ? (one_hot ? c.categories.size() : 1) : std::max<size_t>(c.date.size(), 1);
    if (at + inputs > size_t(width)) return;  // another form of inputs
    for (int64_t i = 0; has_categories(c) && i < rows; ++i)
      check_column(c, table->options, {numbers.const_data_ptr<double>() + i * width + int64_t(at), inputs}, i, what);
    at += inputs;
  }
}

}  // namespace halfstep::app
