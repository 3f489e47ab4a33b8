// SPDX-License-Identifier: Apache-2.0
// Writes a module's state as a safetensors file, and reads it. Python reads the file with safetensors.torch.load_file and
// load_state_dict, or with safetensors.torch.load_model if weights are shared; files of save_file, save_model and torch.save can
// be read here.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/device.h"
#include "framework/io/weights/tensor_map.h"
#include "framework/io/weights/weight_file.h"
#include "layers/module/module.h"

namespace halfstep {

// A state as files keep it: a shared tensor is there once, under its first name; `shared` maps its other names to that one.
struct SavedState {
  TensorMap tensors;
  std::map<std::string, std::string> shared;
};
SavedState saved_state(const Module& module);

// Writes atomically. The file's metadata has the names of shared tensors, as safetensors.torch.save_model writes them. Throws
// IoError if writing fails.
void save(const Module& module, const std::filesystem::path& path, const std::map<std::string, std::string>& metadata = {});

// Writes a state_dict, or any named tensors: save(net.state_dict(), file), save({{"x", x}}, file).
void save(const StateDict& state, const std::filesystem::path& path, const std::map<std::string, std::string>& metadata = {});

// A slice of a tensor of the file: rows start to end - 1 of dimension dim.
struct TensorPart {
  int64_t start = 0;
  std::optional<int64_t> end{};
  int64_t dim = 0;
};
// A tensor of the file that is one of the `of` parts of a tensor of the module.
struct JoinedPart {
  std::string name;  // of the joined tensor
  int64_t place = 0, of = 1;
  bool add = false;  // adds the parts, which broadcast; else concatenates them along dim
  int64_t dim = 0;
};

struct LoadOptions {
  bool strict = true;                                       // every name of the module must be in the file, and vice versa
  std::string prefix{};                                     // reads only names with this prefix, and removes it: "model."
  std::function<std::string(const std::string&)> rename{};  // maps a name of the file (without the prefix) to one of the module
  std::optional<Device> device{};                           // moves the module there first; from meta without values
  // The next two are called with names of the file, without the prefix, both before and after `rename`.
  std::function<bool(const std::string&)> skip{};       // the tensor is not read; also a tensor of the module that keeps its value
  std::function<bool(const std::string&)> transpose{};  // the matrix is [in, out] in the file, as in Hugging Face's GPT-2
  std::function<std::optional<TensorPart>(const std::string&)> part{};  // called with the same names
  std::function<std::optional<JoinedPart>(const std::string&)> join{};  // called with names after `rename`
  // Joins separate matrices of queries, keys and values (q_proj, k_proj, v_proj; query, key, value; and the like), and their
  // biases, if the module has in_proj_weight.
  bool join_attention = true;
  std::string key{};  // chooses one dictionary of tensors, in a torch.save file with several: "ema/state_dict"
};

// A file's tensors under the module's names, as `load` passes them to Module::load_state_dict. weight_g and weight_v of weight
// normalisation are one weight.
struct StateForModule {
  StateDict state;
  std::vector<std::string> skipped{};  // tensors of the module that keep their values
  std::vector<std::string> joined{};   // "in_proj_weight of query.weight, key.weight, value.weight"
  size_t others = 0;                   // entries of the file that are not tensors
};
// Maps a file's tensors to a module. Tensors of dtypes that halfstep lacks are errors if the module needs them; else they are on
// the device meta, as unexpected names. Throws DataError for the first, ValueError for a prefix that no name has, `transpose` of a
// tensor that is not a matrix, `part` beyond a tensor, and `join` of parts that are incomplete or do not fit.
StateForModule state_for(const Module& module, const WeightFile& file, const LoadOptions& options = {});
// Warns of tensors that contain NaN or infinity, with their names.
void warn_of_bad_values(const StateDict& state, const std::string& file);
// Reads path by read_weight_file and maps it by state_for. Throws as `load`.
StateForModule read_state(const Module& module, const std::filesystem::path& path, const LoadOptions& options = {});

// Copies the file's tensors into the module. The content, not the name, decides whether it is a safetensors or a torch.save file;
// a folder or an index of such files is read too (framework/io/weights/weight_file.h). Throws IoError; DataError for a malformed
// torch.save file; and ValueError listing the names, shapes and dtypes that do not fit; then nothing has changed. Warns of values
// that are not finite.
LoadReport load(Module& module, const std::filesystem::path& path, const LoadOptions& options = {});

}  // namespace halfstep
