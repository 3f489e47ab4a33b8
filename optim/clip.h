// SPDX-License-Identifier: Apache-2.0
// What torch.nn.utils does with a list of parameters: gradient clipping, and parameters as one vector. The bounds are for true
// gradients, so that clipping and norms throw AmpError for those that are multiplied by a GradScaler's scale.
//
//   clip_grad_norm_(scaler.unscale_(opt), 1.0);    // or, as in PyTorch,
//   scaler.unscale_(opt), clip_grad_norm_(net.parameters(), 1.0);
#pragma once

#include <concepts>

#include "optim/gradients.h"

namespace halfstep {

// Scales all gradients by min(1, max_norm / (norm + 1e-6)), norm = the norm_type-norm over all of them (inf: largest |g|).
// Returns the norm, 0-dim f32 on the device; no host read unless error_if_nonfinite.
Tensor clip_grad_norm_(const Gradients& params, double max_norm, double norm_type = 2, bool error_if_nonfinite = false);
template <std::same_as<bool> Flag>
Tensor clip_grad_norm_(const Gradients& params, double max_norm, Flag) = delete;  // error_if_nonfinite is the fourth
// Clamps every gradient element to [-clip_value, clip_value].
void clip_grad_value_(const Gradients& params, double clip_value);
// Adaptive clipping (Brock et al., "High-Performance Large-Scale Image Recognition Without Normalization", 2021): the gradient of
// each unit is scaled by min(1, clip_factor max(|w|, eps) / |g|), with w the unit's weights and |.| the 2-norm. A unit is w[i] of a
// parameter of two dimensions or more, and the whole of any other. The paper leaves the last layer out: pass the rest. Of gradients
// in 16 bits too, in float32. No host read.
void clip_grad_agc_(const Gradients& params, double clip_factor, double eps = 1e-3);
// The norm_type-norm over all gradients, as clip_grad_norm_ returns it; changes nothing.
Tensor grad_norm(const Gradients& params, double norm_type = 2);

// All elements of the parameters, one parameter after the other: [n], differentiable. Throws ValueError for no parameters.
Tensor parameters_to_vector(const ParameterRange& params);
// Copies the elements of `vector`, [n], into the parameters, in the same order, converted to their dtypes; nothing is recorded.
// Throws ShapeError unless it has as many elements as they have together.
void vector_to_parameters(const Tensor& vector, const ParameterRange& params);

}  // namespace halfstep
