// SPDX-License-Identifier: Apache-2.0
// Activations with a parameter; those without are rows of elementwise.def. Names, arguments and defaults are PyTorch's; floating
// tensors of any shape unless noted.
#pragma once

#include "framework/base/generator.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

// Returns softmax((logits + g) / tau), g from the Gumbel distribution: a differentiable sample of the classes. hard: 1 at the
// largest and 0 elsewhere, with the gradient of the soft sample.
Tensor gumbel_softmax(const Tensor& logits, double tau = 1, bool hard = false, int64_t dim = -1, Generator* generator = nullptr);
// Returns derivatives of lgamma: digamma is the first; polygamma(n, x), n >= 1, is the (n + 1)-th.
Tensor polygamma(int64_t n, const Tensor& x);

// Returns relu(a + b) in one pass, forward and backward: for the sum at the end of a residual block. Broadcasts and promotes like
// add.
Tensor add_relu(const Tensor& a, const Tensor& b);

Tensor softplus(const Tensor& x, double beta = 1, double threshold = 20);  // ln(1 + e^(beta x)) / beta; x where beta x > threshold
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);              // x, or negative_slope x for x <= 0
Tensor elu(const Tensor& x, double alpha = 1);                                 // x, or alpha (e^x - 1) for x <= 0
Tensor celu(const Tensor& x, double alpha = 1);                                // x, or alpha (e^(x / alpha) - 1) for x <= 0
Tensor hardtanh(const Tensor& x, double min_val = -1, double max_val = 1);     // integers stay integers
Tensor hardshrink(const Tensor& x, double lambd = 0.5);                        // x, 0 for |x| <= lambd
Tensor softshrink(const Tensor& x, double lambd = 0.5);  // x - lambd, x + lambd, or 0 between -lambd and lambd
Tensor threshold(const Tensor& x, double threshold, double value);             // x where x > threshold, else value; also integers
Tensor tanhshrink(const Tensor& x);                                            // x - tanh x
// Returns x, or weight x for x <= 0. weight: one value ([] or [1]), or [C] with x [N, C, ...]; of x's dtype.
Tensor prelu(const Tensor& x, const Tensor& weight);
// Returns x, or s x for x <= 0; in training s is drawn for each element from [lower, upper], else it is their mean.
Tensor rrelu(const Tensor& x, double lower = 1.0 / 8, double upper = 1.0 / 3, bool training = false,
             Generator* generator = nullptr);
Tensor glu(const Tensor& x, int64_t dim = -1);                                 // a sigmoid(b), a and b the halves of x along dim
// Returns ln(x / (1 - x)); with eps, first clamps x to [eps, 1 - eps].
Tensor logit(const Tensor& x, std::optional<double> eps = {});
Tensor softmin(const Tensor& x, int64_t dim, std::optional<DType> dtype = {});  // softmax(-x)

}  // namespace halfstep
