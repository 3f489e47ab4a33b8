// SPDX-License-Identifier: Apache-2.0
// Data sets of two arrays in files: inputs and targets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/options.h"
#include "framework/data/sets/tensor_dataset.h"

namespace halfstep {

// How to read bytes (u8) of inputs. pixels: maps 0 to 255 to 0 to 1, as in all picture data sets. numbers: keeps them. automatic:
// pixels if a sample has two dimensions or more and some byte is above 1, else numbers.
enum class ByteMeaning : uint8_t { automatic, pixels, numbers };
HALFSTEP_OPTION_NAMES(ByteMeaning, "auto", "pixels", "numbers");

// Returns whether no byte (u8) is above 1, as in masks and one-hot inputs.
bool are_zeros_and_ones(const Tensor& bytes);

struct ArrayOptions {
  std::string input = "x", target = "y";  // names of arrays, in files that hold several
  bool tokens = false;                    // whether integer inputs are tokens, i64; else they become f32
  std::optional<bool> classification{};   // empty: targets that are integers, booleans or one-hot are classes
  int64_t classes = 0;                    // 0: see classes_in()
  int64_t vocabulary = 0;                 // number of tokens; 0: one more than the largest
  ByteMeaning bytes = ByteMeaning::automatic;
  bool channels_last = false;  // reads inputs [N, H, W, C] or [N, T, C] as [N, C, H, W] and [N, C, T], in memory
  std::optional<int64_t> ignored = kIgnoredClass;  // see TensorDataset<2>; empty: no label is
  static const OptionList<ArrayOptions>& list();
};
// Returns whether samples of this shape are probably pictures with their channels last: [32, 32, 3], but not [3, 32, 32].
bool looks_channels_last(const Shape& sample);

// Inputs [N, ...] and targets [N, ...], one sample per row. Numbers [N] to predict become [N, 1], as those of a table. Classes are
// also read from booleans, from [N, 1], and from one-hot rows [N, classes] unless these may be a class for each position of the
// input. Bytes of inputs become f32 when batches are made. notes() lists everything that was converted. Throws like the readers of
// the formats, and DataError with path and array for a missing array, arrays with different numbers of rows or none, negative
// tokens, and classes that are not integers or out of range.
class ArrayDataset : public TensorDataset<> {
 public:
  // Reads .npy files (framework/data/formats/npy.h). Arrays without conversion (float32 and uint8 inputs, int64 tokens and
  // classes) are mapped, not read.
  static ArrayDataset npy(const std::filesystem::path& input, const std::filesystem::path& target,
                          const ArrayOptions& options = {});
  static ArrayDataset npz(const std::filesystem::path& path, const ArrayOptions& options = {});
  // Reads a safetensors file. Arrays without conversion stay in the mapped file: see map_safetensors of
  // framework/io/weights/safetensors.h.
  static ArrayDataset safetensors(const std::filesystem::path& path, const ArrayOptions& options = {});

  DataNotes notes() const override { return {.summary = notes_, .warnings = warnings_, .ignored = TensorDataset::notes().ignored}; }
  void add_warning(std::string text) { warnings_.push_back(std::move(text)); }
  DataForm form() const override;
  ByteMeaning bytes() const { return bytes_; }  // as read; automatic: the inputs are not bytes

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
