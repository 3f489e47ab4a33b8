// SPDX-License-Identifier: Apache-2.0
#include "torch/nn/packed.h"

#include "layers/sequences/packed_sequence.h"

namespace torch::nn::utils::rnn {
namespace {

Tensor list(const std::vector<int64_t>& v) { return hs::from_vector(v, {int64_t(v.size())}); }
PackedSequence from(const hs::PackedSequence& p, bool with_indices) {
  return PackedSequence(p.data, list(p.batch_sizes), with_indices ? list(p.sorted_indices) : Tensor(),
                        with_indices ? list(p.unsorted_indices) : Tensor());
}

void check_sorted(const std::vector<int64_t>& lengths, bool enforce_sorted) {
  TORCH_CHECK(!enforce_sorted || std::is_sorted(lengths.rbegin(), lengths.rend()),
              "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
              "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if you do not need "
              "ONNX exportability.");
}

}  // namespace

PackedSequence::PackedSequence(Tensor data, Tensor batch_sizes, Tensor sorted_indices, Tensor unsorted_indices)
    : data_(std::move(data)),
      batch_sizes_(std::move(batch_sizes)),
      sorted_(std::move(sorted_indices)),
      unsorted_(unsorted_indices.defined() ? std::move(unsorted_indices) : invert_permutation(sorted_)) {}

Tensor invert_permutation(const Tensor& permutation) { return permutation.defined() ? permutation.argsort() : Tensor(); }
PackedSequence pack_padded_sequence(Tensor input, Tensor lengths, bool batch_first, bool enforce_sorted) {
  TORCH_CHECK(input.numel() > 0, "Cannot pack empty tensors.");
  const std::vector<int64_t> of_each = lengths.h().to_vector<int64_t>();
  check_sorted(of_each, enforce_sorted);
  return from(hs::pack_padded_sequence(input.h(), of_each, batch_first, enforce_sorted), !enforce_sorted);
}
PackedSequence pack_sequence(ArrayRef<Tensor> sequences, bool enforce_sorted) {
  std::vector<int64_t> of_each;
  for (const Tensor& sequence : sequences) of_each.push_back(sequence.size(0));
  check_sorted(of_each, enforce_sorted);
  return from(hs::pack_sequence(::torch::detail::H(sequences), enforce_sorted), !enforce_sorted);
}
std::tuple<Tensor, Tensor> pad_packed_sequence(PackedSequence sequence, bool batch_first, double padding_value,
                                               std::optional<int64_t> total_length) {
  const std::vector<int64_t> sizes = sequence.batch_sizes().h().to_vector<int64_t>();
  TORCH_CHECK(!sizes.empty(), "pad_packed_sequence: the packed sequence is empty");
  const int64_t longest = int64_t(sizes.size()), B = sizes[0], T = total_length.value_or(longest);
  TORCH_CHECK(T >= longest,
              "Expected total_length to be at least the length of the longest sequence in input, but got total_length=", T,
              " and max sequence length being ", longest);
  std::vector<int64_t> lengths(size_t(B), 0), gap(sequence.data().sizes().vec());
  std::vector<Tensor> steps;
  int64_t at = 0;
  for (int64_t t = 0; t < T; ++t) {
    const int64_t n = t < longest ? sizes[size_t(t)] : 0;
    std::vector<Tensor> rows;
    if (n > 0) rows.push_back(sequence.data().slice(0, at, at + n));
    gap[0] = B - n;
    if (n < B) rows.push_back(torch::full(gap, padding_value, sequence.data().options()));
    steps.push_back(torch::cat(rows, 0));
    for (int64_t i = 0; i < n; ++i) ++lengths[size_t(i)];
    at += n;
  }
  Tensor out = torch::stack(steps, batch_first ? 1 : 0), of_each = list(lengths);
  if (sequence.unsorted_indices().defined()) {
    out = out.index_select(batch_first ? 0 : 1, sequence.unsorted_indices());
    of_each = of_each.index_select(0, sequence.unsorted_indices());
  }
  return {out, of_each};
}
Tensor pad_sequence(ArrayRef<Tensor> sequences, bool batch_first, double padding_value) {
  return hs::pad_sequence(::torch::detail::H(sequences), batch_first, padding_value);
}

}  // namespace torch::nn::utils::rnn
