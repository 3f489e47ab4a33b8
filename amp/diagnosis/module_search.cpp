// SPDX-License-Identifier: Apache-2.0
#include "amp/diagnosis/module_search.h"

#include <algorithm>
#include <utility>

namespace halfstep {

std::string widen_origin(const StepReplayResult& replay, Precisions& precisions) {
  // Tries the feeding layer too: a gradient that is too large may come from the cast of the module's input.
  for (const std::string& path : {replay.layer, replay.feeding_layer})
    if (!path.empty() && precisions.widen(path)) return path;
  return {};
}

ModuleSearch search_modules(const StepUnderTest& step, const StepReplay& replay, size_t max_modules) {
  ModuleSearch out;
  Precisions precisions(step.module);
  out.replay = replay_step(step, replay);
  while (!out.replay.finite() && out.modules.size() < max_modules) {
    const std::string path = widen_origin(out.replay, precisions);
    if (path.empty()) return out;
    out.modules.push_back(path);
    out.replay = replay_step(step, replay);
  }
  out.holds = out.replay.finite();
  if (!out.holds) return out;
  for (const std::string& path : std::vector<std::string>(out.modules)) {
    if (out.modules.size() == 1) break;
    precisions.put_back(path);
    StepReplayResult without = replay_step(step, replay);
    if (without.finite()) {
      std::erase(out.modules, path);
      out.replay = std::move(without);
    } else {
      precisions.widen(path);
    }
  }
  precisions.sort(out.modules);
  return out;
}

std::string pattern_for(Module& model, const std::string& path) {
  const auto modules = model.named_modules();
  const bool matches_no_other = std::none_of(modules.begin(), modules.end(), [&](const auto& m) {
    const std::string& name = m.first;
    return name.find(path) != std::string::npos && name != path && !name.starts_with(path + ".");
  });
  std::string out;
  for (const char c : path) out += c == '.' ? "\\." : std::string(1, c);
  return matches_no_other ? out : "^" + out + "$";
}

std::string as_setting(Module& model, const std::vector<std::string>& modules) {
  std::string out;
  for (const std::string& path : modules) {
    out += out.empty() ? "\"" : ", \"";
    for (const char c : pattern_for(model, path)) out += c == '\\' ? "\\\\" : std::string(1, c);
    out += R"(": "float32")";
  }
  return joined(R"("amp": {"modules": {)", out, "}}");
}

}  // namespace halfstep
