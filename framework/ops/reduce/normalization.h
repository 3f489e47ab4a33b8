// SPDX-License-Identifier: Apache-2.0
// Normalisations: y = (x - mean) / sqrt(var + eps) * weight + bias, over different parts of x. Statistics and sums are float32
// (float64 for f64) and the result is rounded once. Weights and biases have x's dtype, or float32 beside a 16-bit x.
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

// Normalises over the last dimensions, whose sizes are normalized_shape; weight and bias have that shape. Autocast: f32.
// rounded: in a region, writes y in these 16 bits, for a reader that would cast it to them; y's gradient stays float32.
Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = Tensor(), const Tensor& bias = Tensor(),
                  double eps = 1e-5, std::optional<DType> rounded = {});
// Returns {layer_norm, and the mean and 1 / sqrt(var + eps) of each row}; these have no gradients, size 1 in the normalised
// dimensions, and y's dtype or weight's, whichever is wider.
Tensors native_layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, const Tensor& bias, double eps);
// Returns x / sqrt(mean(x^2) + eps) * weight. eps by default: the epsilon of float32 (float64 for f64). Autocast: f32.
Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = Tensor(), std::optional<double> eps = {},
                std::optional<DType> rounded = {});
// Return the norm of x + branch, two tensors of one shape, and the sum, in one pass forward and one backward: the bits are those of
// add and the norm. The sum has the dtype that add gives it; of 16-bit tensors in a region it is float32. Autocast: f32.
Tensors add_layer_norm(const Tensor& x, const Tensor& branch, const Shape& normalized_shape, const Tensor& weight = Tensor(),
                       const Tensor& bias = Tensor(), double eps = 1e-5, std::optional<DType> rounded = {});
Tensors add_rms_norm(const Tensor& x, const Tensor& branch, const Shape& normalized_shape, const Tensor& weight = Tensor(),
                     std::optional<double> eps = {}, std::optional<DType> rounded = {});

// Normalises over the channels of each of num_groups groups and all positions. Here and in the next two, x: [N, C, ...]; weight and
// bias: [C]. Autocast: f32.
Tensor group_norm(const Tensor& x, int64_t num_groups, const Tensor& weight = Tensor(), const Tensor& bias = Tensor(),
                  double eps = 1e-5);
// Normalises each channel over the batch and all positions. Training uses the batch's statistics and updates the running ones, if
// given, in place: running = (1 - momentum) running + momentum new, with the unbiased variance; otherwise uses the running ones.
// relu: applies ReLU in the same pass. batches: [] i64, the number of batches seen, which training increases by one. Throws
// ValueError for an eps of 0 in training.
Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight = Tensor(),
                  const Tensor& bias = Tensor(), bool training = false, double momentum = 0.1, double eps = 1e-5, bool relu = false,
                  const Tensor& batches = Tensor());
// Returns add_relu(batch_norm(x), residual), with the bits of the two, in one pass forward. A residual of another dtype, shape or
// format than x's is added by add_relu.
Tensor batch_norm_add_relu(const Tensor& x, const Tensor& residual, const Tensor& running_mean, const Tensor& running_var,
                           const Tensor& weight = Tensor(), const Tensor& bias = Tensor(), bool training = false,
                           double momentum = 0.1, double eps = 1e-5, const Tensor& batches = Tensor());
// Normalises each channel of each sample over all positions. Running statistics as in batch_norm, averaged over the batch. With an
// eps of 0, a constant channel gives the bias, with gradient 0.
Tensor instance_norm(const Tensor& x, const Tensor& running_mean = Tensor(), const Tensor& running_var = Tensor(),
                     const Tensor& weight = Tensor(), const Tensor& bias = Tensor(), bool use_input_stats = true,
                     double momentum = 0.1, double eps = 1e-5);
// Returns x / (k + alpha * mean of x^2 over `size` neighbouring channels)^beta; channels beyond the ends count as 0. x: [N, C,
// L...].
Tensor local_response_norm(const Tensor& x, int64_t size, double alpha = 1e-4, double beta = 0.75, double k = 1);

}  // namespace halfstep
