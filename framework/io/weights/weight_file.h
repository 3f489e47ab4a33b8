// SPDX-License-Identifier: Apache-2.0
// Reads published weights in any form: a safetensors or torch.save file, the index of a model split into several files, or a
// Hugging Face folder with any of these.
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
  std::vector<UnreadTensor> unread;  // tensors that halfstep lacks, and Python objects among the tensors
  size_t others = 0;                 // numbers, texts and containers among the tensors
  std::string key;                   // path in a torch.save file: "model_state"; "" at the top
  std::string model;  // class of a module pickled whole; the names are those of PyTorch's state_dict() if it has one
  std::vector<std::filesystem::path> files;     // files that were read
  std::map<std::string, std::string> metadata;  // of safetensors
};

// Returns the file with the weights in a folder, by the names that Hugging Face's programs use, in this order: model.safetensors,
// model.safetensors.index.json, pytorch_model.bin, pytorch_model.bin.index.json. Empty: the folder has none.
std::filesystem::path weights_in_folder(const std::filesystem::path& folder);
// Returns whether the name is that of an index, "model.safetensors.index.json".
bool is_weight_index(const std::filesystem::path& path);

// Reads weights. key: the dictionary of tensors, as in TorchFileOptions. Throws IoError and DataError like the readers of the
// formats; DataError for an index that is malformed, names a missing file or one outside of its folder, or whose files lack a
// tensor; for a folder without weights; and for a key if the format has none.
WeightFile read_weight_file(const std::filesystem::path& path, const std::string& key = "");

}  // namespace halfstep
