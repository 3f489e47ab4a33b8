// SPDX-License-Identifier: Apache-2.0
#include "layers/module/module.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <ostream>
#include <set>
#include <typeinfo>
#include <utility>

#include "amp/autocast/autocast.h"
#include "framework/autograd/grad_mode.h"
#include "framework/autograd/recompute.h"
#include "framework/base/fork_mutex.h"
#include "framework/base/guard.h"
#include "framework/base/layer_path.h"
#include "framework/ops/ops.h"
#include "layers/containers/containers.h"
#include "layers/module/parametrize.h"

namespace halfstep {
namespace {

std::string join(const std::string& prefix, const std::string& name) { return prefix.empty() ? name : prefix + "." + name; }

void indent_into(std::string& out, const std::string& text) {
  for (char c : text) {
    out += c;
    if (c == '\n') out += "  ";
  }
}

// Makes all handles of `t` refer to the memory, dtype and device of `by`.
void replace(const Tensor& t, const Tensor& by) {
  autocast::drop_shadow(t);
  TensorImpl& impl = *t.impl();
  // Advance the new memory's version beyond that of t, so that a graph that saved t does not take it for the memory it saved.
  while (by.version() <= t.version()) by.bump_version();
  impl.storage = by.storage();
  impl.offset = by.impl()->offset;
  impl.strides = by.strides();
  impl.dtype = by.dtype();
  if (impl.autograd) impl.autograd->accumulator.reset();  // belongs to the old dtype and device
}

// Replaces t by to(t), and its gradient by to(gradient).
template <class Convert>
void convert(const Tensor& t, const Convert& to) {
  NoGrad off;
  MemoryScope tag(MemoryTag::parameters);
  const Tensor g = t.grad();
  const bool scaled = g.defined() && t.impl()->autograd->scaled;
  if (g.defined()) t.set_grad(Tensor());
  replace(t, to(t.detach()));
  if (g.defined()) t.set_grad(to(g));
  if (scaled) t.impl()->autograd->scaled = true;
}

}  // namespace

std::string Module::str() const {
  std::string head = (hooks_ && hooks_->computes ? "Parametrized" : "") + describe();
  std::vector<const ModuleSlot*> below;  // a module that is registered twice is printed twice
  for (const auto& slot : children_) {
    if (slot->module) below.push_back(slot.get());
  }
  if (below.empty()) return head.find('(') == std::string::npos ? head + "()" : head;
  if (const size_t open = head.find('('); open != std::string::npos && head.back() == ')') {
    const std::string extra = head.substr(open + 1, head.size() - open - 2);
    head = head.substr(0, open) + "(\n" + (extra.empty() ? "" : "  " + extra + "\n");
  } else {
    head += "(\n";
  }
  // Equal children of a ModuleList are printed once.
  const bool folds = dynamic_cast<const ModuleList*>(this) != nullptr;
  for (size_t i = 0; i < below.size();) {
    const std::string text = below[i]->module->str();
    size_t end = i + 1;
    while (folds && end < below.size() && below[end]->module->str() == text) ++end;
    std::string name = below[i]->name, count;
    if (end > i + 1) name += "-" + below[end - 1]->name, count = std::to_string(end - i) + " x ";
    head += "  (" + name + "): " + count;
    indent_into(head, text);
    head += '\n';
    i = end;
  }
  return head + ")";
}

void Module::check_name(const char* where, const std::string& name) const {
  const auto has = [&](const auto& slots) {
    return std::any_of(slots.begin(), slots.end(), [&](const auto& slot) { return slot->name == name; });
  };
  check<ValueError>(!name.empty() && name.find('.') == std::string::npos, where,
                    "a name must be non-empty and without a dot, got \"", name, '"');
  check<ValueError>(!has(parameters_) && !has(buffers_) && !has(children_), where, "the name \"", name, "\" is already taken");
}

Registered<Parameter> Module::register_parameter(const std::string& name, const Tensor& t) {
  check_name("register_parameter", name);
  if (t.defined()) {
    check_parameter("register_parameter", name, t);
    t.set_requires_grad(true);
    t.set_label(name);
    enter_module(t);
  }
  parameters_.push_back(std::make_shared<TensorSlot>(TensorSlot{.name = name, .label = name, .value = t}));
  return {parameters_.back()};
}

Registered<ModuleBuffer> Module::register_buffer(const std::string& name, const Tensor& t, bool persistent) {
  check_name("register_buffer", name);
  if (t.defined()) t.set_label(name);
  buffers_.push_back(std::make_shared<TensorSlot>(
      TensorSlot{.name = name, .label = name, .value = t, .is_parameter = false, .persistent = persistent}));
  return {buffers_.back()};
}

bool Module::is_or_has(const Module* other) const {
  return this == other || std::any_of(children_.begin(), children_.end(),
                                      [other](const auto& slot) { return slot->module && slot->module->is_or_has(other); });
}

std::shared_ptr<ModuleSlot> Module::add_slot(const std::string& name, std::shared_ptr<Module> child) {
  check_name("register_module", name);
  check<ValueError>(!child || !child->is_or_has(this), "register_module",
                    "a module cannot be its own child, nor that of a module below it");
  children_.push_back(std::make_shared<ModuleSlot>(ModuleSlot{.name = name, .module = std::move(child), .owner = this}));
  if (children_.back()->module) children_.back()->module->train(training_);
  name_child(*children_.back());
  structure_changed();
  return children_.back();
}

void Module::register_listed(const std::string& name, std::shared_ptr<Module> child) {
  check<ValueError>(child != nullptr, "register_module", "\"", name, "\" must be a module, got a null pointer");
  add_slot(name, std::move(child))->listed = true;
}

void Module::name_child(ModuleSlot& slot) {
  if (!slot.module) return;
  Module& child = *slot.module;
  child.name_ = slot.name;
  const std::string path = join(this->path(), slot.name);
  child.set_path(path);
  // Children are registered when they are complete, so labels grow to full names from the leaves up.
  child.relabel(path);
}

void Module::relabel(const std::string& prefix) {
  for (const auto* slots : {&parameters_, &buffers_}) {
    for (const auto& slot : *slots) {
      slot->label = join(prefix, slot->name);
      if (slot->get().defined()) slot->get().set_label(slot->label);
    }
  }
  for (const auto& slot : children_) {
    if (slot->module) slot->module->relabel(join(prefix, slot->name));
  }
}

void Module::set_computes(bool on) {
  if (on == (hooks_ && hooks_->computes)) return;
  auto changed = hooks_ ? std::make_shared<ModuleHooks>(*hooks_) : std::make_shared<ModuleHooks>();
  changed->computes = on;
  hooks_ = changed->empty() ? nullptr : changed;
}

uint64_t Module::next_hook_key() {
  static std::atomic<uint64_t> next{1};
  return next++;
}

void Module::remove_hook(uint64_t key) {
  // Copy: a call in progress keeps its own list.
  auto left = hooks_ ? std::make_shared<ModuleHooks>(*hooks_) : std::make_shared<ModuleHooks>();
  const auto has_key = [key](const auto& entry) { return entry.first == key; };
  const size_t removed =
      std::erase_if(left->before, has_key) + std::erase_if(left->after, has_key) + std::erase_if(left->backward, has_key);
  check<ValueError>(removed > 0, "remove_hook", "the module has no hook with the key ", key,
                    Help{"the call that registered the hook returned it, and a hook can be removed once"});
  hooks_ = left->empty() ? nullptr : left;
}

namespace {

constexpr const char* kRecompute = "recompute_in_backward";

// Gives the buffers other memory with the same values, and restores them in its destructor.
class BuffersAside : LocalGuard {
 public:
  [[nodiscard]] explicit BuffersAside(std::vector<NamedTensor> buffers) : buffers_(std::move(buffers)) {
    const NoGrad off;
    for (const NamedTensor& b : buffers_) {
      kept_.push_back(b.tensor.alias(b.tensor.shape(), b.tensor.strides()));
      replace(b.tensor, b.tensor.detach().clone());
    }
  }
  ~BuffersAside() {
    for (size_t i = 0; i < kept_.size(); ++i) replace(buffers_[i].tensor, kept_[i]);
  }

