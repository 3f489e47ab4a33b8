// SPDX-License-Identifier: Apache-2.0
// Module: a tree of named parameters and buffers with a forward. Names, shapes and state_dict keys are PyTorch's.
//
//   struct Net : Module {
//     Part<Linear> fc1{this, "fc1", 784, 256};
//     Part<Linear> fc2{this, "fc2", 256, 10};
//     Tensor forward(const Tensor& x) override { return fc2(relu(fc1(x))); }
//   };
//   net.fc2 = Linear(256, 100);  // layers/module/part.h; Parameter and ModuleBuffer: layers/module/parameter.h
//   Net ema = net;               // a copy, with parameters of its own; ema = Net(net) copies into one that is there
//
// A module whose forward takes or returns other types derives from ModuleOf<itself>:
//
//   struct Decoder : ModuleOf<Decoder> {
//     std::pair<Tensor, State> forward(const Tensor& x, const State& state, const Tensor& mask = {});
//   };
//   auto [y, next] = decoder(x, state);
//
// If it takes one tensor and returns another type, it must take the tensor by value, `std::pair<Tensor, Tensor> forward(Tensor
// x)`: a forward of a `const Tensor&` overrides that of Module, which returns a tensor.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "framework/base/check.h"
#include "framework/base/guard.h"
#include "framework/base/layer_path.h"
#include "framework/tensor/tensor.h"
#include "layers/module/hooks.h"
#include "layers/module/named_tensors.h"
#include "layers/module/parameter.h"

namespace halfstep {

struct LoadReport {
  std::vector<std::string> missing;     // in the module but not in the state
  std::vector<std::string> unexpected;  // in the state but not in the module
};

class Module;
template <class M>
class Part;  // layers/module/part.h
template <class M, class... Args>
std::shared_ptr<M> make(Args&&... arguments);

template <class M>
concept ModuleValue = std::derived_from<M, Module>;  // for M&&: by value, not a variable (PyTorch would share that)
template <class M>
std::shared_ptr<M> as_shared(std::shared_ptr<M> module) {
  return module;
}
template <ModuleValue M>
std::shared_ptr<M> as_shared(M&& module) {
  return make<M>(std::move(module));
}
// Accepts the parts of containers: a module by value, a shared_ptr to one, or a Part, whose module is shared.
template <class P>
concept ModulePart = requires(P&& part) {
  { as_shared(std::forward<P>(part)) } -> std::convertible_to<std::shared_ptr<Module>>;
};

// Functions of a module class. It is registered by its first use as a part, by make() or as ModuleOf.
struct ModuleClass {
  std::shared_ptr<Module> (*copy)(const Module&) = nullptr;  // null: it cannot be copied
  Tensor (*forward)(Module&, const Tensor&) = nullptr;       // of a class whose forward(Tensor) does not override Module's
};
bool register_class(const std::type_info& type, const ModuleClass& functions);
void register_library_layers();  // registers the library's layers
template <class M>
ModuleClass class_functions();
template <class M>
inline const bool kRegisteredClass = register_class(typeid(M), class_functions<M>());

// A child of a module under a name.
struct ModuleSlot {
  std::string name;
  std::shared_ptr<Module> module{};        // or null
  Module* owner = nullptr;                 // null: a handle by itself, or the owner is gone
  bool (*takes)(const Module&) = nullptr;  // null: any
  bool listed = false;                     // child of a container, which needs no Part
  bool was_held = false;                   // held by a Part in the module that this one copies

  // Throws ValueError for an ancestor of the owner and for a type that the Part does not take.
  void replace(std::shared_ptr<Module> by);
  // Returns the slot for a Part at `to` that is copied from the Part at `from` with `slot`: the copy's slot if the module around
  // them is being copied; else an unowned slot for the same module.
  static std::shared_ptr<ModuleSlot> for_copy(const std::shared_ptr<ModuleSlot>& slot, const void* from, const void* to);
  [[noreturn]] static void fail_empty(const ModuleSlot* slot);
};

class Module {
 public:
  Module() = default;
  virtual ~Module();
  // `Net copy = net` copies parameters, buffers and children, with device, dtypes, mode and frozen parameters. It does not copy
  // hooks. Parameters that are shared within net are shared within the copy. Tensors and pointers that are plain members are shared
  // by both modules. Throws ValueError for a child that cannot be copied and for one that no Part holds.
  // `*net.fc = Linear(2, 3)` and `best = Net(net)` move a module into another, which keeps its name, path, mode and hooks. A hook
  // that captures values may hold the module's former address: a call after the move throws ValueError.
  Module& operator=(const Module&) = delete;  // best = Net(net)
  // Maps one tensor to one: Sequential, TrainStep and JSON configs call this. Throws ValueError for a module with other arguments.
  virtual Tensor forward(const Tensor& x);
  // Calls forward with its hooks. Errors name the layer.
  Tensor operator()(const Tensor& x);
  // Returns whether forward does the same for all inputs of one shape and reads nothing on the host; then TrainStep records it by
  // itself on a GPU. Layers return true; false is always safe.
  virtual bool is_recordable() const { return false; }
  virtual std::string describe() const;                     // "Linear(in_features=784, out_features=256, bias=True)"; the class
  const std::string& name() const { return name_; }         // in its parent; empty at the root
  std::string path() const { return path_ ? *path_ : ""; }  // from the root: "encoder.0"
  std::string str() const;                                  // the tree, as PyTorch prints it

