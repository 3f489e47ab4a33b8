// SPDX-License-Identifier: Apache-2.0
// Lists and maps of modules and of parameters.
#pragma once

#include "torch/nn/sequential.h"

namespace torch::nn {

class ModuleListImpl : public Cloneable<ModuleListImpl> {
 public:
  using Iterator = std::vector<std::shared_ptr<Module>>::iterator;
  using ConstIterator = std::vector<std::shared_ptr<Module>>::const_iterator;
  ModuleListImpl() = default;
  template <class... M>
  requires(sizeof...(M) > 0 && !(std::is_same_v<std::decay_t<M>, ModuleListImpl> || ...)) explicit ModuleListImpl(M&&... m) {
    (push_back(std::forward<M>(m)), ...);
  }
  std::shared_ptr<Module> clone(const std::optional<Device>& device = {}) const override {
    auto out = std::make_shared<ModuleListImpl>();
    for (const auto& m : modules_) out->push_back(m->clone(device));
    return out;
  }
  void reset() override {}
  void pretty_print(std::ostream& out) const override { out << "torch::nn::ModuleList"; }
  void push_back(std::shared_ptr<Module> m) {
    modules_.push_back(std::move(m));
    register_module(std::to_string(modules_.size() - 1), modules_.back());
  }
  template <class M>
  requires std::is_base_of_v<Module, std::decay_t<M>>
  void push_back(M&& m) { push_back(std::shared_ptr<Module>(std::make_shared<std::decay_t<M>>(std::forward<M>(m)))); }
  template <class C>
  void push_back(const ModuleHolder<C>& h) {
    push_back(std::shared_ptr<Module>(h.ptr()));
  }
  template <class Container>
  void extend(const Container& c) {
    for (const auto& m : c) push_back(m);
  }
  Iterator begin() { return modules_.begin(); }
  Iterator end() { return modules_.end(); }
  ConstIterator begin() const { return modules_.begin(); }
  ConstIterator end() const { return modules_.end(); }
  template <class T>
  T& at(size_t i) {
    return *ptr<T>(i);
  }
  template <class T>
  const T& at(size_t i) const {
    return *ptr<T>(i);
  }
  std::shared_ptr<Module> ptr(size_t i) const {
    TORCH_CHECK(i < size(), "Index out of range");
    return modules_[i];
  }
  template <class T>
  std::shared_ptr<T> ptr(size_t i) const {
    TORCH_CHECK(i < size(), "Index out of range");
    auto m = std::dynamic_pointer_cast<T>(modules_[i]);
    TORCH_CHECK(m, "Unable to cast module[", i, "] to ", demangle(typeid(T).name()));
    return m;
  }
  std::shared_ptr<Module> operator[](size_t i) const { return ptr(i); }
  size_t size() const noexcept { return modules_.size(); }
  bool is_empty() const noexcept { return modules_.empty(); }
  template <class M>
  void insert(size_t i, const std::shared_ptr<M>& m) {
    TORCH_CHECK(i <= size(), "Index out of range");
    if (i == size()) return push_back(std::shared_ptr<Module>(m));
    modules_.insert(modules_.begin() + Iterator::difference_type(i), m);
    for (size_t k = i; k + 1 < size(); ++k) replace_module(std::to_string(k), modules_[k]);
    register_module(std::to_string(size() - 1), modules_.back());
  }
  template <class C>
  void insert(size_t i, const ModuleHolder<C>& h) {
    insert(i, h.ptr());
  }
  template <class M>
  requires std::is_base_of_v<Module, std::decay_t<M>>
  void insert(size_t i, M&& m) { insert(i, std::make_shared<std::decay_t<M>>(std::forward<M>(m))); }

 private:
  std::vector<std::shared_ptr<Module>> modules_;
};
TORCH_MODULE(ModuleList);

class ModuleDictImpl : public Cloneable<ModuleDictImpl> {
 public:
  using Items = std::vector<std::pair<std::string, std::shared_ptr<Module>>>;
  ModuleDictImpl() = default;
  explicit ModuleDictImpl(const Items& m) { update(m); }
  explicit ModuleDictImpl(const OrderedDict<std::string, std::shared_ptr<Module>>& m) { update(m); }
  Items items() const { return modules_.pairs(); }
  std::vector<std::string> keys() const { return modules_.keys(); }
  std::vector<std::shared_ptr<Module>> values() const { return modules_.values(); }
  auto begin() { return modules_.begin(); }
  auto end() { return modules_.end(); }
  auto begin() const { return modules_.begin(); }
  auto end() const { return modules_.end(); }
  size_t size() const noexcept { return modules_.size(); }
  bool empty() const noexcept { return modules_.is_empty(); }
  bool contains(const std::string& key) const noexcept { return modules_.contains(key); }
  void clear() {
    for (const auto& k : keys()) unregister_module(k);
    modules_.clear();
  }
  std::shared_ptr<Module> clone(const std::optional<Device>& device = {}) const override {
    auto out = std::make_shared<ModuleDictImpl>();
    for (const auto& m : modules_) out->insert(m.key(), m.value()->clone(device));
    return out;
  }
  void reset() override {}
  void pretty_print(std::ostream& out) const override { out << "torch::nn::ModuleDict"; }
  std::shared_ptr<Module> operator[](const std::string& key) const { return modules_[key]; }
  template <class T>
  T& at(const std::string& key) {
    auto m = std::dynamic_pointer_cast<T>(modules_[key]);
    TORCH_CHECK(m, "Unable to cast module[", key, "] to ", demangle(typeid(T).name()));
    return *m;
  }
  template <class T>
  const T& at(const std::string& key) const {
    return const_cast<ModuleDictImpl*>(this)->at<T>(key);
  }
  std::shared_ptr<Module> pop(const std::string& key) {
    auto m = modules_[key];
    modules_.erase(key);
    unregister_module(key);
    return m;
  }
  void update(const Items& m) {
    for (const auto& i : m) insert(i.first, i.second);
  }
  template <class Container>
  void update(const Container& c) {
    for (const auto& i : c) insert(i.key(), i.value());
  }

