// SPDX-License-Identifier: Apache-2.0
// Sums, means and maxima over bags of embeddings. A bag is a list of rows of a matrix, given by their indices.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "framework/tensor/tensor.h"

namespace halfstep {

enum class BagMode : uint8_t { sum, mean, max };
// Returns the mode that PyTorch calls `name`. Throws ValueError, which names `where`, if there is none.
BagMode bag_mode(std::string_view where, std::string_view name);

struct EmbeddingBagOptions {
  std::optional<double> max_norm = {};  // first scales used rows down to this norm, in place, outside the graph
  double norm_type = 2;
  bool scale_grad_by_freq = false;  // divides the gradient of a row by its number of uses; not for mode max
  BagMode mode = BagMode::mean;
  Tensor per_sample_weights = {};           // [n] or [B, n] like index: factors of the rows; only for mode sum
  bool include_last_offset = false;         // offsets has one more element, which is n
  std::optional<int64_t> padding_idx = {};  // a row that does not count; negative: from the end
};

// Returns one row for each bag of rows of weight [V, D]: index [B, n] has one bag per row; index [n] has bags that begin at
// `offsets` [B], which begin with 0 and do not fall -> [B, D]. An empty bag gives zeros;
// of equal maxima the first one gets the gradient.
// The host reads the offsets for mode max, and on a CPU always. Throws ShapeError, ValueError and IndexError. Autocast: keep.
Tensor embedding_bag(const Tensor& weight, const Tensor& index, const Tensor& offsets = {},
                     const EmbeddingBagOptions& options = {});

}  // namespace halfstep