  // Throw ValueError before the first call of a lazy layer (layers/feedforward/lazy.h).
  std::vector<Tensor> parameters() const;
  NamedTensors named_parameters(const std::string& prefix = "") const;
  NamedTensors named_buffers(const std::string& prefix = "") const;
  // Find by name from here: "encoder.0.weight", "encoder.0", "" for this module. Throw ValueError with the nearest name.
  Tensor get_parameter(const std::string& name) const { return named_parameters().at(name); }
  Tensor get_buffer(const std::string& name) const { return named_buffers().at(name); }
  Module& get_submodule(const std::string& name);
  std::vector<Tensor> buffers() const;
  // Returns handles: `for (const auto& layer : net.children()) x = layer(x);`. Assigning to one replaces the child. A module that
  // is registered under several names is among them once, under the first.
  std::vector<Part<Module>> children() const;
  std::vector<std::pair<std::string, Part<Module>>> named_children() const;
  std::vector<Module*> modules();  // this and all below it
  // Calls f(module) for this module and its descendants, without making a list.
  template <class F>
  void visit(const F& f) const {
    f(*this);
    for (const auto& slot : children_) {
      if (slot->module) slot->module->visit(f);
    }
  }
  std::vector<std::pair<std::string, Module*>> named_modules(const std::string& prefix = "");

  // Register hooks, which are called with the module before forward, after it, and when the gradients of its inputs are computed.
  // They return keys for remove_hook. Hooks see the tensors among arguments and results (layers/module/hooks.h). A backward for
  // whose hooks the module no longer lives throws AutogradError. A module with hooks, or with parametrizations
  // (layers/module/parametrize.h), for which has_hooks() is true too, is not fused by Sequential, and TrainStep does not record its
  // step.
  template <class F>
  uint64_t register_forward_pre_hook(F f) {
    return add_hook(hooks<F>().before, as_hook<ForwardPreHook>(std::move(f)));
  }
  template <class F>
  uint64_t register_forward_hook(F f) {
    return add_hook(hooks<F>().after, as_hook<ForwardHook>(std::move(f)));
  }
  template <class F>
  uint64_t register_full_backward_hook(F f) {
    return add_hook(hooks<F>().backward, as_hook<BackwardHook>(std::move(f)));
  }
  void remove_hook(uint64_t key);
  bool has_hooks() const { return hooks_ != nullptr; }
  bool any_hooks() const;  // of this module or one below it

  // In training, keeps only the input of a call from one tensor to one, and computes the rest again in backward
  // (framework/autograd/recompute.h): the gradients are equal bit for bit and take less memory. Buffers are updated once, and modes
  // and precisions are those of the call. Sequential does not fuse the module. The module must live until backward, and may be
  // moved before it; backward throws AutogradError if it is gone, or if a parameter or a part of it was changed or replaced.
  void recompute_in_backward(bool on) { recomputes_ = on; }
  bool recomputes_in_backward() const { return recomputes_; }
  bool any_recomputes() const;  // of this module or one below it

  // Sets the precision within an autocast region: float32 turns the region off for calls of this module and casts their 16-bit
  // inputs to float32; float16 and bfloat16 replace the region's dtype. Descendants follow unless they have a precision of their
  // own. It has no effect outside a region. Copies inherit it; the state_dict does not contain it. Throws DTypeError for other
  // dtypes.
  void set_precision(DType dtype);
  void clear_precision() { precision_.reset(); }
  std::optional<DType> precision() const { return precision_; }

  // Returns a copy of the same class. The class must be registered: by a module of it that is used in a Part, made by make(), or
  // given to another module by value. Throws ValueError for other classes and for classes that cannot be copied.
  std::shared_ptr<Module> clone() const;