 private:
  std::vector<NamedTensor> buffers_;
  Tensors kept_;
};

}  // namespace

std::shared_ptr<ModulePlace> Module::place() {
  static constinit ForkMutex mutex;  // for threads that run one module
  const std::lock_guard lock(mutex);
  if (!place_) place_ = std::make_shared<ModulePlace>(ModulePlace{.module = this});
  return place_;
}

// A run of a module's forward, with what another run in backward needs to be the same.
struct Module::FirstRun {
  // The module or one below it, with its state in the first run.
  struct Seen {
    Module* module;
    bool training;
    std::optional<DType> precision;
  };
  // Gives modules the modes and precisions of the first run while it lives.
  class ModesAside : LocalGuard {
   public:
    [[nodiscard]] ModesAside(const std::vector<Seen>& now, const std::vector<Seen>& then) {
      for (size_t i = 0; i < now.size(); ++i) {
        if (now[i].training == then[i].training && now[i].precision == then[i].precision) continue;
        changed_.push_back(now[i]);
        set({now[i].module, then[i].training, then[i].precision});
      }
    }
    ~ModesAside() {
      for (const Seen& seen : changed_) set(seen);
    }

   private:
    static void set(const Seen& seen) {
      seen.module->training_ = seen.training;
      seen.module->precision_ = seen.precision;
    }
    std::vector<Seen> changed_;
  };

