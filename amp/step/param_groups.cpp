// SPDX-License-Identifier: Apache-2.0
#include "amp/step/param_groups.h"

#include <set>
#include <utility>

#include "layers/feedforward/normalization.h"

namespace halfstep {
namespace {

bool is_normalization(const Module& m) {
  return dynamic_cast<const RunningNorm*>(&m) || dynamic_cast<const LayerNorm*>(&m) || dynamic_cast<const RMSNorm*>(&m) ||
         dynamic_cast<const GroupNorm*>(&m);
}

bool is_bias(const std::string& name) {
  const std::string own = name.substr(name.rfind('.') + 1);
  return own.starts_with("bias") || own.ends_with("_bias");
}

void collect(const Module& m, const std::string& prefix, std::set<std::string>& names) {
  const bool norm = is_normalization(m);
  if (norm) {
    for (const NamedTensor& p : m.named_parameters(prefix)) names.insert(p.name);
  }
  for (const auto& [name, child] : m.named_children()) collect(*child, prefix.empty() ? name : prefix + "." + name, names);
}

}  // namespace

std::vector<std::string> norms_and_biases(const Module& model) {
  std::set<std::string> names;
  collect(model, "", names);
  for (const NamedTensor& p : model.named_parameters()) {
    if (is_bias(p.name)) names.insert(p.name);
  }
  return {names.begin(), names.end()};
}

std::vector<ParamGroup> groups_without_decay(const Module& model) {
  const std::vector<std::string> names = norms_and_biases(model);
  const std::set<std::string> spared(names.begin(), names.end());
  ParamGroup decaying, rest{.params = {}, .lr = {}, .weight_decay = 0.0};
  for (const NamedTensor& p : model.named_parameters()) (spared.contains(p.name) ? rest : decaying).params.push_back(p.tensor);
  std::vector<ParamGroup> out;
  for (ParamGroup* group : {&decaying, &rest}) {
    if (!group->params.empty()) out.push_back(std::move(*group));
  }
  return out;
}

}  // namespace halfstep
