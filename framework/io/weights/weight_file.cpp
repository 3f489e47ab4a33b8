// SPDX-License-Identifier: Apache-2.0
#include "framework/io/weights/weight_file.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <set>
#include <utility>

#include "framework/base/check.h"
#include "framework/base/list_text.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/json.h"
#include "framework/io/files/other_file.h"
#include "framework/io/files/printable.h"
#include "framework/io/weights/safetensors.h"
#include "framework/io/weights/torch_file.h"

namespace halfstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeights = "weights";
constexpr std::array kUsualWeights{"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                                   "pytorch_model.bin.index.json"};
constexpr uint64_t kMaxIndex = 100'000'000;  // bytes
constexpr size_t kListedFiles = 6;

std::string printable_list(const std::vector<std::string>& names) {
  std::vector<std::string> shown;
  for (const std::string& name : names) shown.push_back(printable(name, 100));
  return list_text(shown, kListedFiles);
}

// Adds the tensors of one file.
void add_file(WeightFile& out, const fs::path& path, const std::string& key) {
  out.files.push_back(path);
  if (is_torch_file(path)) {
    TorchFile file = map_torch_file(path, {.key = key, .list_unread = true});
    for (const std::string& name : file.names) out.tensors.push_back({name, file.tensors.at(name)});
    out.unread.insert(out.unread.end(), file.unread.begin(), file.unread.end());
    out.others += file.others;
    out.key = file.key;
    out.model = file.model;
    return;
  }
  check<DataError>(key.empty() || key == "/", kWeights, path.string(),
                   ": a key is for files of torch.save, and this is none, got \"", printable(key), '"');
  const TensorFile file = map_safetensors(path, Unread::list);
  for (const auto& [name, tensor] : file.tensors) out.tensors.push_back({name, tensor});
  out.unread.insert(out.unread.end(), file.unread.begin(), file.unread.end());
  out.metadata.insert(file.metadata.begin(), file.metadata.end());
}

// Reads {"weight_map": {name of a tensor: name of a file}}.
std::map<std::string, std::string> read_index(const fs::path& path) {
  check_path(path);
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  check<IoError>(!error, kWeights, path.string(), ": cannot read: ", error.message());
  check<DataError>(size <= kMaxIndex, kWeights, path.string(), ": an index may have ", kMaxIndex, " bytes, this one has ", size);
  std::string text(size, '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(text.data(), std::streamsize(size));
  check<IoError>(uint64_t(in.gcount()) == size, kWeights, path.string(), ": reading failed");
  if (!text.starts_with('{')) refuse_other_file<DataError>(kWeights, path, text);
  nlohmann::json index;
  try {
    index = read_json<nlohmann::json>(text);
  } catch (const JsonError& e) { fail<DataError>(kWeights, path.string(), ": is not valid JSON: ", e.what()); }
  const auto map = index.find("weight_map");
  check<DataError>(index.is_object() && map != index.end() && map->is_object() && !map->empty(), kWeights, path.string(),
                   ": must have \"weight_map\" with the file of each tensor");
  std::map<std::string, std::string> out;
  for (const auto& [name, file] : map->items()) {
    const std::string file_name = file.is_string() ? file.get<std::string>() : "";
    const bool is_plain_name = !file_name.empty() && file_name.find('/') == file_name.npos && file_name != "." && file_name != "..";
    check<DataError>(is_plain_name, kWeights, path.string(), ": \"", printable(name), "\" must be in a file beside the index, got ",
                     printable(file.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
    out[name] = file_name;
  }
  return out;
}

// Adds the tensors of all files of an index.
void add_indexed(WeightFile& out, const fs::path& index, const std::string& key) {
  const std::map<std::string, std::string> file_of_tensor = read_index(index);
  std::set<std::string> files;
  for (const auto& [name, file] : file_of_tensor) files.insert(file);
  const fs::path folder = index.parent_path();
  std::vector<std::string> absent, lacking;
  std::error_code ignored;
  for (const std::string& file : files)
    if (!fs::is_regular_file(folder / file, ignored)) absent.push_back(file);
  check<DataError>(absent.empty(), kWeights, index.string(), ": must have all ", files.size(),
                   " files of the index beside it, but ", absent.size(),
                   absent.size() == 1 ? " is missing: " : " are missing: ", printable_list(absent),
                   Help{"download what is missing, or all of the folder again"});
  std::set<std::string> found;
  for (const std::string& file : files) {
    WeightFile part;
    add_file(part, folder / file, key);
    // Accepts a tensor whose file this is, and, once, a tensor that the index lacks.
    const auto accepts = [&](const std::string& name) {
      const auto place = file_of_tensor.find(name);
      return (place == file_of_tensor.end() || place->second == file) && found.insert(name).second;
    };
    for (auto& entry : part.tensors)
      if (accepts(entry.name)) out.tensors.push_back(std::move(entry));
    for (auto& entry : part.unread)
      if (accepts(entry.name)) out.unread.push_back(std::move(entry));
    out.others += part.others;
    out.key = part.key;
    out.files.push_back(folder / file);
    out.metadata.insert(part.metadata.begin(), part.metadata.end());
  }
  for (const auto& [name, file] : file_of_tensor)
    if (!found.contains(name)) lacking.push_back(name + " of " + file);
  check<DataError>(lacking.empty(), kWeights, index.string(), ": its files lack ", lacking.size(), " of ", file_of_tensor.size(),
                   " tensors: ", printable_list(lacking), Help{"download the folder again: the index is of other files"});
}

}  // namespace

bool is_weight_index(const fs::path& path) { return path.filename().string().ends_with(".index.json"); }

fs::path weights_in_folder(const fs::path& folder) {
  std::error_code ignored;
  for (const char* name : kUsualWeights)
    if (fs::is_regular_file(folder / name, ignored)) return folder / name;
  return {};
}

WeightFile read_weight_file(const fs::path& path, const std::string& key) {
  std::error_code ignored;
  fs::path used = path;
  if (fs::is_directory(path, ignored)) {
    used = weights_in_folder(path);
    check<DataError>(!used.empty(), kWeights, path.string(), ": the folder has no weights: no ", kUsualWeights[0], ", ",
                     kUsualWeights[1], ", ", kUsualWeights[2], " or ", kUsualWeights[3],
                     Help{"a path may also name the file itself, whatever it is called"});
  }
  WeightFile out;
  if (is_weight_index(used))
    add_indexed(out, used, key);
  else
    add_file(out, used, key);
  return out;
}

}  // namespace halfstep
