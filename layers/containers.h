// SPDX-License-Identifier: Apache-2.0
// Modules and parameters in lists and maps, registered under the names that PyTorch gives them.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layers/module.h"

namespace halfstep {

// Modules named "0", "1"...; the owner of the list calls them.
class ModuleList : public Module {
 public:
  ModuleList() = default;
  template <ModulePart... Ps>
  explicit ModuleList(Ps&&... modules) {
    (push_back(as_shared(std::forward<Ps>(modules))), ...);
  }
  void push_back(std::shared_ptr<Module> module) { register_module(std::to_string(size()), std::move(module)); }
  template <ModuleValue M>
  void push_back(M&& module) {
    push_back(as_shared(std::move(module)));
  }
  size_t size() const { return children().size(); }
  const std::shared_ptr<Module>& operator[](size_t i) const;  // throws IndexError
  // The module as what it is: `layers.at<TransformerBlock>(i)(x, mask)`. Throws ValueError when it is something else.
  template <class M>
  M& at(size_t i) const {
    auto* const m = dynamic_cast<M*>((*this)[i].get());
    check<ValueError>(m != nullptr, "ModuleList", "module ", i, " is ", (*this)[i]->describe(), ", not of the requested type");
    return *m;
  }
  std::shared_ptr<Module> clone() const override;
  std::string describe() const override { return "ModuleList"; }
};

// Modules under names of the user's.
class ModuleDict : public Module {
 public:
  ModuleDict() = default;
  explicit ModuleDict(std::vector<std::pair<std::string, std::shared_ptr<Module>>> modules) {
    for (auto& [name, module] : modules) insert(name, std::move(module));
  }
  void insert(const std::string& name, std::shared_ptr<Module> module) { register_module(name, std::move(module)); }
  bool contains(const std::string& name) const;
  const std::shared_ptr<Module>& operator[](const std::string& name) const;  // throws ValueError with near names
  template <class M>
  M& at(const std::string& name) const {
    auto* const m = dynamic_cast<M*>((*this)[name].get());
    check<ValueError>(m != nullptr, "ModuleDict", '"', name, "\" is ", (*this)[name]->describe(), ", not of the requested type");
    return *m;
  }
  std::shared_ptr<Module> clone() const override;
  std::string describe() const override { return "ModuleDict"; }
};

// Parameters named "0", "1"...
class ParameterList : public Module {
 public:
  ParameterList() = default;
  explicit ParameterList(const std::vector<Tensor>& parameters) {
    for (const Tensor& t : parameters) push_back(t);
  }
  void push_back(const Tensor& t) { list_.push_back(register_parameter(std::to_string(list_.size()), t)); }
  size_t size() const { return list_.size(); }
  const Tensor& operator[](size_t i) const;  // throws IndexError
  std::shared_ptr<Module> clone() const override;
  std::string describe() const override { return "ParameterList"; }

 private:
  std::vector<Tensor> list_;
};

// Parameters under names of the user's.
class ParameterDict : public Module {
 public:
  ParameterDict() = default;
  explicit ParameterDict(const std::vector<NamedTensor>& parameters) {
    for (const NamedTensor& p : parameters) insert(p.name, p.tensor);
  }
  void insert(const std::string& name, const Tensor& t) { list_.push_back({name, register_parameter(name, t)}); }
  bool contains(const std::string& name) const;
  const Tensor& operator[](const std::string& name) const;  // throws ValueError with near names
  std::shared_ptr<Module> clone() const override;
  std::string describe() const override { return "ParameterDict"; }

 private:
  std::vector<NamedTensor> list_;
};

}  // namespace halfstep
