// SPDX-License-Identifier: Apache-2.0
// The data sets of a training loop from a config: samples by index, returned in batches, with descriptions (shapes, classes). A
// C++ program with its own loop needs no class derived from Dataset: samples.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/data/transforms/transforms.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

struct DataForm;  // framework/data/transforms/data_form.h

struct Batch {
  Tensor input;   // f32 [B, ...], or i64 [B, ...]: the numbers of tokens
  Tensor target;  // i64 [B, ...] for classes: one per sample, or one per position of it; f32 [B, ...] for regression
};

// Copies a tensor of a batch, unless nothing else refers to its memory. That of from_blob is the caller's, and is copied.
void own_memory(Tensor& t);

// How numbers of a column, a target or an input, were computed from the values in a file: (value - mean) / std.
struct ColumnScale {
  double mean = 0, std = 1;
  // For targets from several columns, replaces mean and std: the last dimension holds the columns, once or several times in a row.
  std::vector<ColumnScale> each{};
  bool operator==(const ColumnScale&) const = default;
  // Return a number of a single column, or numbers, in the units of the file; a float64 tensor stays one, others become float32.
  double in_units(double scaled) const { return scaled * std + mean; }
  Tensor in_units(const Tensor& scaled) const;
};

// Samples as stored: the first byte of each, and the function that converts a byte to x.
struct ByteRows {
  std::vector<const uint8_t*> rows;
  Affine affine;
  Tensor target;  // for the same samples
};

// How a data set read its files, as text for users.
struct DataNotes {
  std::string summary{};                // one line, may be empty
  std::vector<std::string> warnings{};  // probable mistakes
  std::string ignored{};                // how many labels are ignored; empty: none
  std::string line() const { return summary.empty() || ignored.empty() ? summary + ignored : summary + "; " + ignored; }
};
// The label that CrossEntropyLoss and NLLLoss leave out: the default of their ignore_index.
constexpr int64_t kIgnoredClass = -100;

// Const functions are thread-safe, and a batch is a pure function of the indices and the epoch. A batch may share memory with the
// data set: do not write to it. Those of a DataLoader do not.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;        // samples
  virtual Shape input_shape() const = 0;   // of one sample
  virtual Shape target_shape() const = 0;  // of one sample; [] for one class
  virtual int64_t classes() const = 0;     // 0: regression
  virtual DType input_dtype() const { return DType::f32; }
  virtual int64_t vocabulary() const { return 0; }  // of i64 inputs; all are below it
  // Returns more than 0 if the samples are pieces of this number of streams: sample i is a piece of stream i % streams(), and
  // continues where i - streams() ended. A model that keeps a state reads them in batches of streams() samples, in order.
  virtual int64_t streams() const { return 0; }
  // Returns whether targets are sequences of labels, shorter than the model's steps and padded with -1: for CTCLoss.
  virtual bool label_sequences() const { return false; }
  virtual ColumnScale target_scale() const { return {}; }
  // Returns how to read other files like this data, and what answers mean. The default is that of tensors with numbered classes.
  virtual DataForm form() const;
  // Returns the batch of these samples. Throws IndexError if an index is outside [0, size()).
  virtual Batch batch(std::span<const int64_t> indices) const = 0;
  // Returns the same in an epoch, on which random transforms depend.
  virtual Batch batch(std::span<const int64_t> indices, int64_t /*epoch*/) const { return batch(indices); }
  // Returns the same of samples that a sampler draws several times in an epoch. repeats: how often each was drawn before, on which
  // random transforms depend, too; empty: none was. DataLoader calls this.
  virtual Batch batch(std::span<const int64_t> indices, int64_t epoch, std::span<const int64_t> /*repeats*/) const {
    return batch(indices, epoch);
  }
  // Returns the input and target of one sample.
  std::pair<Tensor, Tensor> get(int64_t i) const;
  std::pair<Tensor, Tensor> operator[](int64_t i) const { return get(i); }
  virtual std::string describe() const = 0;  // one line: kind, samples, shapes
  virtual DataNotes notes() const { return {}; }
  // Returns the class of each sample if it is known without making batches; else empty.
  virtual std::vector<int64_t> labels() const { return {}; }
  // Returns samples stored as bytes on the host, so that the first transforms can read them without a copy. Nothing for other
  // data.
  virtual std::optional<ByteRows> byte_rows(std::span<const int64_t> /*indices*/) const { return {}; }
  // Returns the data set that was given to transformed().
  virtual const Dataset& untransformed() const { return *this; }
  // Returns the length of each sample if lengths differ; else empty.
  virtual std::vector<int64_t> lengths() const { return {}; }
};

enum class Split : uint8_t { train, test };
Split parse_split(std::string_view text);  // "train", "test"; throws ValueError
std::string_view name(Split split);

// Returns the samples `indices` of `base`, in that order: a Subset (subsets.h). Throws IndexError for an index outside it.
std::shared_ptr<Dataset> subset(std::shared_ptr<const Dataset> base, std::vector<int64_t> indices);

// Applies `transforms` to each batch of `base`, first to last. Their random numbers are a function of `seed`, the epoch, the index
// of the sample in `base`, how often it was drawn before in the epoch, and the index in the list. Without a seed, it is drawn from
// the default generator if a transform is random. Neighbours that only move pixels, and a Normalize after them, run in one pass,
// which reads the bytes of a base that has them. Throws ShapeError or DTypeError for a transform that breaks its contract, and
// whatever a transform throws on Device::meta.
using Transforms = std::vector<std::shared_ptr<const Transform>>;
std::shared_ptr<Dataset> transformed(std::shared_ptr<const Dataset> base, Transforms transforms, std::optional<uint64_t> seed = {});
// Returns the shape of a transformed sample; `dtype` is that of the inputs, `classes` that of the data set.
Shape transformed_shape(const Transforms& transforms, const Shape& sample, int64_t classes = 0, DType dtype = DType::f32);

}  // namespace halfstep
