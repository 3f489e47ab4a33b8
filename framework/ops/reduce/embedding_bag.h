// SPDX-License-Identifier: Apache-2.0
// Sums, means and largest elements of rows of a matrix.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "framework/tensor/tensor.h"

namespace halfstep {

enum class BagMode : uint8_t { sum, mean, max };
BagMode bag_mode(std::string_view where, std::string_view name);  // by PyTorch's name, else ValueError of `where`

struct EmbeddingBagOptions {
  std::optional<double> max_norm = {};  // rows that are used are first scaled down to this norm, in place, outside the graph
  double norm_type = 2;
  bool scale_grad_by_freq = false;  // the gradient of a row is divided by how often it was chosen; not of mode max
  BagMode mode = BagMode::mean;
  Tensor per_sample_weights = {};           // [n] or [B, n], as index: factors of the rows; only for mode sum
  bool include_last_offset = false;         // offsets has one more, which is n
  std::optional<int64_t> padding_idx = {};  // a row that counts as not there; negative: from the end
};

// One row for each bag of rows of weight [V, D]: index [B, n] has a bag a row; index [n] has bags that begin at `offsets` [B],
// which start with 0 and grow -> [B, D]. An empty bag gives zeros; the first of equal largest elements gets the gradient. The host
// reads the offsets of mode max, and on a CPU all of them. Throws ShapeError, ValueError and IndexError. Autocast: keep.
Tensor embedding_bag(const Tensor& weight, const Tensor& index, const Tensor& offsets = {},
                     const EmbeddingBagOptions& options = {});

}  // namespace halfstep
