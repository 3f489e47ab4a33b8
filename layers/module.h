// SPDX-License-Identifier: Apache-2.0
// Module: a tree of named parameters and buffers with a forward. Names, shapes and state_dict keys are PyTorch's.
//
//   struct Net : Module {
//     std::shared_ptr<Linear> fc1 = add("fc1", std::make_shared<Linear>(784, 256));
//     std::shared_ptr<Linear> fc2 = add("fc2", std::make_shared<Linear>(256, 10));
//     Tensor forward(const Tensor& x) override { return (*fc2)(relu((*fc1)(x))); }
//   };
//
// A module whose forward takes or gives something else derives from ModuleOf<itself>:
//
//   struct Decoder : ModuleOf<Decoder> {
//     std::pair<Tensor, State> forward(const Tensor& x, const State& state, const Tensor& mask = {});
//   };
//   auto [y, next] = (*decoder)(x, state);
//
// One that takes a tensor and gives something else takes it by value, `std::pair<Tensor, Tensor> forward(Tensor x)`: a forward of a
// `const Tensor&` is the one of all modules, which gives a tensor.
//
// A part may also be given by value, add("fc1", Linear(784, 256)): it is moved into a shared_ptr. One whose constructor keeps a
// pointer to itself, or that shall be cloned, is made by make() or std::make_shared.
#pragma once

#include <concepts>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "framework/base/check.h"
#include "framework/base/layer_path.h"
#include "framework/tensor/tensor.h"
#include "layers/hooks.h"

namespace halfstep {

struct NamedTensor {
  std::string name;  // "0.weight"
  Tensor tensor;
};
using StateDict = std::vector<NamedTensor>;  // in registration order

struct LoadReport {
  std::vector<std::string> missing;     // in the module, not in the state
  std::vector<std::string> unexpected;  // in the state, not in the module
};

class Module;
template <class M>
concept ModuleValue = std::derived_from<M, Module>;  // for M&&: by value, not a variable, whose copy would share its parameters
template <class M>
std::shared_ptr<M> as_shared(std::shared_ptr<M> module) {
  return module;
}
template <ModuleValue M>
std::shared_ptr<M> as_shared(M&& module) {
  return std::make_shared<M>(std::move(module));
}
// What containers take as a part: a shared_ptr to a module, or a module by value.
template <class P>
concept ModulePart = requires(P&& part) {
  { as_shared(std::forward<P>(part)) } -> std::convertible_to<std::shared_ptr<Module>>;
};

class Module {
 public:
  virtual ~Module() = default;
  // One tensor in, one out: Sequential, TrainStep and JSON configs call this. Throws ValueError for a module with other arguments.
  virtual Tensor forward(const Tensor& x);
  // forward with its hooks; an error on the way says in which layer.
  Tensor operator()(const Tensor& x);
  // Does forward do the same for any input of one shape, deciding nothing on the host? Then TrainStep records it by itself on a
  // GPU. Layers say yes; a module of yours does nothing wrong by saying no.
  virtual bool is_recordable() const { return false; }
  virtual std::string describe() const { return "Module"; }  // "Linear(in_features=784, out_features=256, bias=True)"
  const std::string& name() const { return name_; }          // in its parent; empty at the root
  std::string path() const { return path_ ? *path_ : ""; }   // from the root: "encoder.0"
  std::string str() const;                                   // the tree, as PyTorch prints it

  std::vector<Tensor> parameters() const;
  std::vector<NamedTensor> named_parameters(const std::string& prefix = "") const;
  std::vector<NamedTensor> named_buffers(const std::string& prefix = "") const;
  const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& children() const { return children_; }
  std::vector<std::pair<std::string, Module*>> named_modules(const std::string& prefix = "");

  // Hooks: called before forward, after it, and when the gradients of its inputs are known; keys are for remove_hook. They see the
  // tensors among arguments and results, see layers/hooks.h. The module must live until the backward. A module with hooks is run by
  // itself where Sequential would fuse it, and TrainStep does not record a step that has them.
  template <class F>
  uint64_t register_forward_pre_hook(F f) {
    return add_hook(hooks().before, as_hook<ForwardPreHook>(std::move(f)));
  }
  template <class F>
  uint64_t register_forward_hook(F f) {
    return add_hook(hooks().after, as_hook<ForwardHook>(std::move(f)));
  }
  template <class F>
  uint64_t register_full_backward_hook(F f) {
    return add_hook(hooks().backward, as_hook<BackwardHook>(std::move(f)));
  }
  void remove_hook(uint64_t key);
  bool has_hooks() const { return hooks_ != nullptr; }
  bool any_hooks() const;  // of this module or one below it

  // While training, keep of a call of this module from one tensor to one only its input, and compute the rest again in backward
  // (framework/autograd/checkpoint.h): the same gradients, to the bit, in less memory. Buffers move once. Where Sequential would
  // fuse it with its neighbour it is run by itself.
  void recompute_in_backward(bool on) { recomputes_ = on; }
  bool recomputes_in_backward() const { return recomputes_; }
  bool any_recomputes() const;  // of this module or one below it

