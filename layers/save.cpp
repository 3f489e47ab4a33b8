// SPDX-License-Identifier: Apache-2.0
#include "layers/save.h"

#include <algorithm>
#include <set>
#include <utility>

#include "framework/io/safetensors.h"
#include "framework/io/torch_file.h"

namespace halfstep {
namespace {

StateDict state_of_file(const std::filesystem::path& path) {
  StateDict out;
  if (is_torch_file(path)) {
    const TorchFile file = map_torch_file(path);
    for (const std::string& name : file.names) out.push_back({name, file.tensors.at(name)});
  } else {
    for (auto& [name, tensor] : map_safetensors(path).tensors) out.push_back({name, tensor});
  }
  return out;
}

}  // namespace

SavedState saved_state(const Module& module) {
  SavedState out;
  std::map<std::pair<const Storage*, const void*>, NamedTensor> first;  // by address
  for (const NamedTensor& t : module.state_dict()) {
    const auto [seen, fresh] = first.try_emplace({t.tensor.storage().get(), t.tensor.data_ptr()}, t);
    const bool again = !fresh && t.tensor.numel() > 0 && seen->second.tensor.shape() == t.tensor.shape();
    if (again)
      out.shared[t.name] = seen->second.name;
    else
      out.tensors[t.name] = t.tensor;
  }
  return out;
}

void save(const Module& module, const std::filesystem::path& path, const std::map<std::string, std::string>& metadata) {
  const SavedState state = saved_state(module);
  std::map<std::string, std::string> all = state.shared;
  all["format"] = "pt";
  for (const auto& [key, value] : metadata) all[key] = value;
  save_safetensors(path, state.tensors, all);
}

StateForModule read_state(const Module& module, const std::filesystem::path& path, const LoadOptions& options) {
  const StateDict file = state_of_file(path);
  StateForModule out;
  bool any = file.empty();
  std::set<std::string> left_out;  // by their names in the module
  for (const auto& [name, tensor] : file) {
    if (!name.starts_with(options.prefix)) continue;
    any = true;
    const std::string rest = name.substr(options.prefix.size()), mine = options.rename ? options.rename(rest) : rest;
    if (options.skip && (options.skip(rest) || options.skip(mine))) {
      left_out.insert(mine);
      continue;
    }
    const bool turned = options.transpose && (options.transpose(rest) || options.transpose(mine));
    check<ValueError>(!turned || tensor.dim() == 2, "load", rest, " must be a matrix to be transposed, got ", tensor.shape());
    out.state.push_back({mine, turned ? tensor.t() : tensor});
  }
  check<ValueError>(any || !options.strict, "load", "no name in ", path.string(), " begins with \"", options.prefix, '"');
  if (!options.skip) return out;
  for (const NamedTensor& n : module.state_dict()) {
    if (!options.skip(n.name) && !left_out.contains(n.name)) continue;
    out.skipped.push_back(n.name);
    out.state.push_back(n);
  }
  return out;
}

LoadReport load(Module& module, const std::filesystem::path& path, const LoadOptions& options) {
  StateForModule read = read_state(module, path, options);
  if (!options.device) return module.load_state_dict(read.state, options.strict);
  const StateDict mine = module.state_dict();
  const bool planned = std::any_of(mine.begin(), mine.end(), [](const NamedTensor& n) { return n.tensor.device().is_meta(); });
  if (planned && !options.device->is_meta()) {
    const LoadReport fits = module.load_state_dict(read.state, options.strict);  // on meta it compares, and copies nothing
    const bool whole = fits.missing.empty() && read.skipped.empty();
    check<ValueError>(whole, "load", "a module on the device meta needs all its tensors, but ", path.string(), " lacks ",
                      fits.missing.size() + read.skipped.size(), " of them, the first of which is ",
                      whole                  ? ""
                      : fits.missing.empty() ? read.skipped.front()
                                             : fits.missing.front());
    module.to_empty(*options.device);
  }
  module.to(*options.device);
  if (!read.skipped.empty()) read = read_state(module, path, options);  // with the module's tensors where they are now
  return module.load_state_dict(read.state, options.strict);
}

}  // namespace halfstep
