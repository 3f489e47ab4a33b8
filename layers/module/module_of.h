// SPDX-License-Identifier: Apache-2.0
// ModuleOf: modules whose forward has any arguments and any result. Part of layers/module/module.h, which says more.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include "layers/module/module.h"

namespace halfstep {

// Base of classes whose own forward may have other arguments: calls it if it takes and returns one tensor. The class's own forward
// hides this one on purpose; the pragmas silence the warning, which GCC gives at the hidden function, here, and Clang at the first
// function that hides it, ModuleOf's.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverloaded-virtual"
template <class Self>
class ForwardOf : public Module {
 public:
  Tensor forward(const Tensor& x) override {
    constexpr bool kHasNone = requires { requires std::is_same_v<decltype(&Self::forward), typename Self::NoForward>; };
    static_assert(!kHasNone, "a class that derives from ModuleOf<itself> has a forward");
    if constexpr (requires(Self & self) {
                    { self.forward(x) } -> std::same_as<Tensor>;
                  })
      return static_cast<Self*>(this)->forward(x);
    else
      return Module::forward(x);
  }
};

// A module whose forward has any arguments and any result: tensors, optional ones, structs, states. operator() calls it with hooks
// and errors as for every module. If forward takes and returns one tensor, Sequential and configs take the module too.
template <class Self>
class ModuleOf : public ForwardOf<Self> {
 public:
  ModuleOf() { (void)kRegisteredClass<Self>; }
  template <class... Args>
  auto operator()(Args&&... arguments) {
    // Computes a call from one tensor to one again in backward, if that is asked for: Module's call does.
    if constexpr (sizeof...(Args) == 1 && (std::is_base_of_v<Tensor, std::remove_cvref_t<Args>> && ...) &&
                  requires(Self & self, const Tensor& x) {
                    { self.forward(x) } -> std::same_as<Tensor>;
                  }) {
      if (this->recomputes_in_backward() && this->training()) [[unlikely]]
        return Module::operator()(arguments...);
    }
    return this->run([this](auto&&... in) { return static_cast<Self*>(this)->forward(std::forward<decltype(in)>(in)...); },
                     std::forward<Args>(arguments)...);
  }
  void forward();  // never called or defined: classes define their own
  using NoForward = void (ModuleOf::*)();
};
#pragma GCC diagnostic pop

}  // namespace halfstep