  // A module of the same kind with memory of its own and the same values, device, dtypes, mode and frozen parameters; without
  // hooks. Of modules that make<M>() made, and of containers of such. Throws ValueError for others.
  virtual std::shared_ptr<Module> clone() const;

  void train(bool on = true);  // recursive
  void eval() { train(false); }
  bool training() const { return training_; }
  void zero_grad() const;
  void requires_grad_(bool on) const;                 // freeze with false
  void apply(const std::function<void(Module&)>& f);  // children first, then this
  Module& to(Device device);                          // moves parameters and buffers in place
  Module& to_empty(Device device);                    // the same without their values, as from Device::meta, which has none
  Module& to(DType dtype);                            // floating parameters and buffers
  Module& to(MemoryFormat format);                    // parameters and buffers of 4 and 5 dimensions
  int64_t parameter_count() const;

  // Detached: tensors share memory with the module.
  StateDict state_dict(const std::string& prefix = "") const;
  // Copies values in. strict: throws ValueError listing every missing, unexpected and misshapen key, with near names.
  LoadReport load_state_dict(const StateDict& state, bool strict = true);

 protected:
  Tensor register_parameter(const std::string& name, const Tensor& t);  // sets requires_grad and label
  Tensor register_buffer(const std::string& name, const Tensor& t);
  // Takes a parameter of another module in place of this one's, so that both train it: `weight = share_parameter("weight",
  // embedding->weight)`. It is counted, updated and saved once. Throws ShapeError when it has another shape.
  Tensor share_parameter(const std::string& name, const Tensor& t);
  template <class M>
  std::shared_ptr<M> add(const std::string& name, std::shared_ptr<M> child) {
    register_module(name, child);
    return child;
  }
  template <ModuleValue M>
  std::shared_ptr<M> add(const std::string& name, M&& child) {
    return add(name, as_shared(std::move(child)));
  }
  void register_module(const std::string& name, std::shared_ptr<Module> child);
  virtual void path_changed() {}  // this module, or one above it, was registered in another

  // For clone() of a container: train or eval, here and below.
  void copy_modes(Module& copy) const;

  // forward(arguments), between the hooks, in this layer.
  template <class F, class... Args>
  auto run(const F& forward, Args&&... arguments) {
    const LayerScope layer(path_);
    try {
      if (!hooks_) [[likely]]
        return forward(std::forward<Args>(arguments)...);
      std::tuple<std::decay_t<Args>...> given(std::forward<Args>(arguments)...);
      HookedCall call(*this, *hooks_);
      call.before(tensors_in(given));
      if constexpr (std::is_void_v<decltype(std::apply(forward, given))>) {
        std::apply(forward, given);
        call.after({});
      } else {
        auto result = std::apply(forward, given);
        call.after(tensors_in(result));
        return result;
      }
    } catch (Error& e) {
      if (!name_.empty()) e.leave_layer(name_, describe());
      throw;
    }
  }

 private:
  template <class M, class... Args>
  friend std::shared_ptr<M> make(Args... arguments);

  Tensor recomputed(const Tensor& x);
  void set_path(const std::string& path);
  void take_values(const Module& from);  // of a module of the same kind
  ModuleHooks& hooks() {
    if (!hooks_) hooks_ = std::make_shared<ModuleHooks>();
    return *hooks_;
  }
  template <class Hook>
  static uint64_t add_hook(ModuleHooks::List<Hook>& list, Hook hook) {
    list.emplace_back(next_hook_key(), std::move(hook));
    return list.back().first;
  }
  static uint64_t next_hook_key();

  std::vector<NamedTensor> parameters_, buffers_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children_;
  std::string name_;  // in its parent
  const std::string* path_ = nullptr;
  bool training_ = true, recomputes_ = false;
  std::shared_ptr<ModuleHooks> hooks_;               // null: none
  std::function<std::shared_ptr<Module>()> remake_;  // the constructor's call, of modules that make() made
};

inline Tensor Module::operator()(const Tensor& x) {
  return run([this](const Tensor& in) { return recomputes_ && training_ ? recomputed(in) : forward(in); }, x);
}

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
  template <class... Args>
  auto operator()(Args&&... arguments) {
    return this->run([this](auto&&... in) { return static_cast<Self*>(this)->forward(std::forward<decltype(in)>(in)...); },
                     std::forward<Args>(arguments)...);
  }
  void forward();  // never called or defined: a class has its own
  using NoForward = void (ModuleOf::*)();
};
#pragma GCC diagnostic pop

// std::make_shared<M>(arguments), for a module that can be cloned.
template <class M, class... Args>
std::shared_ptr<M> make(Args... arguments) {
  auto made = std::make_shared<M>(arguments...);
  made->remake_ = [arguments...] { return make<M>(arguments...); };
  return made;
}

}  // namespace halfstep
