// SPDX-License-Identifier: Apache-2.0
// Packing is one gather of rows, and padding one write of rows, for any number of sequences and steps. unpad_sequence returns
// views.
#include "layers/sequences/packed_sequence.h"

#include <algorithm>
#include <numeric>

#include "framework/ops/ops.h"

namespace halfstep {
namespace {

using Lengths = std::vector<int64_t>;

// Returns the sequences sorted by falling length and the number of rows of each step; data is still undefined.
PackedSequence order_of(std::string_view where, const Lengths& lengths, bool enforce_sorted) {
  PackedSequence out;
  const size_t count = lengths.size();
  for (size_t i = 1; i < count && enforce_sorted; ++i)
    check<ValueError>(lengths[i] <= lengths[i - 1], where, "lengths must not grow with enforce_sorted, got ", lengths[i], " after ",
                      lengths[i - 1], Help{"pass enforce_sorted = false"});
  out.sorted_indices.resize(count);
  std::iota(out.sorted_indices.begin(), out.sorted_indices.end(), 0);
  std::stable_sort(out.sorted_indices.begin(), out.sorted_indices.end(),
                   [&](int64_t a, int64_t b) { return lengths[size_t(a)] > lengths[size_t(b)]; });
  out.unsorted_indices.resize(count);
  for (size_t i = 0; i < count; ++i) out.unsorted_indices[size_t(out.sorted_indices[i])] = int64_t(i);
  const int64_t steps = count == 0 ? 0 : lengths[size_t(out.sorted_indices[0])];
  out.batch_sizes.assign(size_t(std::max<int64_t>(steps, 1)), 0);
  for (int64_t n : lengths) {
    for (int64_t t = 0; t < n; ++t) ++out.batch_sizes[size_t(t)];
  }
  return out;
}

// Returns place(sequence, step) for each packed row.
template <class Place>
Tensor rows_of(const PackedSequence& packed, Device device, const Place& place) {
  Lengths rows;
  for (size_t t = 0; t < packed.batch_sizes.size(); ++t) {
    for (int64_t i = 0; i < packed.batch_sizes[t]; ++i) rows.push_back(place(packed.sorted_indices[size_t(i)], int64_t(t)));
  }
  return from_vector(rows, {int64_t(rows.size())}, device);
}

// Returns x with the sizes `front` in place of those of its first `from` dimensions.
Tensor with_front(const Tensor& x, int from, const Shape& front) {
  Shape shape = front;
  for (int d = from; d < x.dim(); ++d) shape.push_back(x.size(d));
  return x.reshape(shape);
}

// Returns [steps, count, ...], or [count, steps, ...] with batch_first: `values` at `rows`, and padding elsewhere.
Tensor padded(const Tensor& values, const Tensor& rows, int64_t steps, int64_t count, bool batch_first, double padding) {
  Shape shape{steps * count};
  for (int d = 1; d < values.dim(); ++d) shape.push_back(values.size(d));
  const Tensor room = full(shape, padding, {.dtype = values.dtype(), .device = values.device()});
  return with_front(index_copy(room, 0, rows, values), 1, batch_first ? Shape{count, steps} : Shape{steps, count});
}

}  // namespace

PackedSequence pack_padded_sequence(const Tensor& x, const Lengths& lengths, bool batch_first, bool enforce_sorted) {
  const char* const where = "pack_padded_sequence";
  check<ShapeError>(x.dim() >= 2, where, "needs a batch of sequences, [T, B, ...] or [B, T, ...], got ", x.shape());
  const int64_t steps = x.size(batch_first ? 1 : 0), count = x.size(batch_first ? 0 : 1);
  check<ValueError>(int64_t(lengths.size()) == count, where, "needs a length for each sequence of the batch ", x.shape(), ", ",
                    count, ", got ", lengths.size());
  for (int64_t n : lengths)
    check<ValueError>(n >= 0 && n <= steps, where, "lengths must be within the steps of ", x.shape(), ", [0, ", steps, "], got ",
                      n);
  PackedSequence out = order_of(where, lengths, enforce_sorted);
  const Tensor rows = rows_of(out, x.device(), [&](int64_t i, int64_t t) { return batch_first ? i * steps + t : t * count + i; });
  out.data = index_select(with_front(x, 2, {steps * count}), 0, rows);
  return out;
}

PackedSequence pack_sequence(const Tensors& sequences, bool enforce_sorted) {
  Lengths lengths;
  for (const Tensor& s : sequences) lengths.push_back(s.dim() == 0 ? 0 : s.size(0));
  return pack_padded_sequence(pad_sequence(sequences), lengths, false, enforce_sorted);
}

PaddedSequence pad_packed_sequence(const PackedSequence& packed, bool batch_first, double padding_value,
                                   std::optional<int64_t> total_length) {
  const char* const where = "pad_packed_sequence";
  const int64_t count = int64_t(packed.sorted_indices.size());
  PaddedSequence out;
  out.lengths.assign(size_t(count), 0);
  int64_t total = 0;
  for (int64_t n : packed.batch_sizes) {
    check<ValueError>(n >= 0 && n <= count, where, "batch_sizes must be within [0, ", count, "], the sequences, got ", n);
    for (int64_t i = 0; i < n; ++i) ++out.lengths[size_t(packed.sorted_indices[size_t(i)])];
    total += n;
  }
  check<ShapeError>(packed.data.dim() >= 1 && packed.data.size(0) == total, where, "batch_sizes must add up to the rows of data ",
                    packed.data.shape(), ", got ", total);
  const int64_t longest = count == 0 ? 0 : *std::max_element(out.lengths.begin(), out.lengths.end());
  const int64_t steps = total_length.value_or(longest);
  check<ValueError>(steps >= longest, where, "total_length must be >= the longest sequence, ", longest, ", got ", steps);
  const Tensor rows =
      rows_of(packed, packed.data.device(), [&](int64_t i, int64_t t) { return batch_first ? i * steps + t : t * count + i; });
  out.output = padded(packed.data, rows, steps, count, batch_first, padding_value);
  return out;
}

Tensor pad_sequence(const Tensors& sequences, bool batch_first, double padding_value, const std::string& padding_side) {
  const char* const where = "pad_sequence";
  check<ValueError>(!sequences.empty(), where, "needs at least one sequence");
  check<ValueError>(padding_side == "right" || padding_side == "left", where, "padding_side must be \"right\" or \"left\", got \"",
                    padding_side, '"');
  const auto beyond = [](const Tensor& s) { return Shape(std::span<const int64_t>(s.shape().begin() + 1, s.shape().end())); };
  int64_t steps = 0;
  for (const Tensor& s : sequences) {
    check<ShapeError>(s.dim() >= 1 && sequences[0].dim() >= 1 && beyond(s) == beyond(sequences[0]), where,
                      "sequences must agree in all but their first dimension, got ", sequences[0].shape(), " and ", s.shape());
    steps = std::max(steps, s.size(0));
  }
  const int64_t count = int64_t(sequences.size());
  Lengths rows;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t n = sequences[size_t(i)].size(0), first = padding_side == "left" ? steps - n : 0;
    for (int64_t t = first; t < first + n; ++t) rows.push_back(batch_first ? i * steps + t : t * count + i);
  }
  const Tensor values = cat(sequences);
  return padded(values, from_vector(rows, {int64_t(rows.size())}, values.device()), steps, count, batch_first, padding_value);
}

Tensors unpad_sequence(const Tensor& x, const Lengths& lengths, bool batch_first) {
  const char* const where = "unpad_sequence";
  check<ShapeError>(x.dim() >= 2, where, "needs a batch of sequences, [T, B, ...] or [B, T, ...], got ", x.shape());
  const int batch = batch_first ? 0 : 1;
  check<ValueError>(int64_t(lengths.size()) == x.size(batch), where, "needs a length for each sequence of the batch ", x.shape(),
                    ", ", x.size(batch), ", got ", lengths.size());
  Tensors out;
  for (size_t i = 0; i < lengths.size(); ++i) {
    check<ValueError>(lengths[i] >= 0 && lengths[i] <= x.size(1 - batch), where, "lengths must be within the steps of ", x.shape(),
                      ", [0, ", x.size(1 - batch), "], got ", lengths[i]);
    out.push_back(x.select(batch, int64_t(i)).narrow(0, 0, lengths[i]));
  }
  return out;
}

Tensors unpack_sequence(const PackedSequence& packed) {
  const auto [output, lengths] = pad_packed_sequence(packed, true);
  return unpad_sequence(output, lengths, true);
}

}  // namespace halfstep
