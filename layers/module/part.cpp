// SPDX-License-Identifier: Apache-2.0
// Copying, moving and replacing modules.
#include "layers/module/part.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <typeindex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "framework/autograd/grad_mode.h"
#include "framework/base/log.h"
#include "layers/module/assignments.h"
#include "layers/module/parametrize.h"

namespace halfstep {
namespace {

std::unordered_map<std::type_index, ModuleClass>& classes() {
  static auto& all = *new std::unordered_map<std::type_index, ModuleClass>;
  return all;
}

// Recursive: classes of a plugin may be registered during a lookup.
std::recursive_mutex& classes_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

// Returns the functions of the module's class; nothing if it was not registered.
std::optional<ModuleClass> class_of(const Module& module) {
  const std::lock_guard lock(classes_mutex());
  static const bool layers_registered = (register_library_layers(), true);
  (void)layers_registered;
  const auto found = classes().find(typeid(module));
  return found == classes().end() ? std::nullopt : std::optional(found->second);
}

// A module whose members are being copied. Its Parts and Parameters are copied after its Module, and find their new slots by their
// offset within the object. A child's entry is removed when the child is complete; that of the outermost module when that module
// is destroyed, since nothing reports that its last member was copied.
struct Copying {
  const Module* from;
  const Module* to;
};
thread_local bool copying_is_gone = false;  // true at the thread's end, when static modules may still be destroyed
struct CopyingList : std::vector<Copying> {
  ~CopyingList() { copying_is_gone = true; }
};
std::vector<Copying>& copying() {
  static thread_local CopyingList all;
  return all;
}
// Removes the entry of a copy.
void forget_copy(const Module* to) {
  if (!copying_is_gone) std::erase_if(copying(), [to](const Copying& c) { return c.to == to; });
}
// Returns the innermost copy in progress in which the member `to` has the offset of the original's member `from`; null: none.
const Copying* copy_of(const void* from, const void* to) {
  const auto address = [](const void* p) { return reinterpret_cast<intptr_t>(p); };
  const auto& all = copying();
  for (auto c = all.rbegin(); c != all.rend(); ++c) {
    if (address(to) - address(c->to) == address(from) - address(c->from)) return &*c;
  }
  return nullptr;
}

// Objects that one copy of a tree has made so far, so that shared objects are shared within the copy too.
struct CopiedObjects {
  std::map<const TensorImpl*, Tensor> tensors;
  std::map<const Module*, std::shared_ptr<Module>> modules;
};
thread_local CopiedObjects* made_so_far = nullptr;

// Makes copies share objects while it lives, in the outermost scope.
class CopyScope {
 public:
  [[nodiscard]] CopyScope() : outermost_(made_so_far == nullptr) {
    if (outermost_) made_so_far = &made_;
  }
  ~CopyScope() {
    if (outermost_) made_so_far = nullptr;
  }
  CopyScope(const CopyScope&) = delete;

 private:
  CopiedObjects made_;
  bool outermost_;
};

Tensor copied(const Tensor& t) {
  if (!t.defined()) return t;
  Tensor& copy = made_so_far->tensors[t.impl()];
  if (!copy.defined()) {
    const NoGrad off;
    const MemoryScope tag(MemoryTag::parameters);
    copy = t.detach().clone();
    if (copy.is_floating_point()) copy.set_requires_grad(t.requires_grad() && t.is_leaf());
  }
  return copy;
}

std::shared_ptr<TensorSlot> copied(const TensorSlot& slot) {
  auto copy = std::make_shared<TensorSlot>();
  copy->name = copy->label = slot.name;
  copy->value = slot.computed ? slot.get() : copied(slot.get());
  copy->waits = slot.waits;
  copy->is_parameter = slot.is_parameter;
  copy->persistent = slot.persistent;
  copy->was_held = slot.holder != nullptr;
  if (copy->is_parameter && !slot.computed) enter_module(copy->value);
  return copy;
}

template <class Slots, class Slot>
int index_of(const Slots& slots, const Slot* slot) {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].get() == slot) return int(i);
  }
  return -1;
}

std::string class_name(const Module& module) {
  int failed = 0;
  char* const text = abi::__cxa_demangle(typeid(module).name(), nullptr, nullptr, &failed);
  std::string name = failed ? typeid(module).name() : text;
  std::free(text);
  // "(anonymous namespace)::Net", "main::Net", "my::Net<int>"
  const size_t arguments = std::min(name.find('<'), name.size());
  const size_t scope = name.rfind("::", arguments);
  return scope == std::string::npos ? name : name.substr(scope + 2);
}

}  // namespace

