// SPDX-License-Identifier: Apache-2.0
// Packed sequences: sequences of different lengths in one batch, as in torch.nn.utils.rnn.
//
//   PackedSequence packed = pack_padded_sequence(x, {5, 2, 0, 3}, /*batch_first=*/true, /*enforce_sorted=*/false);
//   auto [output, state] = lstm(packed);
//   auto [y, lengths] = pad_packed_sequence(output, /*batch_first=*/true);
//
// Recurrent layers also take lengths directly: `lstm(x, {}, {5, 2, 0, 3})` does all of this. Lengths are on the host and, unlike
// PyTorch's, may be 0.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/tensor/tensor.h"

namespace halfstep {

// All sequences without padding, by step: step 0 of all sequences, the longest first, then step 1...
struct PackedSequence {
  Tensor data;                            // [sum of lengths, ...]
  std::vector<int64_t> batch_sizes;       // rows of each step; {0} if all sequences are empty
  std::vector<int64_t> sorted_indices;    // sequences by falling length: row i of a step belongs to sequence sorted_indices[i]
  std::vector<int64_t> unsorted_indices;  // the inverse: sequence i is row unsorted_indices[i]

  template <class F>
  void each_tensor(F&& f) {
    f(data);
  }
};

// Packs x: [T, B, ...], or [B, T, ...] with batch_first. Throws ValueError unless there are B lengths within [0, T] and, with
// enforce_sorted, for lengths that grow.
PackedSequence pack_padded_sequence(const Tensor& x, const std::vector<int64_t>& lengths, bool batch_first = false,
                                    bool enforce_sorted = true);
PackedSequence pack_sequence(const Tensors& sequences, bool enforce_sorted = true);

struct PaddedSequence {
  Tensor output;  // [T, B, ...], or [B, T, ...] with batch_first
  std::vector<int64_t> lengths;
};
// Pads to the greatest length T, or to total_length, which must not be less.
PaddedSequence pad_packed_sequence(const PackedSequence& packed, bool batch_first = false, double padding_value = 0,
                                   std::optional<int64_t> total_length = {});
// Pads sequences [L, ...], which agree in all sizes except L, into one batch. padding_side: "right" or "left".
Tensor pad_sequence(const Tensors& sequences, bool batch_first = false, double padding_value = 0,
                    const std::string& padding_side = "right");

// Returns the sequences without padding.
Tensors unpad_sequence(const Tensor& padded, const std::vector<int64_t>& lengths, bool batch_first = false);
Tensors unpack_sequence(const PackedSequence& packed);

}  // namespace halfstep
