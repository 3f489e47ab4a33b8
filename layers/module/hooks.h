// SPDX-License-Identifier: Apache-2.0
// Hooks of modules: functions that are called with a module's inputs and outputs, and with their gradients.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "amp/autocast/autocast.h"
#include "framework/base/guard.h"
#include "framework/tensor/results.h"
#include "framework/tensor/tensor.h"
#include "layers/module/parameter.h"

namespace halfstep {

class Module;

// Calls f(Tensor&) for each tensor in `value`, in order: a Tensor, containers, optionals, pairs and tuples of such, and structs
// with a member template <class F> void each_tensor(F&& f). Other values have no tensors.
template <class T, class F>
void each_tensor(T& value, F&& f) {
  using V = std::remove_const_t<T>;
  static_assert(!NamedParts<V>, "hooks replace the parts of a result: declare std::pair<Tensor, Tensor> forward(Tensor x)");
  if constexpr (std::is_base_of_v<Tensor, V>) {
    f(value);
  } else if constexpr (requires { value.each_tensor(f); }) {
    value.each_tensor(f);
  } else if constexpr (requires { std::tuple_size<V>::value; }) {
    std::apply([&](auto&... parts) { (each_tensor(parts, f), ...); }, value);
  } else if constexpr (requires { value.has_value(), *value; }) {
    if (value.has_value()) each_tensor(*value, f);
  } else if constexpr (requires { value.begin(), value.end(); } && !std::is_same_v<V, std::string>) {
    if constexpr (std::is_class_v<std::remove_cvref_t<decltype(*value.begin())>>)
      for (auto& part : value) each_tensor(part, f);
  }
}

// Types of hooks. They get the tensors among the arguments of forward, or of its result, as each_tensor finds them. A hook that
// returns tensors, as many as it got, replaces them; one that returns nothing only reads.
using ForwardPreHook = std::function<std::optional<Tensors>(Module&, const Tensors& inputs)>;
using ForwardHook = std::function<std::optional<Tensors>(Module&, const Tensors& inputs, const Tensors& outputs)>;
// Gets undefined gradients for tensors that need none. Its result replaces the gradients of the inputs.
using BackwardHook = std::function<std::optional<Tensors>(Module&, const Tensors& grad_inputs, const Tensors& grad_outputs)>;

// Makes a hook of a lambda that returns nothing, a Tensor, Tensors or std::optional<Tensors>.
template <class Hook, class F>
Hook as_hook(F f) {
  return [f = std::move(f)](Module& module, const auto&... tensors) -> std::optional<Tensors> {
    using R = decltype(f(module, tensors...));
    if constexpr (std::is_void_v<R>) {
      f(module, tensors...);
      return std::nullopt;
    } else if constexpr (std::is_same_v<R, Tensor>) {
      const Tensor made = f(module, tensors...);
      return made.defined() ? std::optional<Tensors>(Tensors{made}) : std::nullopt;
    } else {
      return f(module, tensors...);
    }
  };
}

// Where a module is, for what finds it in backward. A move takes the place along.
struct ModulePlace {
  Module* module = nullptr;                 // null: it is gone, or it was assigned to another
  std::shared_ptr<ModulePlace> moved_to{};  // place of the module to which it was assigned

  // Returns the module; null if it is gone.
  Module* find() const;
};

struct ModuleHooks {
  template <class Hook>
  using List = std::vector<std::pair<uint64_t, Hook>>;  // key, hook
  List<ForwardPreHook> before;
  List<ForwardHook> after;
  List<BackwardHook> backward;
  bool may_hold_address = false;  // whether a hook captures values, of which one may be the module's address
  bool moved = false;             // whether the module was moved after such a hook was registered
  bool computes = false;          // whether parameters are computed before each forward (layers/module/parametrize.h)
  bool empty() const { return before.empty() && after.empty() && backward.empty() && !computes; }
};

// Gives the module's parametrized parameters their values while it lives, and then the values from before.
class ComputedParameters : LocalGuard {
 public:
  [[nodiscard]] ComputedParameters() = default;
  ~ComputedParameters();
  void compute(const Module& module);

 private:
  std::vector<std::pair<std::shared_ptr<TensorSlot>, Tensor>> before_;  // slots, and their values from before
};

// One call of a module with hooks: those that it had when the call began.
class HookedCall {
 public:
  HookedCall(Module& module, const ModuleHooks& hooks) : module_(module), hooks_(hooks) {}
  void before(const std::vector<Tensor*>& inputs);
  void after(const std::vector<Tensor*>& outputs);

 private:
  struct Backward;
  Module& module_;
  const ModuleHooks hooks_;
  Tensors inputs_;
  std::shared_ptr<Backward> backward_;
  ComputedParameters computed_;
};

// One call of a module that has hooks, a precision of its own, or both. Hooks see the values that the module computes with.
class SpecialCall {
 public:
  SpecialCall(Module& module, const ModuleHooks* hooks, std::optional<DType> precision, const std::string* path);
  void before(const std::vector<Tensor*>& inputs);
  void after(const std::vector<Tensor*>& outputs);

 private:
  std::optional<autocast::ModuleRegion> region_;
  std::optional<HookedCall> hooked_;
};

// Returns pointers to the tensors that each_tensor finds.
template <class T>
std::vector<Tensor*> tensors_in(T& value) {
  std::vector<Tensor*> out;
  each_tensor(value, [&](Tensor& t) { out.push_back(&t); });
  return out;
}

}  // namespace halfstep
