// SPDX-License-Identifier: Apache-2.0
// Data sets in memory; the one of two tensors is the base of most others.
#pragma once

#include <array>
#include <concepts>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "framework/data/sets/dataset.h"
#include "framework/data/transforms/transforms.h"

namespace halfstep {
namespace samples {

// Checks the tensors of TensorDataset<n>, which documents the errors, and makes them contiguous.
void check_rows(std::span<Tensor> tensors);
// Return a row, a view, or rows: a view if the indices are consecutive, else a copy. Throw IndexError.
Tensor row(const Tensor& t, int64_t i);
Tensor rows(const Tensor& t, std::span<const int64_t> indices);

}  // namespace samples

// Any number of tensors with one row per sample: TensorDataset(a, b, label). Samples and batches are a std::tuple of tensors, with
// the dtypes and devices of those given. get_batch of consecutive samples gives views; the batches of a DataLoader have their own
// memory. The default, two tensors, is a Dataset of inputs and targets: see below.
template <size_t n = 2>
class TensorDataset {
  template <size_t>
  using TensorAt = Tensor;
  template <size_t... k>
  static std::tuple<TensorAt<k>...> tuple_of(std::index_sequence<k...>);

 public:
  using Sample = decltype(tuple_of(std::make_index_sequence<n>()));

  // Throws ValueError for an undefined tensor, and ShapeError for tensors without rows or with different numbers of them.
  template <std::derived_from<Tensor>... T>
  requires(sizeof...(T) == n) explicit TensorDataset(T... tensors) : tensors_{std::move(tensors)...} {
    samples::check_rows(tensors_);
  }
  int64_t size() const { return tensors_[0].size(0); }
  // Throw IndexError for an index outside [0, size()).
  Sample get(int64_t i) const {
    return each([&](const Tensor& t) { return samples::row(t, i); });
  }
  Sample operator[](int64_t i) const { return get(i); }
  Sample get_batch(std::span<const int64_t> indices) const {
    return each([&](const Tensor& t) { return samples::rows(t, indices); });
  }
  const std::array<Tensor, n>& tensors() const { return tensors_; }

 private:
  template <class F>
  Sample each(const F& f) const {
    return std::apply([&](const auto&... t) { return Sample(f(t)...); }, tensors_);
  }

  std::array<Tensor, n> tensors_;
};

// Returns one more than the largest of i64 labels. `ignored` counts where it continues the others: of 0, 1, 2, 255 it makes 3
// classes, of 0, 1, 2, 3 four.
int64_t classes_in(const Tensor& labels, std::optional<int64_t> ignored);

// input: [N, ...] f32, u8 that `affine` converts to f32 as batches are made, or i64 tokens. target: i64 or u8 [N, ...], the class
// of each sample or of each position in it, if classes > 0; else f32 [N, ...]. Both on one device, as are batches; batch() of
// consecutive indices without conversion gives views, without a copy.
//
// Without `classes`, an i64 target without negative numbers but kIgnoredClass has classes, as classes_in() counts them.
// `ignored`: the label that losses leave out, their ignore_index; notes() says how many targets have it.
template <>
class TensorDataset<2> : public Dataset {
 public:
  TensorDataset(Tensor input, Tensor target);
  // Throws ShapeError, DTypeError or DeviceError for unsuitable tensors, DataError for a class that is neither in [0, classes) nor
  // `ignored`, and a negative token (checked on the host only), ValueError for bytes and tokens on a GPU.
  TensorDataset(Tensor input, Tensor target, int64_t classes, Affine affine = {}, std::string label = "Tensors",
                std::optional<int64_t> ignored = kIgnoredClass);

  int64_t size() const override { return input_.size(0); }
  Shape input_shape() const override;
  Shape target_shape() const override;
  int64_t classes() const override { return classes_; }
  DType input_dtype() const override { return input_.dtype() == DType::i64 ? DType::i64 : DType::f32; }
  int64_t vocabulary() const override { return vocabulary_; }  // one more than the largest token, unless set_vocabulary() set more
  Batch batch(std::span<const int64_t> indices) const override;
  std::optional<ByteRows> byte_rows(std::span<const int64_t> indices) const override;
  std::vector<int64_t> labels() const override;  // empty also on a GPU
  DataNotes notes() const override { return {.ignored = ignored_text_}; }
  std::string describe() const override;

  const Tensor& input() const { return input_; }  // as stored
  const Tensor& target() const { return target_; }

 protected:
  // Sets a larger vocabulary than was seen. Throws DataError for a smaller one.
  void set_vocabulary(int64_t tokens);

 private:
  void check_indices(std::span<const int64_t> indices) const;
  Tensor target_of(std::span<const int64_t> indices) const;

  Tensor input_, target_;
  int64_t classes_, vocabulary_ = 0;
  Affine affine_;
  std::string label_, ignored_text_;
};

template <std::derived_from<Tensor>... T>
TensorDataset(Tensor, T...) -> TensorDataset<1 + sizeof...(T)>;
TensorDataset(Tensor, Tensor, int64_t, Affine = {}, std::string = {}, std::optional<int64_t> = {})->TensorDataset<2>;

}  // namespace halfstep
