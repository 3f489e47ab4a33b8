// SPDX-License-Identifier: Apache-2.0
// New tensors that ops.h lacks. None of these has a gradient.
#pragma once

#include "framework/base/generator.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

// Make tensors of x's shape and device.
Tensor zeros_like(const Tensor& x, DType dtype);
Tensor ones_like(const Tensor& x, DType dtype);
Tensor empty_like(const Tensor& x, DType dtype);
Tensor full_like(const Tensor& x, Number value, std::optional<DType> dtype = {});  // x's dtype by default; so do the next two
Tensor rand_like(const Tensor& x, std::optional<DType> dtype = {}, Generator* generator = nullptr);
Tensor randn_like(const Tensor& x, std::optional<DType> dtype = {}, Generator* generator = nullptr);

// Returns [steps] numbers, including both ends exactly.
Tensor linspace(double start, double end, int64_t steps, const TensorOptions& options = {});
Tensor logspace(double start, double end, int64_t steps, double base = 10, const TensorOptions& options = {});  // base^linspace
Tensor eye(int64_t n, int64_t m, const TensorOptions& options = {});                                            // [n, m]

Tensor normal(double mean, double stddev, const Shape& shape, const TensorOptions& options = {}, Generator* generator = nullptr);
// Returns 1 with the probability in p's element, or with probability p everywhere, in x's shape and dtype; else 0.
Tensor bernoulli(const Tensor& p, Generator* generator = nullptr);
Tensor bernoulli(const Tensor& x, double p, Generator* generator = nullptr);
// Draws classes with probability weight / sum. weights: [C] or [N, C], nonnegative -> [samples] or [N, samples] i64.
Tensor multinomial(const Tensor& weights, int64_t samples, bool replacement = false, Generator* generator = nullptr);

// Writes exponential numbers of this rate into x; not recorded.
void exponential_(const Tensor& x, double rate = 1, Generator* generator = nullptr);
// Writes integers from 0 to the largest up to which the dtype has all; not recorded.
void random_(const Tensor& x, Generator* generator = nullptr);
// Draws the factors of dropout for x, 0 or 1 / (1 - p), if the generator is of kind mt19937; else returns undefined: kernels then
// compute them from a position.
Tensor dropout_factors(const Tensor& x, double p, Generator* generator = nullptr);

}  // namespace halfstep
