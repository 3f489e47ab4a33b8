// SPDX-License-Identifier: Apache-2.0
// Converts inputs from the units of files, and runs them in batches.
#include <algorithm>
#include <cmath>
#include <variant>

#include "apps/use/predictor.h"

namespace halfstep::app {

InputUnits input_units(const DataForm& form) {
  if (const auto* table = std::get_if<TableForm>(&form.source); table && table->options.encoding)
    return {table->options.encoding->mean, table->options.encoding->std, table->options.encoding->fill};
  InputUnits out;
  if (const auto* series = std::get_if<SeriesForm>(&form.source))
    for (const ColumnScale& scale : series->options.scaling) out.mean.push_back(scale.mean), out.std.push_back(scale.std);
  return out;
}

Tensor Predictor::from_units(const Tensor& inputs) const {
  const InputUnits units = input_units(form_);
  if (units.mean.empty() && units.fill.empty()) return inputs;
  const int64_t width = inputs.dim() > 1 ? std::max<int64_t>(1, numel(without_batch(inputs.shape()))) : 1;
  // One number for all, for each column of a table, or for each column of a window's rows.
  const auto value_for = [](const std::vector<double>& values, int64_t column) { return values[size_t(column) % values.size()]; };
  const bool wide = inputs.dtype() == DType::f64;
  const Tensor from = (wide ? inputs : inputs.to(DType::f32)).contiguous();
  const Tensor out = Tensor::empty(from.shape(), {.device = Device::cpu});
  float* to = out.data_ptr<float>();
  for (int64_t i = 0; i < out.numel(); ++i) {
    double x = wide ? from.const_data_ptr<double>()[i] : double(from.const_data_ptr<float>()[i]);
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
