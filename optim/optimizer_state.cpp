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

}  // namespace

std::map<std::string, Tensor> Optimizer::state_dict() const {
  std::map<std::string, Tensor> out;
  for (size_t i = 0; i < state_.size(); ++i) {
    for (const auto& [name, t] : state_[i]) out[std::to_string(i) + "." + name] = t;
  }
  return out;
}

void Optimizer::load_state_dict(const std::map<std::string, Tensor>& state) {
  const std::vector<Tensor> params = parameters();
  const std::vector<std::string> names = state_names();
  std::vector<std::map<std::string, Tensor>> by_param(params.size());
  std::ostringstream problems;
  int count = 0;
  const auto problem = [&](const auto&... parts) {
    problems << "\n  ";
    (problems << ... << parts);
    ++count;
  };

  for (const auto& [key, t] : state) {
    const std::optional<Key> at = parse_key(key);
    if (!at) {
      problem(key, ": a key must be <parameter>.<name>, as in 0.step");
    } else if (at->param >= params.size()) {
      problem(key, ": the optimizer has ", params.size(), " parameters");
    } else if (!names.empty() && std::find(names.begin(), names.end(), at->name) == names.end()) {
      problem(key, ": ", describe(), " has no such state");
    } else if (!t.defined()) {
      problem(key, ": undefined");
    } else if (const Shape want = at->name == "step" ? Shape{} : params[at->param].shape(); t.shape() != want) {
      problem(key, ": must be ", want, ", got ", t.shape());
    } else {
      by_param[at->param][at->name] = t;
    }
  }
  for (size_t i = 0; i < params.size(); ++i) {
    if (by_param[i].empty()) continue;
    for (const std::string& name : names) {
      // PyTorch's SGD keeps no step count, but a momentum buffer means that there was one.
      if (!by_param[i].contains(name) && name != "step") problem(i, ".", name, ": missing");
    }
  }
  check<ValueError>(count == 0, "optimizer.load_state_dict", "the state does not fit ", describe(), ":", problems.str());

  NoGrad off;
  for (size_t i = 0; i < params.size(); ++i) {
    std::map<std::string, Tensor>& old = state_[i];
    states_dropped_ += int64_t(std::erase_if(old, [&](const auto& entry) { return !by_param[i].contains(entry.first); }));
    const DType moment = params[i].dtype() == DType::f64 ? DType::f64 : DType::f32;
    for (const auto& [name, t] : by_param[i]) {
      Tensor& mine = this->state(i, name, t.shape(), name == "step" ? DType::f32 : moment);
      if (!mine.same(t)) mine.copy_(t);
    }
    if (!by_param[i].empty() && !by_param[i].contains("step")) this->state(i, "step", {}, DType::f32).fill_(1);
  }
}

}  // namespace halfstep
