// SPDX-License-Identifier: Apache-2.0
// Sequences of different lengths in one batch, as torch.nn.utils.rnn has them.
//
//   PackedSequence packed = pack_padded_sequence(x, {5, 2, 0, 3}, /*batch_first=*/true, /*enforce_sorted=*/false);
//   auto [output, state] = lstm(packed);
//   auto [y, lengths] = pad_packed_sequence(output, /*batch_first=*/true);
//
// A recurrent layer takes the lengths themselves, too: `lstm(x, {}, {5, 2, 0, 3})` does all of this. Lengths are numbers of the
// host and, unlike PyTorch's, may be 0.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/tensor/tensor.h"

namespace halfstep {

// The steps of all sequences without padding: first step 0 of all sequences that have one, the longest first, then step 1...
struct PackedSequence {
  Tensor data;                            // [sum of lengths, ...]
  std::vector<int64_t> batch_sizes;       // of each step; {0} where no sequence has one
  std::vector<int64_t> sorted_indices;    // the sequences from long to short: row i of a step is of sequence sorted_indices[i]
  std::vector<int64_t> unsorted_indices;  // and back: sequence i is row unsorted_indices[i]

  template <class F>
  void each_tensor(F&& f) {
    f(data);
  }
};

// x: [T, B, ...], or [B, T, ...] with batch_first. Throws ValueError for lengths that are not B numbers within [0, T] and, with
// enforce_sorted, for lengths that grow.
PackedSequence pack_padded_sequence(const Tensor& x, const std::vector<int64_t>& lengths, bool batch_first = false,
                                    bool enforce_sorted = true);
PackedSequence pack_sequence(const Tensors& sequences, bool enforce_sorted = true);

struct PaddedSequence {
  Tensor output;  // [T, B, ...], or [B, T, ...] with batch_first
  std::vector<int64_t> lengths;
};
// T is the greatest length, or total_length, which must not be less.
PaddedSequence pad_packed_sequence(const PackedSequence& packed, bool batch_first = false, double padding_value = 0,
                                   std::optional<int64_t> total_length = {});
// Sequences [L, ...], which agree in all but L, as one batch. padding_side: "right" or "left".
Tensor pad_sequence(const Tensors& sequences, bool batch_first = false, double padding_value = 0,
                    const std::string& padding_side = "right");

// The sequences again, without padding.
Tensors unpad_sequence(const Tensor& padded, const std::vector<int64_t>& lengths, bool batch_first = false);
Tensors unpack_sequence(const PackedSequence& packed);

}  // namespace halfstep
