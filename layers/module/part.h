// SPDX-License-Identifier: Apache-2.0
// Part: a module as a member of another. One line names, constructs and registers it:
//
//   struct Net : Module {
//     Part<Conv2d> conv{this, "conv", 3, 16, 3};                               // the arguments of Conv2d
//     Part<Conv2d> half{this, "half", Conv2d(16, 16, 3, {.stride = 2})};       // by value, for options in braces
//     Part<Module> act{this, "act", wide ? AnyModule(GELU()) : AnyModule(ReLU())};
//     Part<Linear> fc;                                                         // fc = add("fc", Linear(in, 10)) in the constructor
//     Tensor forward(const Tensor& x) override { return fc(act(half(conv(x))).flatten(1)); }
//   };
//   net.fc->weight                        // its members
//   net.fc = Linear(16, 100);             // replaces it: the new one is called, trained, moved and saved
//   net.fc = other.fc;                    // shares one module; also a shared_ptr, or nullptr for none
//   *net.fc = Linear(16, 100);            // keeps the module, and moves the other's values into it
//
// Copying and moving a module copies and moves its parts. A Part that is copied by itself, `auto fc = net.fc`, is a handle to the
// same module.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "layers/module/module.h"

namespace halfstep {

// Iterates over the children of a container as handles: for (auto& layer : layers) x = layer(x). A handle lives until the next
// step.
class PartIterator {
 public:
  using value_type = Part<Module>;
  using difference_type = std::ptrdiff_t;
  explicit PartIterator(const std::shared_ptr<ModuleSlot>* at) : at_(at) {}
  Part<Module>& operator*() const;
  PartIterator& operator++() {
    ++at_;
    return *this;
  }
  PartIterator operator++(int) { return PartIterator(at_++); }
  bool operator==(const PartIterator& o) const { return at_ == o.at_; }

 private:
  const std::shared_ptr<ModuleSlot>* at_;
  mutable std::shared_ptr<Part<Module>> current_;
};

// Holds any module, given by value or as a shared_ptr: the common type of `a ? AnyModule(ReLU()) : AnyModule(GELU())` and of
// lists.
class AnyModule {
 public:
  template <ModulePart P>
  AnyModule(P&& module) : module_(as_shared(std::forward<P>(module))) {}
  const std::shared_ptr<Module>& ptr() const { return module_; }

 private:
  std::shared_ptr<Module> module_;
};
template <std::same_as<AnyModule> A>
std::shared_ptr<Module> as_shared(const A& module) {
  return module.ptr();
}

// Yields type i of the arguments of M's forward if it is one function, or else of M::Call, `using Call = Result(const Tensor&,
// const Inputs&)`. With them a Part can be called with arguments in braces.
template <size_t i, class... A>
struct CallArgumentAt {};
template <size_t i, class A, class... Rest>
struct CallArgumentAt<i, A, Rest...> : CallArgumentAt<i - 1, Rest...> {};
template <class A, class... Rest>
struct CallArgumentAt<0, A, Rest...> {
  using Type = A;
};
template <class F, size_t i>
struct CallArgumentOf {};
template <class R, class... A, size_t i>
struct CallArgumentOf<R(A...), i> : CallArgumentAt<i, A...> {};
template <class R, class C, class... A, size_t i>
struct CallArgumentOf<R (C::*)(A...), i> : CallArgumentAt<i, A...> {};
template <class R, class C, class... A, size_t i>
struct CallArgumentOf<R (C::*)(A...) const, i> : CallArgumentAt<i, A...> {};
template <class M>
struct CallOf {
  using Type = void;
};
template <class M>
requires requires { typename M::Call; }
struct CallOf<M> {
  using Type = typename M::Call;
};
template <class M>
requires(
    !requires { typename M::Call; } && requires { &M::forward; }) struct CallOf<M> {
  using Type = decltype(&M::forward);
};
template <class M, size_t i>
using CallArgument = typename CallArgumentOf<typename CallOf<M>::Type, i>::Type;

// The result of add(), for a member of type Part<M>.
template <class M>
struct RegisteredPart {
  std::shared_ptr<ModuleSlot> slot;

  template <class P>
  requires requires { typename P::element_type; }
  operator P() const {
    static_assert(sizeof(P) == 0, "a shared_ptr would not follow what is assigned: Part<Linear> fc = add(\"fc\", Linear(2, 3))");
  }
};

template <class M = Module>
class Part {
 public:
  Part() = default;  // for `part = add("name", ...)` in the constructor
  // Takes M's arguments; or one module by value, a shared_ptr, another Part, whose module is then shared, or nullptr. Throws
  // ValueError for a name that is taken, empty or contains a dot.
  template <class Owner, class... Args>
  requires std::derived_from<Owner, Module> Part(Owner* owner, const std::string& name, Args&&... arguments)
      : Part(static_cast<Module*>(owner)->add_slot(name, make_module(std::forward<Args>(arguments)...))) {
    (void)kRegisteredClass<Owner>;
    slot_->takes = takes;
  }
  template <std::derived_from<M> D>
  Part(RegisteredPart<D> added) : Part(std::move(added.slot)) {
    slot_->takes = takes;
  }
  explicit Part(std::shared_ptr<ModuleSlot> slot) : slot_(std::move(slot)) {}

  Part(const Part& other) : slot_(other.slot_ ? ModuleSlot::for_copy(other.slot_, &other, this) : nullptr) {}
  Part(Part&& other) noexcept = default;

