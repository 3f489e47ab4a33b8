// SPDX-License-Identifier: Apache-2.0
// Where a pickle of torch.save has its state_dict.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "framework/base/check.h"
#include "framework/io/weights/torch_pickle.h"

namespace halfstep {

// A file has several dictionaries of tensors, of which one must be chosen.
struct SeveralStates : DataError {
  using DataError::DataError;
  std::vector<std::string> keys{};  // "/" is the top
};

// A dictionary of tensors, or what a module that was pickled whole would have as such.
struct TorchState {
  struct Entry {
    std::string name;
    const PickleValue* value;
  };
  std::string key;             // where the pickle has it: "model", "ema/state_dict"; "" at the top
  std::vector<Entry> tensors;  // in the file's order, also those that halfstep cannot have
  std::vector<Entry> objects;  // Python objects beside them
  size_t others = 0;           // numbers, texts and containers beside them
  std::string model;           // of a module: its class
};
// The only dictionary of tensors or module that the pickle is or has, below any keys that are texts. States of optimizers do not
// count, nor dictionaries that hold but scalars beside others, nor what is an entry of a larger dictionary of tensors. key: which
// one; "/" is the top. Throws DataError, which lists those that there are, when that is none, and SeveralStates.
TorchState find_torch_state(const std::string& file, const Pickle& pickle, std::string_view key = {});

}  // namespace halfstep
