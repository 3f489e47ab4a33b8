// SPDX-License-Identifier: Apache-2.0
// Finds the state_dict in a pickle of torch.save.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "framework/base/check.h"
#include "framework/io/weights/torch_pickle.h"

namespace halfstep {

// A file has several dictionaries of tensors, and one must be chosen.
struct SeveralStates : DataError {
  using DataError::DataError;
  std::vector<std::string> keys{};  // "/" is the top
};

// A dictionary of tensors, or the state_dict of a module that was pickled whole.
struct TorchState {
  struct Entry {
    std::string name;
    const PickleValue* value;
  };
  std::string key;             // path in the pickle: "model", "ema/state_dict"; "" at the top
  std::vector<Entry> tensors;  // in the file's order, including those that halfstep lacks
  std::vector<Entry> objects;  // Python objects beside them
  size_t others = 0;           // numbers, texts and containers beside them
  std::string model;           // the class of a module
};
// Finds the only dictionary of tensors, or module, in the pickle, below any text keys. Does not count states of optimizers,
// dictionaries that hold only scalars if there are others, and entries of a larger dictionary of tensors. key: chooses one; "/" is
// the top. Throws DataError, with the existing ones, if there is none, and SeveralStates.
TorchState find_torch_state(const std::string& file, const Pickle& pickle, std::string_view key = {});

}  // namespace halfstep
