// SPDX-License-Identifier: Apache-2.0
// Data sets of two arrays in files: inputs and targets.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "framework/data/tensor_dataset.h"

namespace halfstep {

struct ArrayOptions {
  std::string input = "x", target = "y";  // names of arrays, in files that hold several
  bool tokens = false;                    // whole inputs are tokens, i64; else they become f32
  std::optional<bool> classification{};   // empty: targets that are whole numbers are classes
  int64_t classes = 0;                    // 0: one more than the largest target
  int64_t vocabulary = 0;                 // of tokens; 0: one more than the largest
};

// Inputs [N, ...], targets [N, ...], a row of each a sample; numbers [N] to predict become [N, 1], as those of a table.
// Bytes (u8) stay bytes and become f32 as batches are made.
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

 private:
  ArrayDataset(const std::string& label, const Tensor& input, const Tensor& target, const ArrayOptions& options);
};

}  // namespace halfstep
