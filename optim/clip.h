// SPDX-License-Identifier: Apache-2.0
// Functions of torch.nn.utils on a list of parameters: gradient clipping, and parameters as one vector. Clipping and norms throw
// AmpError for gradients that are still multiplied by a GradScaler's scale.
//
//   clip_grad_norm_(scaler.unscale_(opt), 1.0);    // or, as in PyTorch,
//   scaler.unscale_(opt), clip_grad_norm_(net.parameters(), 1.0);
#pragma once

#include <concepts>

#include "optim/gradients.h"

namespace halfstep {

// Scales all gradients by min(1, max_norm / (norm + 1e-6)), where norm is the norm_type-norm over all of them (inf: largest |g|).
// Returns norm, 0-dim on the device, f32, or f64 if a gradient is; the host reads nothing unless error_if_nonfinite.
Tensor clip_grad_norm_(const Gradients& params, double max_norm, double norm_type = 2, bool error_if_nonfinite = false);
template <std::same_as<bool> Flag>
Tensor clip_grad_norm_(const Gradients& params, double max_norm, Flag) = delete;  // error_if_nonfinite is the fourth
// Clamps every gradient element to [-clip_value, clip_value].
void clip_grad_value_(const Gradients& params, double clip_value);
// Clips adaptively (Brock et al., "High-Performance Large-Scale Image Recognition Without Normalization", 2021): scales the
// gradient g of each unit by min(1, clip_factor max(|w|, eps) / |g|), where w is the unit's weights and |.| the 2-norm. A unit is
// w[i] of a parameter with two dimensions or more, and a whole parameter otherwise. The paper omits the last layer: pass the
// others. Computes in float32, and float64 gradients in float64. The host reads nothing.
void clip_grad_agc_(const Gradients& params, double clip_factor, double eps = 1e-3);
// Returns the norm that clip_grad_norm_ computes, and changes nothing.
Tensor grad_norm(const Gradients& params, double norm_type = 2);

// Concatenates the elements of the parameters: [n], differentiable. Throws ValueError for no parameters.
Tensor parameters_to_vector(const ParameterRange& params);
// Copies `vector`, [n], into the parameters, in the same order, converted to their dtypes; nothing is recorded. Throws ShapeError
// unless n is their number of elements.
void vector_to_parameters(const Tensor& vector, const ParameterRange& params);

}  // namespace halfstep
