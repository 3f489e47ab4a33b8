// Gradient clipping. Under a GradScaler call scaler.unscale_(optimizer) first: the bound is for true gradients.
#pragma once

#include <limits>
#include <vector>

#include "framework/tensor/tensor.h"

namespace halfstep {

// Scales all gradients by min(1, max_norm / (norm + 1e-6)), norm = the norm_type-norm over all of them (inf: largest |g|).
// Returns the norm, 0-dim f32 on the device; no host read unless error_if_nonfinite.
Tensor clip_grad_norm_(const std::vector<Tensor>& params, double max_norm, double norm_type = 2, bool error_if_nonfinite = false);
// Clamps every gradient element to [-clip_value, clip_value].
void clip_grad_value_(const std::vector<Tensor>& params, double clip_value);

}  // namespace halfstep
