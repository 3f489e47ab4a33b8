// SPDX-License-Identifier: Apache-2.0
// A data set held in memory, and the base of most others.
#pragma once

#include <optional>
#include <string>

#include "framework/data/dataset.h"
#include "framework/data/transforms.h"

namespace halfstep {

// input: [N, ...] f32, u8 that `affine` turns into f32 as batches are made, or i64 tokens. target: i64 or u8 [N, ...], the class of
// each sample or of each position in it, when classes > 0; else f32 [N, ...]. Both on one device. Batches live there too; where the
// indices are consecutive and nothing is converted they are views of the data, without a copy.
class TensorDataset : public Dataset {
 public:
  // Throws ShapeError, DTypeError or DeviceError for tensors that do not fit, DataError for a class outside [0, classes)
  // and a negative token (checked on the host only), ValueError for bytes and tokens on a GPU.
  TensorDataset(Tensor input, Tensor target, int64_t classes = 0, Affine affine = {}, std::string label = "Tensors");

  int64_t size() const override { return input_.size(0); }
  Shape input_shape() const override;
  Shape target_shape() const override;
  int64_t classes() const override { return classes_; }
  DType input_dtype() const override { return input_.dtype() == DType::i64 ? DType::i64 : DType::f32; }
  int64_t vocabulary() const override { return vocabulary_; }  // one more than the largest token, where no more are known
  Batch batch(std::span<const int64_t> indices) const override;
  std::optional<ByteRows> byte_rows(std::span<const int64_t> indices) const override;
  std::vector<int64_t> labels() const override;  // empty also on a GPU
  std::string describe() const override;

  const Tensor& input() const { return input_; }  // as stored
  const Tensor& target() const { return target_; }

 protected:
  // More tokens than were seen. Throws DataError for fewer.
  void set_vocabulary(int64_t tokens);

 private:
  void check_indices(std::span<const int64_t> indices) const;
  Tensor target_of(std::span<const int64_t> indices) const;

  Tensor input_, target_;
  int64_t classes_, vocabulary_ = 0;
  Affine affine_;
  std::string label_;
};

}  // namespace halfstep
