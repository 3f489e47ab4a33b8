// SPDX-License-Identifier: Apache-2.0
#include "apps/use/wide_inputs.h"

#include <cmath>
#include <vector>

#include "apps/terminal/quantity_text.h"
#include "apps/use/predictor.h"
#include "framework/base/dtype.h"
#include "framework/io/files/printable.h"

namespace halfstep::app {
namespace {

// Returns the name of the column behind each input of a sample, or behind each number of a series' row.
std::vector<std::string> names_of_inputs(const DataForm& form) {
  std::vector<std::string> out;
  if (const auto* series = std::get_if<SeriesForm>(&form.source)) {
    out = series->options.columns;
    if (out.empty() && !form.names.empty()) out.push_back(form.names[0]);
  }
  const auto* table = std::get_if<TableForm>(&form.source);
  if (!table || !table->options.encoding) return out;
  for (const CsvEncoding::Column& c : table->options.encoding->columns) {
    const bool is_one = c.date.empty() && (c.categories.empty() || !table->options.one_hot);
    const size_t inputs = is_one ? 1 : c.date.empty() ? c.categories.size() : c.date.size();
    out.insert(out.end(), inputs, c.name);
  }
  return out;
}

// Returns whether the training data had one number, which float32 has.
bool is_exact_constant(const DataForm& form, size_t i) {
  const auto* table = std::get_if<TableForm>(&form.source);
  if (!table || !table->options.encoding || i >= table->options.encoding->low.size()) return false;
  const double low = table->options.encoding->low[i];
  return low == table->options.encoding->high[i] && double(float(low)) == low;
}

}  // namespace

std::string wide_inputs(const DataForm& form) {
  constexpr double kMostTimes = 1e4;  // mean / deviation from which on the last of 7 digits exceeds a thousandth of the deviation
  constexpr size_t kNamed = 3;
  constexpr int kDigits = 3;
  const InputUnits units = input_units(form);
  const std::vector<std::string> names = names_of_inputs(form);
  std::string out;
  size_t found = 0;
  for (size_t i = 0; i < units.mean.size(); ++i) {
    if (!(std::abs(units.mean[i]) >= kMostTimes * units.std[i]) || is_exact_constant(form, i) || ++found > kNamed) continue;
    out += (out.empty() ? "" : ", ") + (i < names.size() ? '"' + printable(names[i]) + '"' : joined("input ", i)) + " (mean " +
           number_text(units.mean[i], kDigits) + ", deviation " + number_text(units.std[i], kDigits) + ")";
  }
  return found > kNamed ? joined(out, " and ", found - kNamed, " more") : out;
}

std::string narrow_inputs_warning(const DataForm& form, DType dtype) {
  if (!is_floating(dtype) || dtype == DType::f64) return "";
  const std::string wide = wide_inputs(form);
  return wide.empty() ? "" : joined(dtype, " does not have the digits of ", wide, ": give float64");
}

}  // namespace halfstep::app