 private:
  void insert(const std::string& key, std::shared_ptr<Module> m) {
    if (contains(key)) {
      modules_[key] = m;
      replace_module(key, m);
    } else {
      modules_.insert(key, m);
      register_module(key, m);
    }
  }
  OrderedDict<std::string, std::shared_ptr<Module>> modules_;
};
TORCH_MODULE(ModuleDict);

class ParameterDictImpl : public Cloneable<ParameterDictImpl> {
 public:
  ParameterDictImpl() = default;
  explicit ParameterDictImpl(const OrderedDict<std::string, Tensor>& p) {
    for (const auto& item : p) insert(item.key(), item.value());
  }
  void reset() override { parameters_.clear(); }
  void pretty_print(std::ostream& out) const override {
    out << "torch::nn::ParameterDict(" << std::endl;
    for (const auto& p : parameters_) {
      out << "(" << p.key() << ")"
          << ": Parameter containing: [" << p.value().scalar_type() << " of size " << p.value().sizes() << "]" << std::endl;
    }
    out << ")";
  }
  Tensor& insert(std::string key, Tensor p) { return register_parameter(std::move(key), p, p.requires_grad()); }
  Tensor pop(const std::string& key) {
    Tensor out = parameters_[key];
    parameters_.erase(key);
    return out;
  }
  std::vector<std::string> keys() const { return parameters_.keys(); }
  std::vector<Tensor> values() const { return parameters_.values(); }
  auto begin() { return parameters_.begin(); }
  auto end() { return parameters_.end(); }
  auto begin() const { return parameters_.begin(); }
  auto end() const { return parameters_.end(); }
  size_t size() const noexcept { return parameters_.size(); }
  bool empty() const noexcept { return parameters_.is_empty(); }
  template <class Container>
  void update(const Container& c) {
    for (const auto& item : c) parameters_[item.key()] = item.value();  // throws for a key that is not there
  }
  void clear() { parameters_.clear(); }
  bool contains(const std::string& key) const noexcept { return parameters_.contains(key); }
  const Tensor& get(const std::string& key) const { return parameters_[key]; }
  Tensor& get(const std::string& key) { return parameters_[key]; }
  Tensor& operator[](const std::string& key) { return parameters_[key]; }
  const Tensor& operator[](const std::string& key) const { return parameters_[key]; }
};
TORCH_MODULE(ParameterDict);

class ParameterListImpl : public Cloneable<ParameterListImpl> {
 public:
  using Iterator = OrderedDict<std::string, Tensor>::Iterator;
  ParameterListImpl() = default;
  template <class... T>
  requires(sizeof...(T) > 0 && (std::is_same_v<std::decay_t<T>, Tensor> && ...)) explicit ParameterListImpl(T&&... t) {
    (append(std::forward<T>(t)), ...);
  }
  void reset() override { parameters_.clear(); }
  void pretty_print(std::ostream& out) const override {
    out << "torch::nn::ParameterList(" << std::endl;
    for (const auto& p : parameters_) {
      out << "(" << p.key() << ")"
          << ": Parameter containing: [" << p.value().scalar_type() << " of size " << p.value().sizes() << "]";
      out << std::endl;
    }
    out << ")";
  }
  void append(Tensor t) { register_parameter(std::to_string(parameters_.size()), t, t.requires_grad()); }
  void append(const OrderedDict<std::string, Tensor>::Item& i) { append(i.value()); }
  template <class Container>
  void extend(const Container& c) {
    for (const auto& p : c) append(p);
  }
  Iterator begin() { return parameters_.begin(); }
  Iterator end() { return parameters_.end(); }
  auto begin() const { return parameters_.begin(); }
  auto end() const { return parameters_.end(); }
  Tensor& at(size_t i) {
    TORCH_CHECK(i < size(), "Index out of range");
    return parameters_[std::to_string(i)];
  }
  const Tensor& at(size_t i) const { return const_cast<ParameterListImpl*>(this)->at(i); }
  Tensor& operator[](size_t i) { return at(i); }
  const Tensor& operator[](size_t i) const { return at(i); }
  size_t size() const noexcept { return parameters_.size(); }
  bool is_empty() const noexcept { return parameters_.is_empty(); }
  template <class Container>
  Container& operator+=(const Container& other) {
    extend(other);
    return *this;
  }
};
TORCH_MODULE(ParameterList);

class FunctionalImpl : public Cloneable<FunctionalImpl> {
 public:
  using Function = std::function<Tensor(Tensor)>;
  explicit FunctionalImpl(Function f) : function_(std::move(f)) {}
  template <class F, class... A>
  requires(sizeof...(A) > 0 && std::is_invocable_r_v<Tensor, F, Tensor, std::decay_t<A>...>) explicit FunctionalImpl(F f, A&&... a)
      : function_([f, ... a = std::decay_t<A>(std::forward<A>(a))](Tensor x) -> Tensor { return f(x, a...); }) {}
  void reset() override {}
  void pretty_print(std::ostream& out) const override { out << "torch::nn::Functional()"; }
  Tensor forward(Tensor x) { return function_(std::move(x)); }
  Tensor operator()(Tensor x) { return forward(std::move(x)); }
  bool is_serializable() const override { return false; }

 private:
  Function function_;
};
TORCH_MODULE(Functional);

}  // namespace torch::nn