  void train(bool on = true);  // recursive; does not affect frozen statistics (layers/feedforward/normalization.h)
  void eval() { train(false); }
  bool training() const { return training_; }
  bool is_training() const { return training_; }
  void zero_grad() const;
  void requires_grad_(bool on) const;                 // freeze with false
  void apply(const std::function<void(Module&)>& f);  // children first, then this module
  Module& to(Device device);                          // moves parameters and buffers in place
  Module& to_empty(Device device);                    // the same without values and gradients, as from Device::meta
  Module& to(DType dtype);                            // floating parameters and buffers
  Module& cpu() { return to(Device::cpu); }
  Module& cuda(int index = 0) { return to(Device{Device::Type::cuda, int8_t(index)}); }
  Module& half() { return to(DType::f16); }
  Module& bfloat16() { return to(DType::bf16); }
  Module& to(MemoryFormat format);  // parameters and buffers of 4 and 5 dimensions
  int64_t parameter_count() const;

  // Returns copies of parameters and buffers: `const StateDict best = net.state_dict()` keeps their values. Shared tensors are
  // shared in the copy too.
  StateDict state_dict(const std::string& prefix = "") const;
  // Returns them detached, sharing memory with the module: writes go both ways.
  StateDict state_tensors(const std::string& prefix = "") const;
  // Copies values into the module. strict: throws ValueError listing every missing, unexpected and misshapen key, with near names.
  LoadReport load_state_dict(const StateDict& state, bool strict = true);

  // Registers a tensor for a member of type Parameter: sets requires_grad and the label. An undefined tensor is an omitted option,
  // such as a bias.
  Registered<Parameter> register_parameter(const std::string& name, const Tensor& t);
  // Registers a tensor for a member of type ModuleBuffer. persistent: saved with the parameters.
  Registered<ModuleBuffer> register_buffer(const std::string& name, const Tensor& t, bool persistent = true);
  // Registers a child for a member of type Part: `fc = add("fc", Linear(2, 3))`. PyTorch's names are add_module and
  // register_module.
  template <ModulePart P>
  auto add(const std::string& name, P&& child);
  template <ModulePart P>
  auto add_module(const std::string& name, P&& child);
  template <ModulePart P>
  auto register_module(const std::string& name, P&& child);

 protected:
  Module(const Module& other);
  Module(Module&& other) noexcept;
  Module& operator=(Module&& other);

  // Registers a child of a container, which finds it by number or name: it is copied with the container though no Part holds it.
  void register_listed(const std::string& name, std::shared_ptr<Module> child);
  // Marks a lazy layer: its parameters and buffers get their sizes when a module is moved into it.
  void wait_for_sizes();
  // Returns parameter i, in the order of registration.
  const Tensor& own_parameter(size_t i) const { return parameters_[i]->get(); }
  size_t own_parameters() const { return parameters_.size(); }
  void replace_parameter(size_t i, const Tensor& t) {
    Parameter held(Registered<Parameter>{parameters_[i]});
    held = t;
  }
  // Returns child i, in the order of registration; null if its Part is empty.
  const std::shared_ptr<Module>& own_child(size_t i) const { return children_[i]->module; }
  const std::vector<std::shared_ptr<ModuleSlot>>& child_slots() const { return children_; }
  // Keeps the module in evaluation mode, even after train(); false: the next call of train() decides again.
  void stay_in_eval(bool on) {
    stays_in_eval_ = on;
    if (on) training_ = false;
  }
  bool stays_in_eval() const { return stays_in_eval_; }
  // Is called when this module or an ancestor was registered, or a child of this one was registered or replaced.
  virtual void structure_changed() {}

  // Calls forward(arguments) between the hooks, and adds this layer to errors.
  template <class F, class... Args>
  auto run(const F& forward, Args&&... arguments) {
    const LayerScope layer(path_);
    const RunScope scope(*this);
    try {
      if (!hooks_ && !precision_) [[likely]]
        return forward(std::forward<Args>(arguments)...);
      std::tuple<std::decay_t<Args>...> given(std::forward<Args>(arguments)...);
      SpecialCall call(*this, hooks_.get(), precision_, path_);
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
      if (path_ && !path_->empty()) e.leave_layer(*path_, describe());
      throw;
    }
  }

 private:
  template <class M>
  friend class Part;
  friend class HeldTensor;
  friend class HookedCall;
  friend struct ModuleSlot;
  friend class ComputedParameters;
  friend class ParametrizationList;
  friend class Substitution;

  // Marks that this thread runs a module's forward while it lives.
  class RunScope : LocalGuard {
   public:
    [[nodiscard]] explicit RunScope(const Module& module) : outer_(running_) {
      if (outer_ && !module.path_) [[unlikely]]
        module.warn_of_no_part(*outer_);
      running_ = &module;
    }
    ~RunScope() { running_ = outer_; }

