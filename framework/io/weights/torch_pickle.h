// SPDX-License-Identifier: Apache-2.0
// Interprets a pickle of torch.save: PyTorch's names in it, its tensors, and the place of its state_dict.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/dtype.h"
#include "framework/io/weights/pickle.h"

namespace halfstep {

// Reads a pickle. Objects are recorded, not run.
Pickle read_torch_pickle(const std::string& file, std::string_view bytes);

// The memory of a tensor, which is in the file outside the pickle.
struct TorchStorage {
  std::string_view key;
  std::optional<DType> dtype;  // of its elements; empty for bytes and dtypes that halfstep lacks
  std::string_view type;       // "FloatStorage"
  uint64_t element_bytes = 0, elements = 0;
  uint64_t first = 0;  // first element, if it is a part of a storage, in very old files
};
// Returns the storage of a `persistent` value. Nothing for a class of the program that wrote the file.
std::optional<TorchStorage> torch_storage_of(const std::string& file, const Pickle& pickle, const PickleValue& value);

// A tensor that was checked to be inside its storage.
struct TorchTensor {
  TorchStorage storage{};
  DType dtype = DType::f32;
  uint64_t offset = 0;  // of the first element in the storage, in elements
  std::vector<int64_t> sizes{}, strides{};
  uint64_t bytes = 0;  // of its elements, densely packed
  // For a tensor that halfstep lacks, of which at most the sizes are known: its kind "complex64", Python code that converts it,
  // "t.to_dense()", and code that recognises it, "t.is_sparse".
  std::string unsupported{}, conversion{}, condition{};
};
// Returns whether the value is a tensor, even one that halfstep lacks.
bool is_torch_tensor(const Pickle& pickle, const PickleValue& value);
// Returns whether a tensor has no dimensions; false if that is unknown.
bool is_torch_scalar(const Pickle& pickle, const PickleValue& tensor);
// Reads a tensor and checks it against its storage. Throws DataError that names it.
TorchTensor torch_tensor_of(const std::string& file, std::string_view name, const Pickle& pickle, const PickleValue& value);

// Returns whether the object is not one of PyTorch's.
bool is_foreign(const Pickle& pickle, const PickleValue& value);
// Returns the Python expression for the part of the file below `key`.
std::string torch_load_code(const std::string& file, const Pickle& pickle, std::string_view key = {});

}  // namespace halfstep
