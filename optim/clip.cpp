#include "optim/clip.h"

#include <cmath>

#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"
#include "optim/gradients.h"

namespace halfstep {

Tensor clip_grad_norm_(const std::vector<Tensor>& params, double max_norm, double norm_type, bool error_if_nonfinite) {
  check<ValueError>(max_norm >= 0, "clip_grad_norm_", "max_norm must be >= 0, got ", max_norm);
  check<ValueError>(norm_type > 0, "clip_grad_norm_", "norm_type must be > 0 or infinity, got ", norm_type);
  NoGrad off;
  const Tensors grads = gradients_of(params);
  if (grads.empty()) return zeros({}, {.device = params.empty() ? Device::cpu : params.front().device()});
  const Device device = grads.front().device();
  for (const Tensor& g : grads) {
    check<DeviceError>(g.device() == device, "clip_grad_norm_", "gradients must be on one device, got ", device, " and ",
                       g.device());
  }
  Tensor norm = zeros({}, {.device = device});
  const std::vector<TensorView> views = views_of(grads);
  Backend& backend = backend_for(device);
  backend.norm(views, norm_type, norm.data<float>());
  if (error_if_nonfinite) {
    const double value = norm.item<double>();
    check<ValueError>(std::isfinite(value), "clip_grad_norm_", "the total norm of order ", norm_type, " is ", value,
                      ", so it cannot be clipped",
                      Help{"set error_if_nonfinite = false to scale by it anyway; a GradScaler skips such steps"});
  }
  backend.clip(views, norm.data<float>(), max_norm);
  for (const Tensor& g : grads) g.bump_version();
  return norm;
}

void clip_grad_value_(const std::vector<Tensor>& params, double clip_value) {
  check<ValueError>(clip_value >= 0, "clip_grad_value_", "clip_value must be >= 0, got ", clip_value);
  NoGrad off;
  for (const Tensor& g : gradients_of(params)) g.copy_(clamp(g, -clip_value, clip_value));
}

}  // namespace halfstep
