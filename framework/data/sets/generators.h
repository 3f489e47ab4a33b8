// SPDX-License-Identifier: Apache-2.0
// Small problems drawn by formulas, without files. Sample i is a pure function of (seed, split, i).
#pragma once

#include <cstdint>
#include <memory>

#include "framework/base/options.h"
#include "framework/data/sets/tensor_dataset.h"

namespace halfstep {

// Points [2] on `arms` arms of a spiral around 0, one class per arm, with noise of this deviation. Sample i is on arm i % arms.
struct SpiralsOptions {
  Split split = Split::train;
  int64_t size = 1000, arms = 2;
  double turns = 1.5, noise = 0.02;
  uint64_t seed = 0;
  static const OptionList<SpiralsOptions>& list();
};
class SpiralsDataset : public TensorDataset<> {
 public:
  explicit SpiralsDataset(const SpiralsOptions& options = {});  // throws ValueError for counts below 1
};

// Inputs [window, 1] of a sum of `waves` sines of random periods, phases and heights, with noise; targets [horizon]: the next
// values without noise.
struct SinesOptions {
  Split split = Split::train;
  int64_t size = 1000, window = 32, horizon = 1, waves = 3;
  double noise = 0.02;
  uint64_t seed = 0;
  static const OptionList<SinesOptions>& list();
};
class SinesDataset : public TensorDataset<> {
 public:
  explicit SinesDataset(const SinesOptions& options = {});
};

// Copies a sequence of symbols after a wait (Hochreiter and Schmidhuber, 1997, in the form of Arjovsky et al., 2016). Inputs i64
// [2 length + wait]: `length` symbols 1..symbols, wait - 1 times 0, the sign symbols + 1, and 0 to the end. Targets i64 of the
// same length: 0, and at the end the symbols. symbols + 2 tokens, symbols + 1 classes.
struct CopyTaskOptions {
  Split split = Split::train;
  int64_t size = 1000, length = 10, wait = 20, symbols = 8;
  uint64_t seed = 0;
  static const OptionList<CopyTaskOptions>& list();
};
class CopyTaskDataset : public TensorDataset<> {
 public:
  explicit CopyTaskDataset(const CopyTaskOptions& options = {});
};

// Adds two numbers of a sequence (Hochreiter and Schmidhuber, 1997). Inputs f32 [length, 2]: numbers in [0, 1), and marks that are
// 1 beside one number of the first half and one of the second. Targets [1]: the sum of the marked numbers. Always answering 1 has
// a mean squared error of 1/6.
struct AddingOptions {
  Split split = Split::train;
  int64_t size = 1000, length = 50;
  uint64_t seed = 0;
  static const OptionList<AddingOptions>& list();
};
class AddingDataset : public TensorDataset<> {
 public:
  explicit AddingDataset(const AddingOptions& options = {});
};

// Several digits of DigitsDataset side by side, to be read without their positions. Images f32 [1, 28, 28 max_digits], empty
// behind the last digit; targets i64 [max_digits]: the digits plus 1, because 0 is the blank of CTCLoss, and -1 behind the last.
// 11 classes.
struct DigitStripsOptions {
  Split split = Split::train;
  int64_t size = 1000, min_digits = 3, max_digits = 6;
  uint64_t seed = 0;
  static const OptionList<DigitStripsOptions>& list();
};
class DigitStripsDataset : public Dataset {
 public:
  explicit DigitStripsDataset(const DigitStripsOptions& options = {});
  int64_t size() const override { return options_.size; }
  Shape input_shape() const override;
  Shape target_shape() const override { return {options_.max_digits}; }
  int64_t classes() const override { return 11; }
  bool label_sequences() const override { return true; }
  Batch batch(std::span<const int64_t> indices) const override;
  std::string describe() const override;

 private:
  DigitStripsOptions options_;
  std::shared_ptr<const TensorDataset<>> digits_;
};

}  // namespace halfstep
