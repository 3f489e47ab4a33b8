// SPDX-License-Identifier: Apache-2.0
#include "apps/session/branch_names.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "apps/schema/issues.h"
#include "layers/containers/graph.h"

namespace halfstep::app {
namespace {

struct Renamed {
  std::string old_prefix, new_prefix;  // of names: "head.0.", "head.left."
};

// Returns the renamed branches, outer ones first, so that inner ones find names that were already replaced.
std::vector<Renamed> branches_of(Module& model) {
  std::vector<Renamed> out;
  for (const auto& [name, module] : model.named_modules()) {
    if (!dynamic_cast<const Parallel*>(module)) continue;
    size_t i = 0;
    for (const auto& child : module->named_children()) {
      const std::string number = std::to_string(i++);
      if (child.first != number) out.push_back({join_path(name, number) + ".", join_path(name, child.first) + "."});
    }
  }
  return out;
}

// Renames the branch's tensors. is_state: before the branch, a name has the part of the run whose state it is, as in
// "optimizer.head.0.weight".
void rename(TensorMap& tensors, const Renamed& branch, bool is_state) {
  TensorMap out;
  for (const auto& [name, tensor] : tensors) {
    const size_t dot = name.find('.'), at = is_state && dot != std::string::npos ? dot + 1 : 0;
    const bool matches = name.compare(at, branch.old_prefix.size(), branch.old_prefix) == 0;
    out[matches ? name.substr(0, at) + branch.new_prefix + name.substr(at + branch.old_prefix.size()) : name] = tensor;
  }
  tensors = std::move(out);
}

}  // namespace

CheckpointContents with_branch_names(CheckpointContents contents, Module& model) {
  const auto has_name_with = [&](const std::string& beginning) {
    const auto at = contents.model.lower_bound(beginning);
    return at != contents.model.end() && at->first.starts_with(beginning);
  };
  for (const Renamed& r : branches_of(model)) {
    if (!has_name_with(r.old_prefix) || has_name_with(r.new_prefix)) continue;
    rename(contents.model, r, false);
    rename(contents.state, r, true);
  }
  return contents;
}

}  // namespace halfstep::app
