// SPDX-License-Identifier: Apache-2.0
// Modules of any signature, checked when they are called.
#pragma once

#include <any>

#include "torch/nn/module.h"

namespace torch::nn {

// ---- modules of any signature
class AnyValue {
 public:
  AnyValue(AnyValue&&) = default;
  AnyValue(const AnyValue&) = default;
  AnyValue& operator=(AnyValue&&) = default;
  AnyValue& operator=(const AnyValue&) = default;
  template <class T>
  requires(!std::is_same_v<std::decay_t<T>, AnyValue>) explicit AnyValue(T&& v)
      : v_(std::decay_t<T>(std::forward<T>(v))), type_(&typeid(std::decay_t<T>)) {}
  template <class T>
  T* try_get() {
    return std::any_cast<T>(&v_);
  }
  template <class T>
  T get() {
    if (auto* v = try_get<T>()) return *v;
    detail::fail("Attempted to cast AnyValue to ", demangle(typeid(T).name()), ", but its actual type is ",
                 demangle(type_->name()));
  }
  const std::type_info& type_info() const noexcept { return *type_; }

 private:
  std::any v_;
  const std::type_info* type_;
};

struct AnyPlaceholder {
  virtual ~AnyPlaceholder() = default;
  virtual AnyValue forward(std::vector<AnyValue>&& arguments) = 0;
  virtual std::shared_ptr<Module> ptr() = 0;
  virtual const std::type_info& type() const = 0;
  virtual std::unique_ptr<AnyPlaceholder> copy() const = 0;
  virtual std::unique_ptr<AnyPlaceholder> clone_module(std::optional<Device>) const = 0;
};
template <class M, class R, class C, class... A>
struct AnyHolder : AnyPlaceholder {
  explicit AnyHolder(std::shared_ptr<M> m) : module(std::move(m)) {}
  AnyValue forward(std::vector<AnyValue>&& in) override {
    if constexpr (requires(M & m) { m._forward_num_required_args(); }) {
      TORCH_CHECK(in.size() >= module->_forward_num_required_args() && in.size() <= sizeof...(A), module->name(),
                  "'s forward() method expects at least ", module->_forward_num_required_args(), " argument(s) and at most ",
                  sizeof...(A), " argument(s), but received ", in.size(), ".");
      in = module->_forward_populate_default_args(std::move(in));
    } else {
      std::string hint = "";
      TORCH_CHECK(
          in.size() == sizeof...(A), module->name(), "'s forward() method expects ", sizeof...(A), " argument(s), but received ",
          in.size(), ". If ", module->name(),
          "'s forward() method has default arguments, please make sure the forward() method is declared with a corresponding "
          "`FORWARD_HAS_DEFAULT_ARGS` macro.");
    }
    return call(in, std::index_sequence_for<A...>());
  }
  template <size_t... i>
  AnyValue call(std::vector<AnyValue>& in, std::index_sequence<i...>) {
    if constexpr (std::is_void_v<R>) {
      module->forward(take<A>(in, i)...);
      return AnyValue(0);
    } else {
      return AnyValue(module->forward(take<A>(in, i)...));
    }
  }
  template <class T>
  static decltype(auto) take(std::vector<AnyValue>& in, size_t i) {
    using V = std::decay_t<T>;
    V* v = in[i].template try_get<V>();
    TORCH_CHECK(v, "Expected argument #", i, " to be of type ", demangle(typeid(V).name()), ", but received value of type ",
                demangle(in[i].type_info().name()));
    if constexpr (std::is_lvalue_reference_v<T>)
      return static_cast<V&>(*v);
    else
      return V(std::move(*v));
  }
  std::shared_ptr<Module> ptr() override { return module; }
  const std::type_info& type() const override { return typeid(M); }
  std::unique_ptr<AnyPlaceholder> copy() const override { return std::make_unique<AnyHolder>(*this); }
  std::unique_ptr<AnyPlaceholder> clone_module(std::optional<Device> d) const override {
    return std::make_unique<AnyHolder>(std::dynamic_pointer_cast<M>(module->clone(d)));
  }
  std::shared_ptr<M> module;
};
class AnyModule {
 public:
  AnyModule() = default;
  template <class M>
  requires std::is_base_of_v<Module, M>
  explicit AnyModule(std::shared_ptr<M> m) : content_(make(std::move(m), &M::forward)) {}
  template <class M>
  requires std::is_base_of_v<Module, std::decay_t<M>>
  explicit AnyModule(M&& m) : AnyModule(std::make_shared<std::decay_t<M>>(std::forward<M>(m))) {}
  template <class C>
  explicit AnyModule(const ModuleHolder<C>& h) : AnyModule(h.ptr()) {}
  AnyModule(AnyModule&&) = default;
  AnyModule& operator=(AnyModule&&) = default;
  AnyModule(const AnyModule& o) : content_(o.content_ ? o.content_->copy() : nullptr) {}
  AnyModule& operator=(const AnyModule& o) {
    if (this != &o) content_ = o.content_ ? o.content_->copy() : nullptr;
    return *this;
  }
  template <class M>
  requires std::is_base_of_v<Module, M> AnyModule& operator=(std::shared_ptr<M> m) { return *this = AnyModule(std::move(m)); }
  AnyModule clone(std::optional<Device> device = {}) const {
    AnyModule out;
    out.content_ = content_ ? content_->clone_module(device) : nullptr;
    return out;
  }
  template <class... A>
  AnyValue any_forward(A&&... a) {
    TORCH_CHECK(!is_empty(), "Cannot call forward() on an empty AnyModule");
    std::vector<AnyValue> in;
    in.reserve(sizeof...(A));
    (in.push_back(AnyValue(std::forward<A>(a))), ...);
    return content_->forward(std::move(in));
  }
  template <class R = Tensor, class... A>
  R forward(A&&... a) {
    return any_forward(std::forward<A>(a)...).template get<R>();
  }
  template <class T>
  requires std::is_base_of_v<Module, T> T& get() {
    TORCH_CHECK(!is_empty(), "Cannot call get() on an empty AnyModule");
    return get_<T>();
  }
  template <class T>
  requires std::is_base_of_v<Module, T>
  const T& get() const {
    TORCH_CHECK(!is_empty(), "Cannot call get() on an empty AnyModule");
    return get_<T>();
  }
  template <class T>
  requires IsHolder<T> T get()
  const {
    TORCH_CHECK(!is_empty(), "Cannot call get() on an empty AnyModule");
    return T(ptr<typename T::ContainedType>());
  }
  std::shared_ptr<Module> ptr() const {
    TORCH_CHECK(!is_empty(), "Cannot call ptr() on an empty AnyModule");
    return content_->ptr();
  }
  template <class T>
  std::shared_ptr<T> ptr() const {
    TORCH_CHECK(!is_empty(), "Cannot call ptr() on an empty AnyModule");
    get_<T>();
    return std::dynamic_pointer_cast<T>(ptr());
  }
  const std::type_info& type_info() const {
    TORCH_CHECK(!is_empty(), "Cannot call type_info() on an empty AnyModule");
    return content_->type();
  }
  bool is_empty() const noexcept { return content_ == nullptr; }

