// SPDX-License-Identifier: Apache-2.0
// Data sets of two arrays in files: inputs and targets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/data/tensor_dataset.h"

namespace halfstep {

// What bytes (u8) of inputs are. pixels: 0 to 255 become 0 to 1, as in all data sets of pictures. numbers: they stay what they are.
// automatic: pixels where a sample has two dimensions or more and some byte is above 1, else numbers.
enum class ByteMeaning : uint8_t { automatic, pixels, numbers };

// Is no byte (u8) above 1, as in masks and one-hot inputs?
bool are_zeros_and_ones(const Tensor& bytes);

struct ArrayOptions {
  std::string input = "x", target = "y";  // names of arrays, in files that hold several
  bool tokens = false;                    // whole inputs are tokens, i64; else they become f32
  std::optional<bool> classification{};   // empty: targets that are whole numbers, booleans or one-hot are classes
  int64_t classes = 0;                    // 0: see classes_in()
  int64_t vocabulary = 0;                 // of tokens; 0: one more than the largest
  ByteMeaning bytes = ByteMeaning::automatic;
  bool channels_last = false;  // inputs [N, H, W, C] or [N, T, C] are read as [N, C, H, W] and [N, C, T], into memory
  std::optional<int64_t> ignored = kIgnoredClass;  // see TensorDataset<2>; empty: no label is
};
// Are samples of this shape probably pictures with their channels last? [32, 32, 3], but not [3, 32, 32].
bool looks_channels_last(const Shape& sample);

// Inputs [N, ...], targets [N, ...], a row of each a sample; numbers [N] to predict become [N, 1], as those of a table. Of classes
// these are read as [N], too: booleans; [N, 1]; and one-hot rows [N, classes], unless they may be a class for each position of the
// input. Bytes of inputs become f32 as batches are made. notes() says all that was read in another way than as it is.
// Throws as the readers of the formats; DataError, which names path and array, for an array that is not there, arrays with
// different numbers of rows or none, negative tokens, classes that are no whole numbers or outside the classes.
class ArrayDataset : public TensorDataset<> {
 public:
  // framework/data/npy.h. Arrays that need no conversion (float32 and uint8 inputs, int64 tokens and classes) are mapped, not read.
  static ArrayDataset npy(const std::filesystem::path& input, const std::filesystem::path& target,
                          const ArrayOptions& options = {});
  static ArrayDataset npz(const std::filesystem::path& path, const ArrayOptions& options = {});
  // Where no conversion is needed the arrays stay in the file, which is mapped: see map_safetensors of framework/io/safetensors.h.
  static ArrayDataset safetensors(const std::filesystem::path& path, const ArrayOptions& options = {});

  DataNotes notes() const override {
    return {.made = notes_, .warnings = warnings_, .ignored = TensorDataset::notes().ignored};
  }
  void add_warning(std::string text) { warnings_.push_back(std::move(text)); }
  DataForm form() const override;
  ByteMeaning bytes() const { return bytes_; }  // as they were read; automatic: the inputs are no bytes

 private:
  struct Parts;
  ArrayDataset(const std::string& label, Parts parts, const ArrayOptions& options);
  ArrayDataset(const std::string& label, const Tensor& input, const Tensor& target, const ArrayOptions& options);
  std::string notes_;
  std::vector<std::string> warnings_;
  bool channels_last_;
  ByteMeaning bytes_;
};

}  // namespace halfstep
