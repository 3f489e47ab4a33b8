// SPDX-License-Identifier: Apache-2.0
#include "layers/module/save.h"

#include <algorithm>
#include <utility>

#include "framework/backend/kernel_log.h"
#include "framework/base/list_text.h"
#include "framework/base/log.h"
#include "framework/io/files/printable.h"
#include "framework/io/weights/safetensors.h"

namespace halfstep {

namespace {

// Lists a tensor that has several names under the first one.
SavedState without_copies(const StateDict& state) {
  SavedState out;
  std::map<std::pair<const Storage*, const void*>, NamedTensor> first;  // by address
  for (const NamedTensor& t : state) {
    const auto [seen, fresh] = first.try_emplace({t.tensor.storage().get(), t.tensor.const_data_ptr()}, t);
    const bool is_shared = !fresh && are_same_elements(seen->second.tensor, t.tensor);
    if (is_shared)
      out.shared[t.name] = seen->second.name;
    else
      out.tensors[t.name] = t.tensor;
  }
  return out;
}

void write(const SavedState& state, const std::filesystem::path& path, const std::map<std::string, std::string>& metadata) {
  std::map<std::string, std::string> written = state.shared;
  written["format"] = "pt";
  for (const auto& [key, value] : metadata) written[key] = value;
  save_safetensors(path, state.tensors, written);
}

}  // namespace

SavedState saved_state(const Module& module) { return without_copies(module.state_tensors()); }

void save(const Module& module, const std::filesystem::path& path, const std::map<std::string, std::string>& metadata) {
  write(saved_state(module), path, metadata);
}

void save(const StateDict& state, const std::filesystem::path& path, const std::map<std::string, std::string>& metadata) {
  write(without_copies(state), path, metadata);
}

void warn_of_bad_values(const StateDict& state, const std::string& file) {
  std::vector<std::string> bad;
  for (const NamedTensor& n : state) {
    if (!n.tensor.defined() || n.tensor.device().is_meta() || !n.tensor.is_floating_point()) continue;
    const ValueCounts c = count_values(n.tensor);
    if (c.any_not_finite()) bad.push_back(joined(printable(n.name), " (", c.nan + c.inf(), " of ", c.numel, ')'));
  }
  if (bad.empty()) return;
  logging::warn(joined(file, ": ", bad.size(), bad.size() == 1 ? " tensor holds" : " tensors hold",
                       " NaN or infinity: ", list_text(bad), "; a model with such weights answers NaN"));
}

StateForModule read_state(const Module& module, const std::filesystem::path& path, const LoadOptions& options) {
  return state_for(module, read_weight_file(path, options.key), options);
}

LoadReport load(Module& module, const std::filesystem::path& path, const LoadOptions& options) {
  StateForModule read = read_state(module, path, options);
  warn_of_bad_values(read.state, path.string());
  if (!options.device) return module.load_state_dict(read.state, options.strict);
  const StateDict own = module.state_tensors();
  const bool is_on_meta = std::any_of(own.begin(), own.end(), [](const NamedTensor& n) { return n.tensor.device().is_meta(); });
  if (is_on_meta && !options.device->is_meta()) {
    const LoadReport fits = module.load_state_dict(read.state, options.strict);  // on meta it only compares
    const bool is_complete = fits.missing.empty() && read.skipped.empty();
    check<ValueError>(is_complete, "load", "a module on the device meta needs all its tensors, but ", path.string(), " lacks ",
                      fits.missing.size() + read.skipped.size(), " of them, the first of which is ",
                      is_complete            ? ""
                      : fits.missing.empty() ? read.skipped.front()
                                             : fits.missing.front());
    module.to_empty(*options.device);
  }
  module.to(*options.device);
  if (!read.skipped.empty()) read = read_state(module, path, options);  // again: the module's tensors have their device now
  return module.load_state_dict(read.state, options.strict);
}

}  // namespace halfstep