bool register_class(const std::type_info& type, const ModuleClass& functions) {
  const std::lock_guard lock(classes_mutex());
  classes()[type] = functions;
  return true;
}

// ---- ModuleSlot

void ModuleSlot::fail_empty(const ModuleSlot* slot) {
  if (!slot)
    fail<ValueError>("Part", "this member has no name, so no module would see what is assigned or called",
                     Help{"Part<Linear> fc{this, \"fc\", 2, 3}, or fc = add(\"fc\", Linear(2, 3)) in the constructor"});
  fail<ValueError>("Part", "\"", slot->name, "\" holds no module");
}

void ModuleSlot::replace(std::shared_ptr<Module> by) {
  check<ValueError>(!by || !takes || takes(*by), "Part", "\"", name, "\" cannot be ", by ? by->describe() : std::string(),
                    ", which is of another class");
  if (by == module) return;
  if (!owner) {
    module = std::move(by);
    return;
  }
  check<ValueError>(!by || !by->is_or_has(owner), "Part", "a module cannot be its own child, nor that of a module below it");
  const std::shared_ptr<Module> before = std::exchange(module, std::move(by));
  if (before) {
    before->name_.clear();
    before->path_ = nullptr;
    if (before.use_count() == 1) {
      for (const NamedTensor& p : before->all_parameters()) leave_module(p.tensor);
    }
  }
  if (module) module->train(owner->training_);
  owner->name_child(*this);
  owner->structure_changed();
}

std::shared_ptr<ModuleSlot> ModuleSlot::for_copy(const std::shared_ptr<ModuleSlot>& slot, const void* from, const void* to) {
  auto unowned_slot = [&](std::shared_ptr<Module> module) {
    auto made = std::make_shared<ModuleSlot>();
    made->name = slot->name;
    made->module = std::move(module);
    made->takes = slot->takes;
    return made;
  };
  const Copying* const copy = copy_of(from, to);
  if (!copy) return unowned_slot(slot->module);
  const auto& slots = copy->from->children_;
  if (const int i = index_of(slots, slot.get()); i >= 0) return copy->to->children_[size_t(i)];
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i]->module == slot->module) return unowned_slot(copy->to->children_[i]->module);
  }
  return unowned_slot(slot->module);
}

std::shared_ptr<TensorSlot> Module::tensor_slot_for_copy(const TensorSlot* slot, const void* from, const void* to, bool& in_copy) {
  const Copying* const copy = copy_of(from, to);
  in_copy = copy != nullptr;
  if (!copy || !slot) return nullptr;
  if (const int i = index_of(copy->from->parameters_, slot); i >= 0) return copy->to->parameters_[size_t(i)];
  if (const int i = index_of(copy->from->buffers_, slot); i >= 0) return copy->to->buffers_[size_t(i)];
  return nullptr;
}

// ---- Module

Module::Module(const Module& other)
    : training_(other.training_),
      stays_in_eval_(other.stays_in_eval_),
      recomputes_(other.recomputes_),
      precision_(other.precision_),
      copied_(true),
      was_copied_(true) {
  other.check_copied();
  const CopyScope scope;
  const size_t depth = copying().size();
  for (const auto& slot : other.parameters_) parameters_.push_back(copied(*slot));
  for (const auto& slot : other.buffers_) buffers_.push_back(copied(*slot));
  for (const auto& slot : other.children_) {
    check<ValueError>(slot->listed || slot.use_count() > 1 || !slot->module, "copy", '"', slot->name, "\" of ", other.describe(),
                      " is not held by a Part, so a copy could still call the original's",
                      Help{"Part<Linear> fc = add(\"fc\", Linear(2, 3))"});
    auto copy = std::make_shared<ModuleSlot>();
    copy->name = slot->name;
    copy->owner = this;
    copy->takes = slot->takes;
    copy->listed = slot->listed;
    copy->was_held = slot.use_count() > 1;
    if (slot->module) {
      std::shared_ptr<Module>& made = made_so_far->modules[slot->module.get()];
      if (!made) made = slot->module->clone();
      copying().resize(depth);
      copy->module = made;
    }
    children_.push_back(std::move(copy));
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (const auto& list = other.parameters_[i]->computed)
      parameters_[i]->computed = std::static_pointer_cast<ParametrizationList>(made_so_far->modules.at(list.get()));
  }
  set_computes(other.hooks_ && other.hooks_->computes);
  for (const auto& slot : children_) name_child(*slot);
  forget_copy(this);
  copying().push_back({&other, this});
}

