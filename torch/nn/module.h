// SPDX-License-Identifier: Apache-2.0
// torch::nn::Module, holders and Cloneable. A holder is a shared_ptr: copies are the same module. (A module of halfstep is a
// value.)
#pragma once

#include "torch/autograd/function.h"
#include "torch/nn/ordered_dict.h"

namespace torch {

namespace serialize {
class InputArchive;
class OutputArchive;
}  // namespace serialize

namespace nn {

class Module;
struct ModuleHolderIndicator {};
template <class T>
concept IsHolder = std::is_base_of_v<ModuleHolderIndicator, std::decay_t<T>>;
template <class C>
class ModuleHolder;

class Module : public std::enable_shared_from_this<Module> {
 public:
  using ModuleApplyFunction = std::function<void(Module&)>;
  using ConstModuleApplyFunction = std::function<void(const Module&)>;
  using NamedModuleApplyFunction = std::function<void(const std::string&, Module&)>;
  using ConstNamedModuleApplyFunction = std::function<void(const std::string&, const Module&)>;
  using ModulePointerApplyFunction = std::function<void(const std::shared_ptr<Module>&)>;
  using NamedModulePointerApplyFunction = std::function<void(const std::string&, const std::shared_ptr<Module>&)>;

  Module() : parameters_("Parameter"), buffers_("Buffer"), children_("Submodule") {}
  explicit Module(std::string name) : Module() { name_ = std::move(name); }
  Module(const Module&) = default;
  Module& operator=(const Module&) = default;
  Module(Module&&) noexcept = default;
  Module& operator=(Module&&) noexcept = default;
  virtual ~Module() = default;

  const std::string& name() const noexcept;
  virtual std::shared_ptr<Module> clone(const std::optional<Device>& device = {}) const;
  void apply(const ModuleApplyFunction& f);
  void apply(const ConstModuleApplyFunction& f) const;
  void apply(const NamedModuleApplyFunction& f, const std::string& prefix = "");
  void apply(const ConstNamedModuleApplyFunction& f, const std::string& prefix = "") const;
  void apply(const ModulePointerApplyFunction& f) const;
  void apply(const NamedModulePointerApplyFunction& f, const std::string& prefix = "") const;

  std::vector<Tensor> parameters(bool recurse = true) const;
  OrderedDict<std::string, Tensor> named_parameters(bool recurse = true) const;
  std::vector<Tensor> buffers(bool recurse = true) const;
  OrderedDict<std::string, Tensor> named_buffers(bool recurse = true) const;
  std::vector<std::shared_ptr<Module>> modules(bool include_self = true) const;
  OrderedDict<std::string, std::shared_ptr<Module>> named_modules(const std::string& prefix = "", bool include_self = true) const;
  std::vector<std::shared_ptr<Module>> children() const { return children_.values(); }
  OrderedDict<std::string, std::shared_ptr<Module>> named_children() const { return children_; }

  virtual void train(bool on = true);
  void eval() { train(false); }
  virtual bool is_training() const noexcept { return training_; }
  virtual void to(Device device, ScalarType dtype, bool non_blocking = false);
  virtual void to(ScalarType dtype, bool non_blocking = false);
  virtual void to(Device device, bool non_blocking = false);
  virtual void zero_grad(bool set_to_none = true);
  virtual void save(serialize::OutputArchive& archive) const;
  virtual void load(serialize::InputArchive& archive);
  virtual void pretty_print(std::ostream& out) const { out << name(); }
  virtual bool is_serializable() const { return true; }

  template <class M>
  auto as() noexcept {
    if constexpr (IsHolder<M>)
      return dynamic_cast<typename M::ContainedType*>(this);
    else
      return dynamic_cast<M*>(this);
  }
  template <class M>
  auto as() const noexcept {
    if constexpr (IsHolder<M>)
      return dynamic_cast<const typename M::ContainedType*>(this);
    else
      return dynamic_cast<const M*>(this);
  }

  Tensor& register_parameter(std::string name, Tensor t, bool requires_grad = true);
  Tensor& register_buffer(std::string name, Tensor t);
  template <class M>
  std::shared_ptr<M> register_module(std::string name, std::shared_ptr<M> m) {
    put_child(std::move(name), m);
    return m;
  }
  template <class C>
  std::shared_ptr<C> register_module(std::string name, ModuleHolder<C> m) {
    return register_module(std::move(name), m.ptr());
  }
  template <class M>
  std::shared_ptr<M> replace_module(const std::string& name, std::shared_ptr<M> m) {
    children_[name] = std::shared_ptr<Module>(m);
    return m;
  }
  template <class C>
  std::shared_ptr<C> replace_module(const std::string& name, ModuleHolder<C> m) {
    return replace_module(name, m.ptr());
  }
  void unregister_module(const std::string& name);

