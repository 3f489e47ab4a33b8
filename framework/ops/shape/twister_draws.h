// SPDX-License-Identifier: Apache-2.0
// Draws of a generator of kind mt19937: the numbers that PyTorch's CPU kernels draw, in their order. They are drawn on the host,
// also for the part of a batch (framework/base/draws.h), which takes its rows of the whole batch's numbers.
#pragma once

#include "framework/base/generator.h"
#include "framework/tensor/tensor.h"

namespace halfstep::twister {

// Write into x, in the order of its memory, as PyTorch does.
void uniform(Generator& generator, const Tensor& x, double lo, double hi);
void normal(Generator& generator, const Tensor& x, double mean, double stddev);
void integers(Generator& generator, const Tensor& x, int64_t lo, int64_t hi);
void bernoulli(Generator& generator, const Tensor& x, double p);
void exponential(Generator& generator, const Tensor& x, double rate);
void any_integers(Generator& generator,
                  const Tensor& x);  // PyTorch's x.random_(): from 0 to the largest exact integer of the dtype

// Returns 1 with the probability in p's element, else 0.
Tensor bernoulli(Generator& generator, const Tensor& p);
// Draws with replacement from weights [N, C], which are checked, -> [N, samples] int64.
Tensor multinomial(Generator& generator, const Tensor& weights, int64_t samples);

// Returns how many integers, from 0 on, the dtype has without a gap; 2^63 for int64.
uint64_t count_of_integers(DType dtype);

// Returns the factors of dropout for x: 0 with probability p, else 1 / (1 - p), in x's dtype and order of memory.
Tensor dropout_factors(Generator& generator, const Tensor& x, double p);

}  // namespace halfstep::twister