Module::Module(Module&& other) noexcept
    : parameters_(std::move(other.parameters_)),
      buffers_(std::move(other.buffers_)),
      children_(std::move(other.children_)),
      training_(other.training_),
      stays_in_eval_(other.stays_in_eval_),
      recomputes_(other.recomputes_),
      precision_(other.precision_),
      copied_(other.copied_),
      hooks_(std::move(other.hooks_)),
      place_(std::move(other.place_)) {
  if (place_) place_->module = this;
  for (const auto& slot : children_) slot->owner = this;
  if (hooks_) hooks_->moved = hooks_->moved || hooks_->may_hold_address;
}

Module& Module::operator=(Module&& other) {
  if (this == &other) return *this;
  ++module_assignments;
  for (const NamedTensor& p : all_parameters()) leave_module(p.tensor);
  disown();
  parameters_ = std::move(other.parameters_);
  buffers_ = std::move(other.buffers_);
  children_ = std::move(other.children_);
  copied_ = other.copied_;
  if (const auto place_of_other = std::exchange(other.place_, nullptr)) {
    place_of_other->moved_to = place();
    place_of_other->module = nullptr;
  }
  set_computes(other.hooks_ && other.hooks_->computes);
  for (const auto& slot : children_) slot->owner = this;
  relabel(path());
  const bool trains = stays_in_eval_ ? other.training_ : training_;  // a frozen norm's mode is not that of its model
  stays_in_eval_ = other.stays_in_eval_;
  train(trains);
  structure_changed();
  return *this;
}

Module::~Module() {
  disown();
  if (place_) place_->module = nullptr;
  if (was_copied_) forget_copy(this);
}

void Module::disown() noexcept {
  for (const auto& slot : parameters_) slot->registered = false;
  for (const auto& slot : buffers_) slot->registered = false;
  for (const auto& slot : children_) slot->owner = nullptr;
}

// Checks that all members which held tensors and children of the original hold those of the copy, unless they are not within the
// object.
void Module::check_copied() const {
  if (!copied_) return;
  for (const auto* slots : {&parameters_, &buffers_}) {
    for (const auto& slot : *slots)
      check<ValueError>(!slot->was_held || slot->holder, "copy", '"', slot->name, "\" of ", describe(),
                        " is held outside of the object, so a copy would use the original's", Help{"a ParameterList holds many"});
  }
  for (const auto& slot : children_)
    check<ValueError>(!slot->was_held || slot->listed || slot.use_count() > 1, "copy", '"', slot->name, "\" of ", describe(),
                      " is held outside of the object, so a copy would call the original's", Help{"a ModuleList holds many"});
  copied_ = false;
}

void Module::warn_of_no_part(const Module& caller) const {
  if (warned_ || !grad_enabled()) return;
  std::vector<NamedTensor> own = all_parameters();
  std::erase_if(own, [](const NamedTensor& t) { return !t.tensor.requires_grad(); });
  if (own.empty()) return;
  warned_ = true;
  const std::vector<NamedTensor> listed = caller.all_parameters();
  const auto is_listed = [&](const NamedTensor& p) {
    return std::any_of(listed.begin(), listed.end(), [&](const NamedTensor& q) { return q.tensor.same(p.tensor); });
  };
  if (std::all_of(own.begin(), own.end(), is_listed)) return;
  logging::warn_once(joined(caller.describe(), " calls ", describe(),
                            ", which is not a part of it: its parameters are not trained, moved or saved with it. Declare it as "
                            "Part<Linear> fc{this, \"fc\", 2, 3}, or freeze it with requires_grad_(false)."));
}

std::shared_ptr<Module> Module::clone() const {
  const std::optional<ModuleClass> functions = class_of(*this);
  check<ValueError>(functions.has_value(), "clone", "nothing is known of the class of ", describe(),
                    Help{"Net copy = net, or make it by make<Net>(arguments)"});
  check<ValueError>(functions->copy != nullptr, "clone", describe(), " cannot be copied: a member of it cannot",
                    Help{"give the class a copy constructor"});
  return functions->copy(*this);
}

Tensor Module::forward(const Tensor& x) {
  if (const std::optional<ModuleClass> functions = class_of(*this); functions && functions->forward)
    return functions->forward(*this, x);
  fail<ValueError>("forward", describe(), " does not take one tensor and return one, as this call needs",
                   Help{"give it Tensor forward(const Tensor& x) override, or call it with its forward's arguments; Sequential, "
                        "TrainStep and configs need a module of one input"});
}

std::string Module::describe() const { return class_name(*this); }

}  // namespace halfstep