  template <std::derived_from<M> D>
  Part& operator=(RegisteredPart<D> added) {
    return *this = Part(std::move(added));
  }
  Part& operator=(const Part& other) { return put(other.ptr()); }
  // Takes the other's place if the module around this part is being assigned; else its module.
  Part& operator=(Part&& other) {
    if (slot_ && slot_->owner) return put(other.ptr());
    slot_ = std::move(other.slot_);
    return *this;
  }
  template <ModulePart P>
  Part& operator=(P&& module) {
    return put(as_shared(std::forward<P>(module)));
  }
  Part& operator=(std::nullptr_t) { return put(nullptr); }

  // Calls the module with its hooks.
  template <class... Args>
  decltype(auto) operator()(Args&&... arguments) const {
    static_assert(!std::is_same_v<M, Module> || sizeof...(Args) == 1,
                  "a Module takes one tensor: name the class, Part<Block>, layers.at<Block>(i)(x, mask)");
    return (**this)(std::forward<Args>(arguments)...);
  }
  template <class N = M>
  auto operator()(CallArgument<N, 0> a, CallArgument<N, 1> b) const {
    return (**this)(std::forward<CallArgument<N, 0>>(a), std::forward<CallArgument<N, 1>>(b));
  }
  template <class N = M>
  auto operator()(CallArgument<N, 0> a, CallArgument<N, 1> b, CallArgument<N, 2> c) const {
    return (**this)(std::forward<CallArgument<N, 0>>(a), std::forward<CallArgument<N, 1>>(b), std::forward<CallArgument<N, 2>>(c));
  }
  template <class N = M>
  auto operator()(CallArgument<N, 0> a, CallArgument<N, 1> b, CallArgument<N, 2> c, CallArgument<N, 3> d) const {
    return (**this)(std::forward<CallArgument<N, 0>>(a), std::forward<CallArgument<N, 1>>(b), std::forward<CallArgument<N, 2>>(c),
                    std::forward<CallArgument<N, 3>>(d));
  }

  // Iterates over a list or a map of modules: `for (const auto& layer : layers) x = layer(x);`.
  template <class Index, class N = M>
  requires requires(N& m, const Index& i) { m[i]; }
  decltype(auto) operator[](const Index& i) const { return (**this)[i]; }
  template <class N = M>
  auto begin() const -> decltype(std::declval<N&>().begin()) {
    return (**this).begin();
  }
  template <class N = M>
  auto end() const -> decltype(std::declval<N&>().end()) {
    return (**this).end();
  }

  explicit operator bool() const { return slot_ && slot_->module; }
  M& operator*() const {
    if (!*this) ModuleSlot::fail_empty(slot_.get());
    return static_cast<M&>(*slot_->module);
  }
  M* operator->() const { return &**this; }
  M* get() const { return *this ? static_cast<M*>(slot_->module.get()) : nullptr; }
  std::shared_ptr<M> ptr() const { return *this ? std::static_pointer_cast<M>(slot_->module) : nullptr; }

 private:
  static bool takes(const Module& module) {
    if constexpr (std::is_same_v<M, Module>)
      return true;
    else
      return dynamic_cast<const M*>(&module) != nullptr;
  }
  template <class... Args>
  static std::shared_ptr<Module> make_module(Args&&... arguments) {
    if constexpr (sizeof...(Args) == 1 && (std::is_same_v<std::nullptr_t, std::remove_cvref_t<Args>> && ...)) {
      return nullptr;
    } else if constexpr (sizeof...(Args) == 1 && (requires { *as_shared(std::forward<Args>(arguments)); } && ...)) {
      if constexpr ((requires { static_cast<std::shared_ptr<M>>(as_shared(std::forward<Args>(arguments))); } && ...))
        return (as_shared(std::forward<Args>(arguments)), ...);
      else
        return make<M>(std::forward<Args>(arguments)...);
    } else {
      static_assert((!std::derived_from<std::remove_cvref_t<Args>, M> && ...),
                    "a module is given by value: std::move(module), or Linear(module) for a copy");
      static_assert(
          std::is_constructible_v<M, Args...>,
          "no constructor takes these arguments; with options in braces write Part<Conv2d> conv{this, \"conv\", Conv2d(3, "
          "8, 3, {.stride = 2})}");
      return make<M>(std::forward<Args>(arguments)...);
    }
  }
  Part& put(std::shared_ptr<Module> module) {
    if (!slot_) ModuleSlot::fail_empty(nullptr);
    slot_->replace(std::move(module));
    return *this;
  }
  std::shared_ptr<ModuleSlot> slot_;
};

template <class M>
std::shared_ptr<M> as_shared(const Part<M>& part) {
  return part.ptr();
}

inline Part<Module>& PartIterator::operator*() const {
  current_ = std::make_shared<Part<Module>>(*at_);
  return *current_;
}

// Returns a module of a container as an M. Throws ValueError if it has another type; `where` and `which` are for the message.
template <class M, class... Which>
M& module_as(const Part<Module>& module, const char* where, const Which&... which) {
  auto* const m = dynamic_cast<M*>(module.get());
  if (!m) fail<ValueError>(where, which..., " is ", module->describe(), ", not of the requested type");
  return *m;
}

template <ModulePart P>
auto Module::add(const std::string& name, P&& child) {
  using M = typename decltype(as_shared(std::forward<P>(child)))::element_type;
  return RegisteredPart<M>{add_slot(name, as_shared(std::forward<P>(child)))};
}
template <ModulePart P>
auto Module::add_module(const std::string& name, P&& child) {
  return add(name, std::forward<P>(child));
}
template <ModulePart P>
auto Module::register_module(const std::string& name, P&& child) {
  return add(name, std::forward<P>(child));
}

}  // namespace halfstep