   private:
    static inline thread_local constinit const Module* running_ = nullptr;
    const Module* outer_;
  };

  void warn_of_no_part(const Module& caller) const;  // warns once if this module's parameters would be trained but are not listed
  struct FirstRun;
  Tensor recomputed(const Tensor& x);
  std::shared_ptr<ModulePlace> place();
  std::shared_ptr<ModuleSlot> add_slot(const std::string& name, std::shared_ptr<Module> child);
  using Slots = std::vector<std::shared_ptr<TensorSlot>> Module::*;
  void list_tensors(Slots own, const std::string& prefix, std::vector<NamedTensor>& out) const;  // including descendants'
  // Returns the parameters, including those of lazy layers before their first call.
  std::vector<NamedTensor> all_parameters() const;
  std::vector<NamedTensor> all_tensors() const;
  template <class F>
  void each_slot(const std::string& prefix, const F& f) const;  // f(full name, slot)
  void check_sizes() const;                                     // throws if a lazy layer has no sizes yet
  void set_computes(bool on);  // whether parameters are computed before each forward (layers/module/parametrize.h)
  void check_name(const char* where, const std::string& name) const;
  void check_copied() const;
  bool is_first_of_child(size_t i) const;
  bool is_or_has(const Module* other) const;  // this module, or one below it
  void name_child(ModuleSlot& slot);          // gives a new child its name and path
  void relabel(const std::string& prefix);
  void set_path(const std::string& path);
  void disown() noexcept;  // leaves the slots without this owner
  static std::shared_ptr<TensorSlot> tensor_slot_for_copy(const TensorSlot* slot, const void* from, const void* to, bool& in_copy);
  template <class F>
  ModuleHooks& hooks() {
    if (!hooks_) hooks_ = std::make_shared<ModuleHooks>();
    if constexpr (!std::is_empty_v<F> && !std::is_pointer_v<F>) hooks_->may_hold_address = true;
    return *hooks_;
  }
  template <class Hook>
  static uint64_t add_hook(ModuleHooks::List<Hook>& list, Hook hook) {
    list.emplace_back(next_hook_key(), std::move(hook));
    return list.back().first;
  }
  static uint64_t next_hook_key();

  std::vector<std::shared_ptr<TensorSlot>> parameters_, buffers_;
  std::vector<std::shared_ptr<ModuleSlot>> children_;
  std::string name_;  // within its parent
  const std::string* path_ = nullptr;
  bool training_ = true, stays_in_eval_ = false, recomputes_ = false;
  std::optional<DType> precision_;
  mutable bool copied_ = false;         // copied, and not yet checked whether all members took their copies
  bool was_copied_ = false;             // constructed as a copy, which is perhaps still in the list of copies in progress
  mutable bool warned_ = false;         // of a caller of which this is no part
  std::shared_ptr<ModuleHooks> hooks_;  // null: none
  std::shared_ptr<ModulePlace> place_;  // made by place()
};
std::ostream& operator<<(std::ostream& out, const Module& module);  // str()

template <class F>
void Module::each_slot(const std::string& prefix, const F& f) const {
  const std::string begin = prefix.empty() ? "" : prefix + ".";
  for (const auto* kind : {&parameters_, &buffers_}) {
    for (const auto& slot : *kind) f(begin + slot->name, slot);
  }
  for (const auto& child : children_) {
    if (child->module) child->module->each_slot(begin + child->name, f);
  }
}

inline Tensor Module::operator()(const Tensor& x) {
  return run([this](const Tensor& in) { return recomputes_ && training_ ? recomputed(in) : forward(in); }, x);
}

// Constructs a module as std::make_shared<M>(arguments).
template <class M, class... Args>
std::shared_ptr<M> make(Args&&... arguments) {
  (void)kRegisteredClass<M>;
  return std::make_shared<M>(std::forward<Args>(arguments)...);
}

template <class M>
ModuleClass class_functions() {
  ModuleClass functions;
  if constexpr (std::is_copy_constructible_v<M>)
    functions.copy = [](const Module& m) -> std::shared_ptr<Module> { return std::make_shared<M>(static_cast<const M&>(m)); };
  if constexpr (requires { requires std::is_same_v<decltype(&M::forward), Tensor (M::*)(Tensor)>; })
    functions.forward = [](Module& m, const Tensor& x) { return static_cast<M&>(m).forward(x); };
  return functions;
}

}  // namespace halfstep

#include "layers/module/module_of.h"
#include "layers/module/part.h"
