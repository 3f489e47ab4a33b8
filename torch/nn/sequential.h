// SPDX-License-Identifier: Apache-2.0
// torch::nn::Sequential.
#pragma once

#include "torch/nn/any.h"

namespace torch::nn {

class SequentialImpl : public Cloneable<SequentialImpl> {
 public:
  using Iterator = std::vector<AnyModule>::iterator;
  using ConstIterator = std::vector<AnyModule>::const_iterator;
  SequentialImpl() = default;
  template <class... M>
  requires(sizeof...(M) > 0 && ((std::is_base_of_v<Module, std::decay_t<M>> || IsHolder<M> || requires(M & m) {
             m.get();
             *m;
           } || std::is_same_v<std::decay_t<M>, AnyModule>)&&...)) explicit SequentialImpl(M&&... m) {
    (push_back(std::forward<M>(m)), ...);
  }
  explicit SequentialImpl(OrderedDict<std::string, AnyModule>&& named) {
    for (auto& i : named) push_back(i.key(), std::move(i.value()));
  }
  explicit SequentialImpl(std::initializer_list<NamedAnyModule> named) {
    for (const auto& i : named) push_back(i.name(), i.module());
  }
  std::shared_ptr<Module> clone(const std::optional<Device>& device = {}) const override {
    auto out = std::make_shared<SequentialImpl>();
    for (size_t i = 0; i < modules_.size(); ++i) out->push_back(named_children()[i].key(), modules_[i].clone(device));
    return out;
  }
  void reset() override {}
  void pretty_print(std::ostream& out) const override { out << "torch::nn::Sequential"; }
  template <class R = Tensor, class... A>
  R forward(A&&... a) {
    TORCH_CHECK(!is_empty(), "Cannot call forward() on an empty Sequential");
    auto at = modules_.begin();
    AnyValue v = at->any_forward(std::forward<A>(a)...);
    for (++at; at != modules_.end(); ++at) {
      std::vector<AnyValue> next;
      if (auto* t = v.template try_get<Tensor>())
        v = at->any_forward(std::move(*t));
      else
        v = at->any_forward(std::move(v));
    }
    if (auto* r = v.template try_get<R>()) return std::move(*r);
    detail::fail("The type of the return value is ", demangle(v.type_info().name()), ", but you asked for type ",
                 demangle(typeid(R).name()));
  }
  template <class M>
  requires std::is_base_of_v<Module, M>
  void push_back(std::shared_ptr<M> m) { push_back(std::to_string(modules_.size()), std::move(m)); }
  template <class M>
  requires std::is_base_of_v<Module, M>
  void push_back(std::string name, std::shared_ptr<M> m) { push_back(std::move(name), AnyModule(std::move(m))); }
  template <class M>
  requires std::is_base_of_v<Module, std::decay_t<M>>
  void push_back(M&& m) { push_back(std::to_string(modules_.size()), std::forward<M>(m)); }
  template <class M>
  requires std::is_base_of_v<Module, std::decay_t<M>>
  void push_back(std::string name, M&& m) { push_back(std::move(name), std::make_shared<std::decay_t<M>>(std::forward<M>(m))); }
  template <class C>
  void push_back(const ModuleHolder<C>& h) {
    push_back(std::to_string(modules_.size()), h.ptr());
  }
  template <class C>
  void push_back(std::string name, const ModuleHolder<C>& h) {
    push_back(std::move(name), h.ptr());
  }
  void push_back(AnyModule m) { push_back(std::to_string(modules_.size()), std::move(m)); }
  void push_back(std::string name, AnyModule m) {
    modules_.push_back(std::move(m));
    register_module(std::move(name), modules_.back().ptr());
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
    static_assert(std::is_base_of_v<Module, T>, "Can only call Sequential::at with an nn::Module type");
    TORCH_CHECK(i < size(), "Index out of range");
    return modules_[i].get<T>();
  }
  template <class T>
  const T& at(size_t i) const {
    TORCH_CHECK(i < size(), "Index out of range");
    return modules_[i].get<T>();
  }
  std::shared_ptr<Module> ptr(size_t i) const {
    TORCH_CHECK(i < size(), "Index out of range");
    return modules_[i].ptr();
  }
  template <class T>
  std::shared_ptr<T> ptr(size_t i) const {
    TORCH_CHECK(i < size(), "Index out of range");
    return modules_[i].ptr<T>();
  }
  std::shared_ptr<Module> operator[](size_t i) const { return ptr(i); }
  size_t size() const noexcept { return modules_.size(); }
  bool is_empty() const noexcept { return modules_.empty(); }

 private:
  std::vector<AnyModule> modules_;
};
class Sequential : public ModuleHolder<SequentialImpl> {
 public:
  using ModuleHolder<SequentialImpl>::ModuleHolder;
  using Impl = SequentialImpl;
  Sequential() : ModuleHolder() {}
  Sequential(std::initializer_list<NamedAnyModule> named) : ModuleHolder(std::make_shared<SequentialImpl>(named)) {}
};

}  // namespace torch::nn
