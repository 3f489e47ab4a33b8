// SPDX-License-Identifier: Apache-2.0
#include "layers/containers/containers.h"

#include <algorithm>

#include "framework/base/list_text.h"

namespace halfstep {
namespace {

// Throws ValueError with the nearest of the existing names.
[[noreturn]] void fail_unknown(const char* where, const std::string& name, const std::vector<std::string>& known) {
  const std::string near = nearest_name(name, known);
  fail<ValueError>(where, "there is no \"", name, '"', near.empty() ? "" : "; did you mean \"" + near + "\"?");
}

}  // namespace

Part<Module> ModuleList::operator[](int64_t i) const {
  const int64_t n = int64_t(size());
  check<IndexError>(-n <= i && i < n, "ModuleList", "index must be below ", n, ", got ", i);
  return Part<Module>(child_slots()[size_t(i < 0 ? i + n : i)]);
}

bool ModuleDict::contains(const std::string& name) const {
  for (const auto& slot : child_slots()) {
    if (slot->name == name) return true;
  }
  return false;
}

Part<Module> ModuleDict::operator[](const std::string& name) const {
  std::vector<std::string> known;
  for (const auto& slot : child_slots()) {
    if (slot->name == name) return Part<Module>(slot);
    known.push_back(slot->name);
  }
  fail_unknown("ModuleDict", name, known);
}

const Tensor& ParameterList::operator[](size_t i) const {
  check<IndexError>(i < size(), "ParameterList", "index must be below ", size(), ", got ", i);
  return own_parameter(i);
}

void ParameterList::replace(size_t i, const Tensor& t) {
  check<IndexError>(i < size(), "ParameterList", "index must be below ", size(), ", got ", i);
  replace_parameter(i, t);
}

bool ParameterDict::contains(const std::string& name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

size_t ParameterDict::index(const std::string& name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end()) fail_unknown("ParameterDict", name, names_);
  return size_t(found - names_.begin());
}

const Tensor& ParameterDict::operator[](const std::string& name) const { return own_parameter(index(name)); }

void ParameterDict::replace(const std::string& name, const Tensor& t) { replace_parameter(index(name), t); }

}  // namespace halfstep
