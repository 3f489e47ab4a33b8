// SPDX-License-Identifier: Apache-2.0
#include "apps/export/preparation.h"

#include <numeric>

namespace halfstep::app {
namespace {

// A number for each column, or one for all, as a tensor that broadcasts over inputs [N, columns].
Tensor each_column(const std::vector<double>& numbers) { return tensor(numbers).to(DType::f32); }

// (x - mean) / std for each channel, by ops: what the transform does by itself.
Tensor normalized(const Tensor& x, const ChannelScaling& scaling) {
  const auto channels = [&](const std::vector<float>& v) {
    Shape shape = Dims::filled(x.dim(), 1);
    shape[v.size() == 1 ? 0 : 1] = int64_t(v.size());
    return from_vector(v, shape, Device::cpu);
  };
  return (x - channels(scaling.mean)) / channels(scaling.std);
}

}  // namespace

Preparation::Preparation(const Predictor& model, bool raw) {
  const Transforms& all = model.transforms();
  size_t first = all.size();
  while (!raw && first > 0 && (all[first - 1]->as_scaling() || dynamic_cast<const ToTensor*>(all[first - 1].get()))) --first;
  for (size_t i = first; i < all.size(); ++i)
    if (const ChannelScaling* s = all[i]->as_scaling()) inside.push_back(s);
  for (size_t i = 0; i < first; ++i) outside.push_back(model.stored_transforms()[i]);
  if (!raw && first == 0) units = input_units(model.form());
}

Tensor Preparation::operator()(Tensor x) const {
  if (!units.fill.empty()) x = where(eq(x, x), x, each_column(units.fill));  // NaN: a missing value
  if (!units.mean.empty()) x = (x - each_column(units.mean)) / each_column(units.std);
  for (const ChannelScaling* s : inside) x = normalized(x, *s);
  return x;
}

Tensor golden_inputs(const Predictor& model, const Preparation& prepare) {
  Batch batch{golden_inputs(model.form()), {}};
  std::vector<int64_t> places(size_t(batch.input.size(0)));
  std::iota(places.begin(), places.end(), 0);
  for (size_t i = 0; i < prepare.outside.size(); ++i)
    batch = model.transforms()[i]->apply(batch, {.indices = places, .classes = model.form().classes});
  const Tensor x = batch.input;
  return prepare.units.mean.empty() ? x : x * each_column(prepare.units.std) + each_column(prepare.units.mean);
}

bool has_scale(const DataForm& form) { return form.classes == 0 && (form.scale.std != 1 || form.scale.mean != 0); }

Tensor prepared_output(const Predictor& model, const Preparation& prepare, const Tensor& x) {
  const FreshStates begin(*model.parts().model);
  const Tensor y = (*model.parts().model)(prepare(x)).to(DType::f32);
  const TargetScale& scale = model.form().scale;
  return has_scale(model.form()) ? y * scale.std + scale.mean : y;
}

}  // namespace halfstep::app
