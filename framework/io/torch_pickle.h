// SPDX-License-Identifier: Apache-2.0
// What a pickle of torch.save means: which of PyTorch's names may be in it, its tensors, and where its state_dict is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/dtype.h"
#include "framework/io/pickle.h"

namespace halfstep {

// Reads a pickle in which only PyTorch's names for tensors, dtypes and the like may be. Throws DataError that names any other.
Pickle read_torch_pickle(const std::string& file, std::string_view bytes);

// The memory that a tensor looks at, which is in the file outside of the pickle.
struct TorchStorage {
  std::string_view key;
  std::optional<DType> dtype;  // of its elements; nothing for bytes, and where halfstep has none
  std::string_view type;       // "FloatStorage"
  uint64_t element_bytes = 0, elements = 0;
  uint64_t first = 0;  // element where a part begins, in very old files
};
// Of a value of the kind `persistent`.
TorchStorage torch_storage_of(const std::string& file, const Pickle& pickle, const PickleValue& value);

// A tensor that is checked to lie inside its storage.
struct TorchTensor {
  TorchStorage storage;
  DType dtype = DType::f32;
  uint64_t offset = 0;  // of the first element in the storage, in elements
  std::vector<int64_t> sizes, strides;
  uint64_t bytes = 0;  // of its elements, one after the other
};
bool is_torch_tensor(const Pickle& pickle, const PickleValue& value);  // also one that halfstep cannot have
TorchTensor torch_tensor_of(const std::string& file, std::string_view name, const Pickle& pickle, const PickleValue& value);

// The tensors by name, in the file's order: those of the pickle's dictionary, or of the one dictionary of tensors that it has under
// "state_dict", "model_state_dict", "model" or "module". Throws DataError, which lists the keys, when that is none or several.
std::vector<std::pair<std::string_view, const PickleValue*>> find_state_dict(const std::string& file, const Pickle& pickle);

}  // namespace halfstep