  explicit FirstRun(Module& module)
      : place(module.place()), type(typeid(module)), modules(list_of(module)), parameters(module.parameters()) {}

  static void list(Module& module, std::vector<Seen>& out) {
    out.push_back({&module, module.training_, module.precision_});
    for (const auto& slot : module.children_)
      if (slot->module) list(*slot->module, out);
  }
  static std::vector<Seen> list_of(Module& module) {
    std::vector<Seen> out;
    list(module, out);
    return out;
  }

  // Computes forward(x) again. Throws AutogradError unless the module has the parts and parameters of the first run.
  Tensor again(const Tensor& x) const {
    Module* const module = place->find();
    check<AutogradError>(module != nullptr, kRecompute, "the module is gone whose forward backward would compute again",
                         Help{"let the module live until backward"});
    const std::vector<Seen> now = list_of(*module);
    bool is_same = typeid(*module) == type && now.size() == modules.size();
    for (size_t i = 1; i < now.size() && is_same; ++i) is_same = now[i].module == modules[i].module;
    const std::vector<Tensor> own = module->parameters();
    is_same = is_same && std::equal(own.begin(), own.end(), parameters.begin(), parameters.end(),
                                    [](const Tensor& a, const Tensor& b) { return a.same(b); });
    check<AutogradError>(is_same, kRecompute, "parts or parameters of ", module->describe(),
                         " were replaced after the forward that backward would compute again", Help{"replace them after backward"});
    const ModesAside modes(now, modules);
    const BuffersAside buffers(module->named_buffers());  // the first run has updated them
    return module->forward(x);
  }

