// SPDX-License-Identifier: Apache-2.0
#include "optim/clip.h"

#include <algorithm>
#include <cmath>

#include "amp/autocast/autocast.h"
#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"
#include "optim/gradients.h"

namespace halfstep {

namespace {

constexpr double kLeastNorm = 1e-6;  // divisor of gradients of zeros in adaptive clipping, as in the paper's code

bool has_float64(const Tensors& grads) {
  return std::any_of(grads.begin(), grads.end(), [](const Tensor& g) { return g.dtype() == DType::f64; });
}

// Computes the norm in float64.
Tensor wide_norm(const Tensors& grads, double norm_type) {
  const autocast::Off off;
  Tensors norms;
  for (const Tensor& g : grads)
    if (g.numel() > 0) norms.push_back(norm(g.detach(), norm_type, {}, false, DType::f64));
  return norms.empty() ? zeros({}, {.dtype = DType::f64, .device = grads.front().device()}) : norm(stack(norms), norm_type);
}

// Returns the norm of gradients on one device, in float64 if one of them is; 0 if there are none.
Tensor norm_of(const char* where, const std::vector<Tensor>& params, const Tensors& grads, double norm_type) {
  check<ValueError>(norm_type > 0, where, "norm_type must be > 0 or infinity, got ", norm_type);
  if (grads.empty()) return zeros({}, {.device = params.empty() ? Device::cpu : params.front().device()});
  const Device device = grads.front().device();
  for (const Tensor& g : grads)
    check<DeviceError>(g.device() == device, where, "gradients must be on one device, got ", device, " and ", g.device());
  if (has_float64(grads)) return wide_norm(grads, norm_type);
  Tensor norm = Tensor::empty({}, {.device = device});
  backend_for(device).norm(views_of(grads), norm_type, norm.data_ptr<float>());
  return norm;
}

}  // namespace

Tensor clip_grad_norm_(const Gradients& params, double max_norm, double norm_type, bool error_if_nonfinite) {
  check<ValueError>(max_norm >= 0, "clip_grad_norm_", "max_norm must be >= 0, got ", max_norm);
  params.check_unscaled("clip_grad_norm_");
  NoGrad off;
  const Tensors grads = gradients_of(params);
  const Tensor norm = norm_of("clip_grad_norm_", params, grads, norm_type);
  if (grads.empty()) return norm;
  if (error_if_nonfinite) {
    const double value = norm.item<double>();
    check<ValueError>(std::isfinite(value), "clip_grad_norm_", "the total norm of order ", norm_type, " is ", value,
                      ", so it cannot be clipped",
                      Help{"set error_if_nonfinite = false to scale by it anyway; a GradScaler skips such steps"});
  }
  if (norm.dtype() == DType::f64) {
    const autocast::Off whole;
    const Tensor factor = clamp_max(max_norm / (norm + 1e-6), 1.0);
    for (const Tensor& g : grads) g.copy_(g.to(DType::f64) * factor);
    return norm;
  }
  backend_for(norm.device()).clip(views_of(grads), norm.data_ptr<float>(), max_norm);
  for (const Tensor& g : grads) g.bump_version();
  return norm;
}

Tensor grad_norm(const Gradients& params, double norm_type) {
  params.check_unscaled("grad_norm");
  NoGrad off;
  return norm_of("grad_norm", params, gradients_of(params, /*contiguous=*/false, /*raw=*/true), norm_type);
}

void clip_grad_agc_(const Gradients& params, double clip_factor, double eps) {
  check<ValueError>(clip_factor > 0, "clip_grad_agc_", "clip_factor must be > 0, got ", clip_factor);
  check<ValueError>(eps > 0, "clip_grad_agc_", "eps must be > 0, got ", eps);
  params.check_unscaled("clip_grad_agc_");
  NoGrad off;
  for (const Tensor& p : params) {
    const Tensors found = gradients_of({p});
    if (found.empty()) continue;
    const Tensor &g = found[0], w = p.detach();
    const DType wide = g.dtype() == DType::f64 ? DType::f64 : DType::f32;
    const auto unit_norms = [wide](const Tensor& t) {
      const Tensor squares = t.to(wide).square();
      if (t.dim() <= 1) return squares.sum().sqrt();
      Dims inner;
      for (int64_t d = 1; d < t.dim(); ++d) inner.push_back(d);
      return squares.sum(inner, true).sqrt();
    };
    const Tensor max_norm = clamp(unit_norms(w), eps, {}) * clip_factor, norm = unit_norms(g);
    // If the norm is not finite, the comparison is true or NaN remains, so a scaler still sees the overflow.
    const Tensor scaled = g.to(wide) * (max_norm / clamp(norm, kLeastNorm, {}));
    g.copy_(where(norm.gt(max_norm), scaled, g.to(wide)));
  }
}

void clip_grad_value_(const Gradients& params, double clip_value) {
  check<ValueError>(clip_value >= 0, "clip_grad_value_", "clip_value must be >= 0, got ", clip_value);
  params.check_unscaled("clip_grad_value_");
  NoGrad off;
  for (const Tensor& g : gradients_of(params)) g.copy_(clamp(g, -clip_value, clip_value));
}

Tensor parameters_to_vector(const ParameterRange& params) {
  check<ValueError>(!params.empty(), "parameters_to_vector", "needs at least one parameter, got an empty list");
  Tensors parts;
  for (const Tensor& p : params) parts.push_back(p.reshape({-1}));
  return cat(parts);
}

void vector_to_parameters(const Tensor& vector, const ParameterRange& params) {
  int64_t elements = 0;
  for (const Tensor& p : params) elements += p.numel();
  check<ShapeError>(vector.dim() == 1 && vector.numel() == elements, "vector_to_parameters", "the vector must be [", elements,
                    "], as many elements as the parameters have, got ", vector.shape());
  const NoGrad off;
  int64_t offset = 0;
  for (const Tensor& p : params) {
    p.detach().copy_(vector.detach().narrow(0, offset, p.numel()).reshape(p.shape()));
    offset += p.numel();
  }
}

}  // namespace halfstep
