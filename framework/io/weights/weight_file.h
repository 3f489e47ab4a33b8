// SPDX-License-Identifier: Apache-2.0
// Weights as other programs publish them, whatever the form: a file of safetensors or of torch.save, the index of one that is split
// into several files, or a folder of Hugging Face with any of these.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "framework/io/weights/tensor_map.h"

namespace halfstep {

struct WeightFile {
  struct Entry {
    std::string name;
    Tensor tensor;
  };
  std::vector<Entry> tensors;        // in the order of the files, mapped into memory
  std::vector<UnreadTensor> unread;  // those that halfstep cannot have, and Python objects among the tensors
  size_t others = 0;                 // numbers, texts and containers among the tensors
  std::string key;                   // where a file of torch.save has them: "model_state"; "" at the top
  std::string model;  // of a module that was pickled whole: its class, whose names these are if it has PyTorch's state_dict()
  std::vector<std::filesystem::path> files;     // that were read
  std::map<std::string, std::string> metadata;  // of safetensors
};

// Names of files in which Hugging Face's programs keep weights, in the order in which they are looked for in a folder:
// model.safetensors, model.safetensors.index.json, pytorch_model.bin, pytorch_model.bin.index.json. Empty: the folder has none.
std::filesystem::path weights_in_folder(const std::filesystem::path& folder);
// "model.safetensors.index.json"
bool is_weight_index(const std::filesystem::path& path);

// key: of the dictionary of tensors that is meant, as in TorchFileOptions. Throws IoError and DataError as the readers of the
// formats do, DataError for an index that is malformed, names a file outside of its folder or one that is not there, or whose files
// lack a tensor; for a folder without weights; and for a key where the format has none.
WeightFile read_weight_file(const std::filesystem::path& path, const std::string& key = "");

}  // namespace halfstep
