// SPDX-License-Identifier: Apache-2.0
// ModuleOf: modules whose forward has any arguments and any result. Part of layers/module/module.h, which says more.
#pragma once

#include <type_traits>
#include <utility>

#include "layers/module/module.h"

namespace halfstep {

// The forward of all modules, for a class whose own forward may take other arguments: calls that one where it takes one tensor
// and gives one. The class's own forward hides this one on purpose, so no compiler shall warn of it in each such class: GCC warns
// at the hidden function, here; Clang at the first function that hides it, which is ModuleOf's.
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

// A module whose forward has any arguments and any result: tensors, optional ones, structs, states. It is called by operator(),
// with hooks and errors as every module. Where forward takes one tensor and gives one, it is a module for Sequential and configs,
// too.
template <class Self>
class ModuleOf : public ForwardOf<Self> {
 public:
  ModuleOf() { (void)kKnownClass<Self>; }
  template <class... Args>
  auto operator()(Args&&... arguments) {
    return this->run([this](auto&&... in) { return static_cast<Self*>(this)->forward(std::forward<decltype(in)>(in)...); },
                     std::forward<Args>(arguments)...);
  }
  void forward();  // never called or defined: a class has its own
  using NoForward = void (ModuleOf::*)();
};
#pragma GCC diagnostic pop

}  // namespace halfstep
