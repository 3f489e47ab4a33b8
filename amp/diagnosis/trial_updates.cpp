// SPDX-License-Identifier: Apache-2.0
#include "amp/diagnosis/trial_updates.h"

#include <cmath>
#include <map>
#include <string>

#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"

namespace halfstep {

Tensors TrialUpdates::update_by(const Tensors& gradients) {
  const NoGrad off;
  const std::vector<Tensor> parameters = module_.parameters();
  Tensors before, out;
  const std::map<std::string, Tensor> states = optimizer_.state_dict();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& p = parameters[i];
    before.push_back(p.detach().clone());
    p.set_grad(gradients[i].defined() ? gradients[i].to(p.dtype()) : Tensor());
  }
  optimizer_.step();
  for (size_t i = 0; i < parameters.size(); ++i) {
    out.push_back(parameters[i].detach().to(DType::f64) - before[i].to(DType::f64));
    parameters[i].copy_(before[i]);
    parameters[i].zero_grad();
  }
  optimizer_.load_state_dict(states);
  return out;
}

void TrialUpdates::add(const Tensors& low, const Tensors& float32) {
  const Tensors of_low = update_by(low), of_float32 = update_by(float32);
  const NoGrad off;
  const auto square_of = [](const Tensor& t) { return sum(t * t).item<double>(); };
  for (size_t i = 0; i < of_float32.size(); ++i) {
    difference_ += square_of(of_low[i] - of_float32[i]);
    size_ += square_of(of_float32[i]);
  }
}

std::optional<double> TrialUpdates::error() const {
  if (!(size_ > 0) || !std::isfinite(difference_)) return {};
  return std::sqrt(difference_ / size_);
}

}  // namespace halfstep
