// SPDX-License-Identifier: Apache-2.0
// What a pickle of torch.save means: which of PyTorch's names are in it, its tensors, and where its state_dict is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/dtype.h"
#include "framework/io/weights/pickle.h"

namespace halfstep {

// Reads a pickle, of which other objects than PyTorch's tensors, dtypes and the like are recorded, and not run.
Pickle read_torch_pickle(const std::string& file, std::string_view bytes);

// The memory that a tensor looks at, which is in the file outside of the pickle.
struct TorchStorage {
  std::string_view key;
  std::optional<DType> dtype;  // of its elements; nothing for bytes, and where halfstep has none
  std::string_view type;       // "FloatStorage"
  uint64_t element_bytes = 0, elements = 0;
  uint64_t first = 0;  // element where a part begins, in very old files
};
// Of a value of the kind `persistent`. Nothing for one that is a class of the program that wrote the file.
std::optional<TorchStorage> torch_storage_of(const std::string& file, const Pickle& pickle, const PickleValue& value);

// A tensor that is checked to lie inside its storage.
struct TorchTensor {
  TorchStorage storage{};
  DType dtype = DType::f32;
  uint64_t offset = 0;  // of the first element in the storage, in elements
  std::vector<int64_t> sizes{}, strides{};
  uint64_t bytes = 0;  // of its elements, one after the other
  // Of one that halfstep cannot have, whose sizes alone are known: what it is, "complex64", what Python makes of such tensors,
  // "t.to_dense()", and how it knows them, "t.is_sparse".
  std::string unknown{}, change{}, which{};
};
bool is_torch_tensor(const Pickle& pickle, const PickleValue& value);   // also one that halfstep cannot have
bool is_torch_scalar(const Pickle& pickle, const PickleValue& tensor);  // without dimensions, as far as it is known
TorchTensor torch_tensor_of(const std::string& file, std::string_view name, const Pickle& pickle, const PickleValue& value);

// Is it an object that is none of PyTorch's?
bool is_foreign(const Pickle& pickle, const PickleValue& value);
// The expression by which Python has the part of the file below `key`.
std::string torch_load_code(const std::string& file, const Pickle& pickle, std::string_view key = {});

}  // namespace halfstep
