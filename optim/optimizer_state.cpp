// SPDX-License-Identifier: Apache-2.0
// Optimizer::state_dict and load_state_dict.
#include <algorithm>
#include <charconv>
#include <system_error>

#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"
#include "optim/optimizer.h"

namespace halfstep {
namespace {

struct Key {
  size_t param;
  std::string name;
};

// "12.exp_avg" -> {12, "exp_avg"}
std::optional<Key> parse_key(const std::string& key) {
  const size_t dot = key.find('.');
  if (dot == std::string::npos || dot + 1 == key.size()) return {};
  size_t param = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + dot, param);
  if (error != std::errc() || end != key.data() + dot) return {};
  return Key{param, key.substr(dot + 1)};
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::map<std::string, Tensor> Optimizer::state_dict() const {
  std::map<std::string, Tensor> out;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const size_t end = g + 1 < groups_.size() ? first_param_[g + 1] : state_.size();
    for (size_t i = first_param_[g]; i < end; ++i) {
      const std::string prefix = std::to_string(i) + ".";
      for (const auto& [name, t] : state_[i]) out[prefix + name] = t;
      if (const auto step = state_[i].find("step"); derived_name() && step != state_[i].end())
        out[prefix + derived_name()] = derived(g, step->second);
    }
  }
  return out;
}

// The names of the states of each parameter, those of followers among them.
std::vector<std::vector<std::string>> Optimizer::all_state_names() const {
  std::vector<std::vector<std::string>> names;
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (const Tensor& p : groups_[g].params) names.push_back(state_names(g, p));
    for (size_t i = first_param_[g]; i < names.size() && !names[i].empty(); ++i) {
      for (const Follower* f : followers_) {
        for (std::string& name : f->state_names()) names[i].push_back(std::move(name));
      }
    }
  }
  return names;
}

void Optimizer::load_state_dict(const std::map<std::string, Tensor>& given) {
  const std::vector<Tensor> params = parameters();
  const std::vector<std::vector<std::string>> names = all_state_names();
  std::vector<std::map<std::string, Tensor>> by_param(params.size());
  std::ostringstream problems;
  int count = 0;
  const auto follows = [&](const std::string& name) {
    return std::any_of(followers_.begin(), followers_.end(), [&](const Follower* f) { return contains(f->state_names(), name); });
  };
  const auto is_derived = [&](const std::string& name) { return derived_name() && name == derived_name(); };
  // A follower may begin before the first step.
  const auto stepped = [&](size_t param) {
    return std::any_of(by_param[param].begin(), by_param[param].end(), [&](const auto& entry) { return !follows(entry.first); });
  };
  const auto problem = [&](const auto&... parts) {
    problems << "\n  ";
    (problems << ... << parts);
    ++count;
  };

  for (const auto& [key, t] : given) {
    const std::optional<Key> at = parse_key(key);
    if (!at) {
      problem(key, ": a key must be <parameter>.<name>, as in 0.step");
    } else if (at->param >= params.size()) {
      problem(key, ": the optimizer has ", params.size(), " parameters");
    } else if (!names[at->param].empty() && !contains(names[at->param], at->name)) {
      problem(key, ": ", describe(), " has no such state");
    } else if (!t.defined()) {
      problem(key, ": undefined");
    } else if (const auto want = state_layout(at->name, params[at->param]); want && t.shape() != want->shape) {
      problem(key, ": must be ", want->shape, ", got ", t.shape());
    } else {
      by_param[at->param][at->name] = t;
    }
  }
  for (size_t i = 0; i < params.size(); ++i) {
    if (!stepped(i)) continue;
    for (const std::string& name : names[i]) {
      if (!by_param[i].contains(name) && !may_lack(name) && !is_derived(name)) problem(i, ".", name, ": missing");
    }
  }
  check<ValueError>(count == 0, "optimizer.load_state_dict", "the state does not fit ", describe(), ":", problems.str());

  NoGrad off;
  for (size_t i = 0; i < params.size(); ++i) {
    std::map<std::string, Tensor>& old = state_[i];
    states_dropped_ += int64_t(std::erase_if(old, [&](const auto& entry) { return !by_param[i].contains(entry.first); }));
    if (derived_name()) by_param[i].erase(derived_name());
    for (const auto& [name, t] : by_param[i]) {
      const auto layout = state_layout(name, params[i]);
      Tensor& mine = state(i, name, t.shape(), layout ? layout->dtype : t.dtype());
      if (!mine.same(t)) mine.copy_(t);
    }
    // PyTorch's SGD keeps no step count, but a momentum buffer means that there was one.
    const bool counts = contains(names[i], "step") && !by_param[i].contains("step");
    if (counts && stepped(i)) state(i, "step", {}, DType::f32).fill_(1);
  }
}

}  // namespace halfstep
