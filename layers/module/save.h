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
#include "framework/io/weights/tensor_map.h"
#include "framework/io/weights/weight_file.h"
#include "layers/module/module.h"

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

// A state_dict, or any tensors under names: save(net.state_dict(), file), save({{"x", x}}, file).
void save(const StateDict& state, const std::filesystem::path& path, const std::map<std::string, std::string>& metadata = {});

// A part of a tensor of the file, in place of the whole: rows start to end - 1 of dimension dim.
struct TensorPart {
  int64_t start = 0;
  std::optional<int64_t> end{};
  int64_t dim = 0;
};
// A tensor of the file that is one of the `of` parts of a tensor of the module.
struct JoinedPart {
  std::string name;  // of the whole
  int64_t place = 0, of = 1;
  bool add = false;  // the whole is their sum, in which they broadcast; else they follow each other along dim
  int64_t dim = 0;
};

struct LoadOptions {
  bool strict = true;                                       // every name of the module must be in the file, and the other way round
  std::string prefix{};                                     // read only names that begin with it, and take it off: "model."
  std::function<std::string(const std::string&)> rename{};  // a name of the file (without the prefix) to one of the module
  std::optional<Device> device{};                           // where the module goes before; from meta without values
  // The next two are asked for names of the file, without the prefix, both before and after `rename`.
  std::function<bool(const std::string&)> skip{};       // it is not read; and a tensor of the module that keeps its value
  std::function<bool(const std::string&)> transpose{};  // a matrix that is [in, out] in the file, as Hugging Face's GPT-2 has them
  std::function<std::optional<TensorPart>(const std::string&)> part{};  // asked in the same way
  std::function<std::optional<JoinedPart>(const std::string&)> join{};  // asked for names after `rename`
  // Matrices of queries, keys and values that the file has apart (q_proj, k_proj, v_proj; query, key, value; and the like) are
  // joined where the module has in_proj_weight, and so are their biases.
  bool join_attention = true;
  std::string key{};  // which dictionary of tensors, of a file of torch.save that has several: "ema/state_dict"
};

// A file's tensors under the module's names, as `load` takes them. weight_g and weight_v of weight normalisation are one weight.
struct StateForModule {
  StateDict state;
  std::vector<std::string> skipped{};  // tensors of the module that keep their values
  std::vector<std::string> joined{};   // "in_proj_weight of query.weight, key.weight, value.weight"
  size_t others = 0;                   // entries of the file that are no tensors
};
// Tensors that halfstep cannot have are errors if the module needs them, else they are on the device meta: names that the module
// does not have. Throws DataError for the first, ValueError for a prefix that no name has, `transpose` of a tensor that is no
// matrix, `part` of what a tensor does not have, and `join` of parts that are not all there or do not fit.
StateForModule state_for(const Module& module, const WeightFile& file, const LoadOptions& options = {});
// Warns of tensors that hold NaN or infinity, with their names. file: theirs.
void warn_of_bad_values(const StateDict& state, const std::string& file);
// Of read_weight_file(path). Throws as `load`.
StateForModule read_state(const Module& module, const std::filesystem::path& path, const LoadOptions& options = {});

// Copies the file's tensors into the module's. The file is one of safetensors or of torch.save, which its content decides, not its
// name; or a folder or an index of such files (framework/io/weights/weight_file.h). Throws IoError and, for torch.save, DataError
// for a file that is malformed, and ValueError listing the names, shapes and dtypes that do not fit; then nothing has changed.
// Warns of values that are not finite.
LoadReport load(Module& module, const std::filesystem::path& path, const LoadOptions& options = {});

}  // namespace halfstep
