// SPDX-License-Identifier: Apache-2.0
// Connectionist temporal classification (Graves et al., "Connectionist Temporal Classification", 2006). Autocast: f32.
#pragma once

#include "framework/backend/backend.h"
#include "framework/ops/core/loss_reduction.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

struct CtcOptions {
  int64_t blank = 0;
  LossReduction reduction = Reduction::mean;  // mean: first divides each loss by its target's length (at least 1)
  bool zero_infinity = false;
  static const OptionList<CtcOptions>& list();
};
// Returns -ln of the probability of all alignments of the target. log_probs: [T, N, C] or [T, C], logarithms of probabilities.
// targets: i64 [N, S], or the concatenated targets without padding; input_lengths, target_lengths: integers [N] (or [] for one),
// read on the host. The gradient is that with respect to log_probs; PyTorch's is that of the log_softmax before them. After
// log_softmax both agree. Throws ShapeError, ValueError, DTypeError and IndexError.
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths, const Tensor& target_lengths,
                const CtcOptions& options = {});

}  // namespace halfstep
