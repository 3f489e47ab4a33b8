// SPDX-License-Identifier: Apache-2.0
// A module's state as a safetensors file, and back. Python reads the file with safetensors.torch.load_file and load_state_dict, or
// with safetensors.torch.load_model where weights are shared; files that save_file, save_model and torch.save wrote are read here.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>

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
};
// Copies the file's tensors into the module's. The file is one of safetensors or of torch.save (framework/io/torch_file.h), which
// its content decides, not its name. Throws IoError and, for torch.save, DataError for a file that is malformed, and ValueError
// listing all names and shapes that do not fit; then nothing has changed.
LoadReport load(Module& module, const std::filesystem::path& path, const LoadOptions& options = {});

}  // namespace halfstep
