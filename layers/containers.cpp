// SPDX-License-Identifier: Apache-2.0
#include "layers/containers.h"

#include "framework/base/near_name.h"

namespace halfstep {
namespace {

[[noreturn]] void fail_unknown(const char* where, const std::string& name, const std::vector<std::string>& known) {
  const std::string near = nearest_name(name, known);
  fail<ValueError>(where, "there is no \"", name, '"', near.empty() ? "" : "; did you mean \"" + near + "\"?");
}

// A parameter with memory of its own.
Tensor copied(const Tensor& t) { return t.detach().clone(); }

}  // namespace

const std::shared_ptr<Module>& ModuleList::operator[](size_t i) const {
  check<IndexError>(i < size(), "ModuleList", "index must be below ", size(), ", got ", i);
  return children()[i].second;
}

std::shared_ptr<Module> ModuleList::clone() const {
  auto copy = std::make_shared<ModuleList>();
  for (const auto& [name, child] : children()) copy->push_back(child->clone());
  copy_modes(*copy);
  return copy;
}

bool ModuleDict::contains(const std::string& name) const {
  for (const auto& [mine, child] : children()) {
    if (mine == name) return true;
  }
  return false;
}

const std::shared_ptr<Module>& ModuleDict::operator[](const std::string& name) const {
  std::vector<std::string> known;
  for (const auto& entry : children()) {
    if (entry.first == name) return entry.second;
    known.push_back(entry.first);
  }
  fail_unknown("ModuleDict", name, known);
}

std::shared_ptr<Module> ModuleDict::clone() const {
  auto copy = std::make_shared<ModuleDict>();
  for (const auto& [name, child] : children()) copy->insert(name, child->clone());
  copy_modes(*copy);
  return copy;
}

const Tensor& ParameterList::operator[](size_t i) const {
  check<IndexError>(i < size(), "ParameterList", "index must be below ", size(), ", got ", i);
  return list_[i];
}

std::shared_ptr<Module> ParameterList::clone() const {
  auto copy = std::make_shared<ParameterList>();
  for (const Tensor& t : list_) {
    copy->push_back(copied(t));
    copy->list_.back().set_requires_grad(t.requires_grad());
  }
  copy_modes(*copy);
  return copy;
}

bool ParameterDict::contains(const std::string& name) const {
  for (const NamedTensor& p : list_) {
    if (p.name == name) return true;
  }
  return false;
}

const Tensor& ParameterDict::operator[](const std::string& name) const {
  std::vector<std::string> known;
  for (const NamedTensor& p : list_) {
    if (p.name == name) return p.tensor;
    known.push_back(p.name);
  }
  fail_unknown("ParameterDict", name, known);
}

std::shared_ptr<Module> ParameterDict::clone() const {
  auto copy = std::make_shared<ParameterDict>();
  for (const NamedTensor& p : list_) {
    copy->insert(p.name, copied(p.tensor));
    copy->list_.back().tensor.set_requires_grad(p.tensor.requires_grad());
  }
  copy_modes(*copy);
  return copy;
}

}  // namespace halfstep