 protected:
  OrderedDict<std::string, Tensor> parameters_;

 private:
  template <class>
  friend class Cloneable;
  template <class M, class R, class C, class... A>
  friend struct AnyHolder;
  friend std::ostream& operator<<(std::ostream& out, const Module& m) {
    m.print_tree(out, "");
    return out;
  }
  virtual void clone_(Module&, const std::optional<Device>&) {}
  // Makes `copy`, which is a copy with this module's tensors and children, independent: reset() has made it tensors of its own.
  void fill_clone(Module& copy, const std::optional<Device>& device) const;
  std::shared_ptr<Module> self() const;
  void put_child(std::string name, std::shared_ptr<Module> m);
  void each(const std::string& prefix, const NamedModulePointerApplyFunction& f) const;
  OrderedDict<std::string, Tensor> list(OrderedDict<std::string, Tensor> Module::*of, bool recurse) const;
  void convert(std::optional<Device> device, std::optional<ScalarType> dtype);
  void print_tree(std::ostream& out, const std::string& indent) const;
  OrderedDict<std::string, Tensor> buffers_;
  OrderedDict<std::string, std::shared_ptr<Module>> children_;
  mutable std::optional<std::string> name_;
  bool training_ = true;
};

template <class Derived>
class Cloneable : public Module {
 public:
  using Module::Module;
  virtual void reset() = 0;
  std::shared_ptr<Module> clone(const std::optional<Device>& device = {}) const override {
    NoGradGuard no_grad;
    auto copy = std::make_shared<Derived>(static_cast<const Derived&>(*this));
    copy->parameters_.clear();
    copy->buffers_.clear();
    copy->children_.clear();
    copy->reset();
    this->fill_clone(*copy, device);
    return copy;
  }

 private:
  void clone_(Module& other, const std::optional<Device>& device) final {
    auto copy = std::dynamic_pointer_cast<Derived>(other.clone(device));
    TORCH_CHECK(copy != nullptr,
                "Attempted to clone submodule, but it is of a different type than the submodule it was to be cloned into");
    static_cast<Derived&>(*this) = *copy;
  }
};

// The module is held by a pointer to void: a std::shared_ptr of each of the layers would cost every program half a second to
// compile.
template <class C>
class ModuleHolder : ModuleHolderIndicator {
  std::shared_ptr<void> held_;

 public:
  using ContainedType = C;
  ModuleHolder() : held_(default_construct()) {}
  ModuleHolder(std::nullptr_t) {}
  template <class Head, class... Tail>
  requires(!std::conjunction_v<std::bool_constant<sizeof...(Tail) == 0>,
                               std::disjunction<std::is_base_of<ModuleHolder<C>, std::decay_t<Head>>,
                                                std::is_convertible<Head, std::shared_ptr<C>>>>) &&
      std::is_constructible_v<C, Head, Tail...> explicit ModuleHolder(Head&& head, Tail&&... tail)
      : held_(std::make_shared<C>(std::forward<Head>(head), std::forward<Tail>(tail)...)) {}
  ModuleHolder(std::shared_ptr<C> m) : held_(std::move(m)) {}
  explicit operator bool() const noexcept { return held_ != nullptr; }
  C* operator->() { return get(); }
  const C* operator->() const { return get(); }
  C& operator*() { return *get(); }
  const C& operator*() const { return *get(); }
  std::shared_ptr<C> ptr() const { return {held_, const_cast<C*>(get())}; }
  C* get() { return const_cast<C*>(std::as_const(*this).get()); }
  const C* get() const {
    TORCH_CHECK(held_ != nullptr, "Accessing empty ModuleHolder");
    return static_cast<const C*>(held_.get());
  }
  template <class... A, class M = C>
  auto operator()(A&&... a) -> decltype(std::declval<M&>().forward(std::forward<A>(a)...)) {
    return get()->forward(std::forward<A>(a)...);
  }
  template <class A, class M = C>
  requires requires(M& c, A&& a) { c[std::forward<A>(a)]; }
  decltype(auto) operator[](A&& a) { return (*get())[std::forward<A>(a)]; }
  bool is_empty() const noexcept { return held_ == nullptr; }

 private:
  static std::shared_ptr<void> default_construct() {
    if constexpr (std::is_default_constructible_v<C>)
      return std::make_shared<C>();
    else
      return nullptr;
  }
};
template <class C>
std::ostream& operator<<(std::ostream& out, const ModuleHolder<C>& m) {
  return out << *m;
}
}  // namespace nn

}  // namespace torch
