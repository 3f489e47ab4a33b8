// SPDX-License-Identifier: Apache-2.0
// torch::nn::utils::rnn: sequences of different lengths, packed and padded.
#pragma once

#include "torch/tensor/network.h"

namespace torch::nn::utils::rnn {

class PackedSequence {
 public:
  PackedSequence() = default;
  explicit PackedSequence(Tensor data, Tensor batch_sizes, Tensor sorted_indices = {}, Tensor unsorted_indices = {});
  const Tensor& data() const { return data_; }
  const Tensor& batch_sizes() const { return batch_sizes_; }
  const Tensor& sorted_indices() const { return sorted_; }
  const Tensor& unsorted_indices() const { return unsorted_; }
  PackedSequence to(TensorOptions o) const { return PackedSequence(data_.to(o), batch_sizes_, sorted_, unsorted_); }
  PackedSequence cpu() const { return to(kCPU); }
  PackedSequence cuda() const { return to(kCUDA); }
  bool is_cuda() const { return data_.is_cuda(); }

 private:
  Tensor data_, batch_sizes_, sorted_, unsorted_;
};

Tensor invert_permutation(const Tensor& permutation);
PackedSequence pack_padded_sequence(Tensor input, Tensor lengths, bool batch_first = false, bool enforce_sorted = true);
PackedSequence pack_sequence(ArrayRef<Tensor> sequences, bool enforce_sorted = true);
std::tuple<Tensor, Tensor> pad_packed_sequence(PackedSequence sequence, bool batch_first = false, double padding_value = 0,
                                               std::optional<int64_t> total_length = {});
Tensor pad_sequence(ArrayRef<Tensor> sequences, bool batch_first = false, double padding_value = 0);

}  // namespace torch::nn::utils::rnn
