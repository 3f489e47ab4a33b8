// SPDX-License-Identifier: Apache-2.0
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
// Adaptive clipping (Brock et al., "High-Performance Large-Scale Image Recognition Without Normalization", 2021): the gradient of
// each unit is scaled by min(1, clip_factor max(|w|, eps) / |g|), with w the unit's weights and |.| the 2-norm. A unit is w[i] of a
// parameter of two dimensions or more, and the whole of any other. The paper leaves the last layer out: pass the rest. Of gradients
// in 16 bits too, in float32. No host read.
void clip_grad_agc_(const std::vector<Tensor>& params, double clip_factor, double eps = 1e-3);
// The norm_type-norm over all gradients, as clip_grad_norm_ returns it; changes nothing.
Tensor grad_norm(const std::vector<Tensor>& params, double norm_type = 2);

}  // namespace halfstep
