// SPDX-License-Identifier: Apache-2.0
#include "amp/diagnosis/precisions.h"

#include <algorithm>

namespace halfstep {
namespace {

void restore_precision(Module& m, std::optional<DType> precision) {
  if (precision)
    m.set_precision(*precision);
  else
    m.clear_precision();
}

}  // namespace

Precisions::Precisions(Module& model) {
  for (const auto& [name, module] : model.named_modules()) {
    modules_.emplace(name, module);
    before_.emplace_back(module, module->precision());
  }
}

Precisions::~Precisions() {
  for (const auto& [module, precision] : before_) restore_precision(*module, precision);
}

bool Precisions::widen(const std::string& path) {
  const auto at = modules_.find(path);
  if (at == modules_.end() || at->second->precision() == DType::f32) return false;
  at->second->set_precision(DType::f32);
  return true;
}

size_t Precisions::index_of(const std::string& path) const {
  Module* const module = modules_.at(path);
  return size_t(std::find_if(before_.begin(), before_.end(), [&](const auto& b) { return b.first == module; }) - before_.begin());
}

void Precisions::put_back(const std::string& path) {
  const auto& [module, precision] = before_[index_of(path)];
  restore_precision(*module, precision);
}

void Precisions::sort(std::vector<std::string>& paths) const {
  std::sort(paths.begin(), paths.end(), [&](const auto& a, const auto& b) { return index_of(a) < index_of(b); });
}

}  // namespace halfstep
