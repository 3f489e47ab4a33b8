// SPDX-License-Identifier: Apache-2.0
// A module's state as a safetensors file, and back. Python reads the file with safetensors.torch.load_file and load_state_dict, or
// with safetensors.torch.load_model where weights are shared; files that save_file, save_model and torch.save wrote are read here.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/device.h"
#include "framework/io/tensor_map.h"
#include "layers/module.h"

namespace halfstep {

// A state by name, as files keep it: a tensor that has several names is there once, under its first one; `shared` gives that name
// for each of the others.
struct SavedState {
  TensorMap tensors;
  std::map<std::string, std::string> shared;
};
SavedState saved_state(const Module& module);

// Writes atomically. The names of shared tensors are in the file's metadata, as safetensors.torch.save_model puts them there.
// Throws IoError when writing fails.
void save(const Module& module, const std::filesystem::path& path, const std::map<std::string, std::string>& metadata = {});

struct LoadOptions {
  bool strict = true;                                       // every name of the module must be in the file, and the other way round
  std::string prefix{};                                     // read only names that begin with it, and take it off: "model."
  std::function<std::string(const std::string&)> rename{};  // a name of the file (without the prefix) to one of the module
  std::optional<Device> device{};                           // where the module goes before; from meta without values
  // The next two are asked for names of the file, without the prefix, both before and after `rename`.
  std::function<bool(const std::string&)> skip{};       // it is not read; and a tensor of the module that keeps its value
  std::function<bool(const std::string&)> transpose{};  // a matrix that is [in, out] in the file, as Hugging Face's GPT-2 has them
};

// A file's tensors under the module's names, as `load` gives them to Module::load_state_dict.
struct StateForModule {
  StateDict state;
  std::vector<std::string> skipped;  // tensors of the module that keep their values
};
// Throws as `load` for a file that is malformed; ValueError for a prefix that no name has, and for `transpose` of a tensor that is
// no matrix.
StateForModule read_state(const Module& module, const std::filesystem::path& path, const LoadOptions& options = {});

// Copies the file's tensors into the module's. The file is one of safetensors or of torch.save (framework/io/torch_file.h), which
// its content decides, not its name. Throws IoError and, for torch.save, DataError for a file that is malformed, and ValueError
// listing the names, shapes and dtypes that do not fit; then nothing has changed.
LoadReport load(Module& module, const std::filesystem::path& path, const LoadOptions& options = {});

}  // namespace halfstep
