// SPDX-License-Identifier: Apache-2.0
// Converts inputs from the units of files, and runs them in batches.
#include <algorithm>
#include <cmath>
#include <variant>

#include "apps/use/predictor.h"

namespace halfstep::app {

namespace {

// Returns what replaces NaN in each input of a table: in the place of a category the missing one, and NaN where that is none.
std::vector<double> fill_of(const CsvEncoding& e, bool one_hot) {
  std::vector<double> out = e.fill;
  size_t at = 0;  // the column's first input
  for (const CsvEncoding::Column& c : e.columns) {
    const size_t inputs = c.categories.empty() ? std::max<size_t>(c.date.size(), 1) : one_hot ? c.categories.size() : 1;
    if (at + inputs > out.size()) break;  // texts, or no fill
    const bool has_missing = !c.categories.empty() && c.categories.front().empty();
    if (!c.categories.empty()) std::fill_n(out.begin() + int64_t(at), inputs, has_missing ? 0 : NAN);
    if (has_missing && one_hot) out[at] = 1;
    at += inputs;
  }
  return out;
}

}  // namespace

InputUnits input_units(const DataForm& form) {
  if (const auto* table = std::get_if<TableForm>(&form.source); table && table->options.encoding) {
    const CsvEncoding& e = *table->options.encoding;
    return {e.mean, e.std, fill_of(e, table->options.one_hot)};
  }
  InputUnits out;
  if (const auto* series = std::get_if<SeriesForm>(&form.source))
    for (const ColumnScale& scale : series->options.scaling) out.mean.push_back(scale.mean), out.std.push_back(scale.std);
  return out;
}

Tensor Predictor::from_units(const Tensor& inputs) const {
  const InputUnits units = input_units(form_);
  if (units.mean.empty() && units.fill.empty()) return inputs.to(form_.input_dtype);
  const int64_t width = inputs.dim() > 1 ? std::max<int64_t>(1, numel(without_batch(inputs.shape()))) : 1;
  // One number for all, for each column of a table, or for each column of a window's rows.
  const auto value_for = [](const std::vector<double>& values, int64_t column) { return values[size_t(column) % values.size()]; };
  // In float64: a column far from 0, such as seconds since 1970, has few values in float32.
  const Tensor wide = inputs.to(DType::f64).contiguous(), out = empty(inputs.shape(), {.dtype = DType::f32, .device = Device::cpu});
  const double* const from = wide.data_ptr<double>();
  float* const to = out.data_ptr<float>();
  for (int64_t i = 0; i < out.numel(); ++i) {
    double x = from[i];
    if (std::isnan(x) && !units.fill.empty()) x = value_for(units.fill, i % width);
    to[i] = float(units.mean.empty() ? x : (x - value_for(units.mean, i % width)) / value_for(units.std, i % width));
  }
  return out;
}

void Predictor::in_batches(const Tensor& inputs, int64_t batch,
                           const std::function<void(int64_t begin, const Tensor& outputs)>& receive) const {
  const int64_t samples = inputs.size(0), size = std::min(samples, batch);
  for (int64_t begin = 0; begin < samples; begin += batch) {
    const int64_t from = std::min(begin, samples - size);
    const Tensor outputs = (*this)(size == samples ? inputs : inputs.narrow(0, from, size));
    receive(begin, from == begin ? outputs : outputs.narrow(0, begin - from, from + size - begin));
  }
}

}  // namespace halfstep::app