 private:
  template <class T>
  T& get_() const {
    if (type_info() == typeid(T)) return *std::static_pointer_cast<T>(content_->ptr());
    detail::fail("Attempted to cast module of type ", demangle(type_info().name()), " to type ", demangle(typeid(T).name()));
  }
  template <class M, class R, class C, class... A>
  static std::unique_ptr<AnyPlaceholder> make(std::shared_ptr<M> m, R (C::*)(A...)) {
    return std::make_unique<AnyHolder<M, R, C, A...>>(std::move(m));
  }
  template <class M, class R, class C, class... A>
  static std::unique_ptr<AnyPlaceholder> make(std::shared_ptr<M> m, R (C::*)(A...) const) {
    return std::make_unique<AnyHolder<M, R, C, A...>>(std::move(m));
  }
  std::unique_ptr<AnyPlaceholder> content_;
};
class NamedAnyModule {
 public:
  template <class M>
  requires std::is_base_of_v<Module, M> NamedAnyModule(std::string name, std::shared_ptr<M> m)
      : name_(std::move(name)), module_(std::move(m)) {}
  template <class M>
  requires std::is_base_of_v<Module, std::decay_t<M>> NamedAnyModule(std::string name, M&& m)
      : name_(std::move(name)), module_(std::forward<M>(m)) {}
  template <class C>
  NamedAnyModule(std::string name, const ModuleHolder<C>& h) : name_(std::move(name)), module_(h) {}
  NamedAnyModule(std::string name, AnyModule m) : name_(std::move(name)), module_(std::move(m)) {}
  const std::string& name() const noexcept { return name_; }
  AnyModule& module() noexcept { return module_; }
  const AnyModule& module() const noexcept { return module_; }

 private:
  std::string name_;
  AnyModule module_;
};

#define TORCH_MODULE_IMPL(Name, ImplType)                    \
  class Name : public ::torch::nn::ModuleHolder<ImplType> {  \
   public:                                                   \
    using ::torch::nn::ModuleHolder<ImplType>::ModuleHolder; \
    using Impl = ImplType;                                   \
  }
#define TORCH_MODULE(Name) TORCH_MODULE_IMPL(Name, Name##Impl)

// Which arguments forward may be left without, for AnyModule and Sequential: {index, AnyValue}...
#define FORWARD_HAS_DEFAULT_ARGS(...)                                                                                 \
  template <class M, class R, class C, class... A>                                                                    \
  friend struct ::torch::nn::AnyHolder;                                                                               \
  unsigned int _forward_num_required_args() {                                                                         \
    const std::vector<std::pair<unsigned int, ::torch::nn::AnyValue>> filled{__VA_ARGS__};                            \
    return filled.front().first;                                                                                      \
  }                                                                                                                   \
  std::vector<::torch::nn::AnyValue> _forward_populate_default_args(std::vector<::torch::nn::AnyValue>&& arguments) { \
    const std::vector<std::pair<unsigned int, ::torch::nn::AnyValue>> filled{__VA_ARGS__};                            \
    std::vector<::torch::nn::AnyValue> all(std::move(arguments));                                                     \
    for (const auto& f : filled)                                                                                      \
      if (f.first >= all.size()) all.push_back(f.second);                                                             \
    return all;                                                                                                       \
  }

}  // namespace torch::nn