  std::shared_ptr<ModulePlace> place;
  const std::type_info& type;
  std::vector<Seen> modules;
  std::vector<Tensor> parameters;
  bool is_done = false;
};

// Computes forward(x), and again in backward, for which only x is kept.
Tensor Module::recomputed(const Tensor& x) {
  visit([](const Module& m) {
    check<ValueError>(!m.hooks_ || !m.hooks_->computes, kRecompute, m.describe(),
                      " has parametrizations, whose state a second forward would move again",
                      Help{"recompute layers without parametrizations"});
  });
  const auto first = std::make_shared<FirstRun>(*this);
  const auto f = [this, first](const Tensor& in) {
    if (first->is_done) return first->again(in);
    first->is_done = true;
    return forward(in);  // within this call: later the module may be elsewhere
  };
  return checkpoint(f, x, first->parameters);
}

void Module::set_precision(DType dtype) {
  check<DTypeError>(is_half(dtype) || dtype == DType::f32, "set_precision",
                    "a module computes in float32, float16 or bfloat16, got ", dtype);
  precision_ = dtype;
}

bool Module::any_recomputes() const {
  return recomputes_ || std::any_of(children_.begin(), children_.end(),
                                    [](const auto& child) { return child->module && child->module->any_recomputes(); });
}

bool Module::any_hooks() const {
  return has_hooks() || std::any_of(children_.begin(), children_.end(),
                                    [](const auto& child) { return child->module && child->module->any_hooks(); });
}

void Module::set_path(const std::string& path) {
  path_ = kept_forever(path);
  for (const auto& slot : children_) {
    if (slot->module) slot->module->set_path(join(path, slot->name));
  }
  structure_changed();
}

// Returns whether child i is a module that no earlier one is.
bool Module::is_first_of_child(size_t i) const {
  const auto is_same = [&](const auto& slot) { return slot->module == children_[i]->module; };
  return children_[i]->module && std::find_if(children_.begin(), children_.end(), is_same) == children_.begin() + ptrdiff_t(i);
}

std::vector<Part<Module>> Module::children() const {
  std::vector<Part<Module>> out;
  for (size_t i = 0; i < children_.size(); ++i) {
    if (is_first_of_child(i)) out.emplace_back(children_[i]);
  }
  return out;
}

std::vector<std::pair<std::string, Part<Module>>> Module::named_children() const {
  std::vector<std::pair<std::string, Part<Module>>> out;
  for (size_t i = 0; i < children_.size(); ++i) {
    if (is_first_of_child(i)) out.emplace_back(children_[i]->name, children_[i]);
  }
  return out;
}

std::vector<std::pair<std::string, Module*>> Module::named_modules(const std::string& prefix) {
  std::vector<std::pair<std::string, Module*>> out{{prefix, this}};
  std::set<Module*> seen{this};
  for (const auto& slot : children_) {
    if (!slot->module) continue;
    for (const auto& entry : slot->module->named_modules(join(prefix, slot->name))) {
      if (seen.insert(entry.second).second) out.push_back(entry);
    }
  }
  return out;
}

std::vector<Module*> Module::modules() {
  std::vector<Module*> out;
  for (const auto& [name, module] : named_modules()) out.push_back(module);
  return out;
}

void Module::apply(const std::function<void(Module&)>& f) {
  for (const Part<Module>& child : children()) child->apply(f);
  f(*this);
}

Module& Module::to(Device device) {
  const auto move = [&](const Tensor& t) {
    check<MetaError>(device.is_meta() || !t.device().is_meta(), "Module::to", "\"", t.label(),
                     "\" is on the device meta, so it has no values to bring to ", device,
                     Help{"to_empty(device), then load or initialise the weights; load() with a device does both"});
    if (t.device() != device) convert(t, [&](const Tensor& x) { return halfstep::to(x, device); });
  };
  for (const NamedTensor& t : all_tensors()) move(t.tensor);
  return *this;
}

Module& Module::to_empty(Device device) {
  const auto make = [&](const Tensor& t) {
    convert(
        t, [&](const Tensor& x) { return Tensor::empty(x.shape(), {.dtype = x.dtype(), .device = device, .format = x.format()}); });
  };
  for (const NamedTensor& t : all_tensors()) {
    t.tensor.zero_grad();
    make(t.tensor);
  }
  return *this;
}

Module& Module::to(MemoryFormat format) {
  const auto lay = [&](const Tensor& t) {
    const bool has_channels = t.dim() == 4 || t.dim() == 5;
    if (has_channels && !t.is_contiguous(format)) convert(t, [&](const Tensor& x) { return halfstep::to(x, format); });
  };
  for (const NamedTensor& t : all_tensors()) lay(t.tensor);
  return *this;
}

Module& Module::to(DType dtype) {
  check<DTypeError>(is_floating(dtype), "Module::to", "parameters must be floating point, got ", dtype);
  const auto cast = [&](const Tensor& t) {
    if (t.is_floating_point() && t.dtype() != dtype) convert(t, [&](const Tensor& x) { return halfstep::to(x, dtype); });
  };
  for (const NamedTensor& t : all_tensors()) cast(t.tensor);
  visit([&](const Module& m) {
    for (const auto& slot : m.parameters_) {
      if (slot->computed) slot->put(ParametrizationList::stand_in(slot->get().shape(), dtype, slot->label));
    }
  });
  return *this;
}

std::ostream& operator<<(std::ostream& out, const Module& module) { return out << module.str(); }

}  // namespace halfstep
