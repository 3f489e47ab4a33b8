// SPDX-License-Identifier: Apache-2.0
// Containers of modules and of parameters, which register their elements under PyTorch's names.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layers/module/part.h"

namespace halfstep {

// A list of modules named "0", "1"...; the owner of the list calls them.
//
//   for (const auto& layer : layers) x = layer(x);
//   layers[2] = Linear(8, 8);
class ModuleList : public Module {
 public:
  ModuleList() = default;
  template <ModulePart... Ps>
  explicit ModuleList(Ps&&... modules) {
    (append(std::forward<Ps>(modules)), ...);
  }
  ModuleList(std::initializer_list<AnyModule> modules) { extend(modules); }
  template <ModulePart P>
  ModuleList& append(P&& module) {
    register_listed(std::to_string(size()), as_shared(std::forward<P>(module)));
    return *this;
  }
  template <ModulePart P>
  ModuleList& push_back(P&& module) {
    return append(std::forward<P>(module));
  }
  // Appends the modules of a list, a vector or braces, and shares them.
  template <class List>
  ModuleList& extend(const List& modules) {
    for (const auto& module : modules) append(as_shared(module));
    return *this;
  }
  ModuleList& extend(std::initializer_list<AnyModule> modules) { return extend<>(modules); }
  size_t size() const { return child_slots().size(); }
  bool empty() const { return size() == 0; }
  Part<Module> operator[](int64_t i) const;  // counts from the end for negative i; throws IndexError
  PartIterator begin() const { return PartIterator(child_slots().data()); }
  PartIterator end() const { return PartIterator(child_slots().data() + size()); }
  // Returns the module as an M: `layers.at<TransformerBlock>(i)(x, mask)`. Throws ValueError if it has another type.
  template <class M>
  M& at(size_t i) const {
    return module_as<M>((*this)[int64_t(i)], "ModuleList", "module ", i);
  }
  std::string describe() const override { return "ModuleList"; }
};

// Modules by name.
class ModuleDict : public Module {
 public:
  ModuleDict() = default;
  explicit ModuleDict(const std::vector<std::pair<std::string, AnyModule>>& modules) {
    for (const auto& [name, module] : modules) insert(name, module);
  }
  ModuleDict(std::initializer_list<std::pair<std::string, AnyModule>> modules) {
    for (const auto& [name, module] : modules) insert(name, module);
  }
  template <ModulePart P>
  void insert(const std::string& name, P&& module) {
    register_listed(name, as_shared(std::forward<P>(module)));
  }
  size_t size() const { return child_slots().size(); }
  bool contains(const std::string& name) const;
  Part<Module> operator[](const std::string& name) const;  // throws ValueError with the nearest names
  template <class M>
  M& at(const std::string& name) const {
    return module_as<M>((*this)[name], "ModuleDict", '"', name, '"');
  }
  std::string describe() const override { return "ModuleDict"; }
};

// A list of parameters named "0", "1"...
class ParameterList : public Module {
 public:
  ParameterList() = default;
  explicit ParameterList(const std::vector<Tensor>& parameters) {
    for (const Tensor& t : parameters) push_back(t);
  }
  void push_back(const Tensor& t) { register_parameter(std::to_string(size()), t); }
  size_t size() const { return own_parameters(); }
  const Tensor& operator[](size_t i) const;  // throws IndexError
  void replace(size_t i, const Tensor& t);   // assigns, as to a Parameter
  std::string describe() const override { return "ParameterList"; }
};

// Parameters by name.
class ParameterDict : public Module {
 public:
  ParameterDict() = default;
  explicit ParameterDict(const std::vector<NamedTensor>& parameters) {
    for (const NamedTensor& p : parameters) insert(p.name, p.tensor);
  }
  void insert(const std::string& name, const Tensor& t) { names_.push_back(register_parameter(name, t).slot->name); }
  size_t size() const { return own_parameters(); }
  bool contains(const std::string& name) const;
  const Tensor& operator[](const std::string& name) const;  // throws ValueError with the nearest names
  void replace(const std::string& name, const Tensor& t);   // assigns, as to a Parameter
  std::string describe() const override { return "ParameterDict"; }

 private:
  size_t index(const std::string& name) const;
  std::vector<std::string> names_;
};

}  // namespace halfstep
