// SPDX-License-Identifier: Apache-2.0
#include "layers/module.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <utility>

#include "amp/autocast/autocast.h"
#include "framework/autograd/checkpoint.h"
#include "framework/autograd/grad_mode.h"
#include "framework/base/generator.h"
#include "framework/base/layer_path.h"
#include "framework/ops/ops.h"
#include "layers/containers.h"

namespace halfstep {
namespace {

std::string join(const std::string& prefix, const std::string& name) { return prefix.empty() ? name : prefix + "." + name; }

void check_name(const char* where, const std::string& name, bool taken) {
  check<ValueError>(!name.empty() && name.find('.') == std::string::npos, where,
                    "a name must be non-empty and without a dot, got \"", name, '"');
  check<ValueError>(!taken, where, "the name \"", name, "\" is already taken");
}

bool has(const std::vector<NamedTensor>& list, const std::string& name) {
  for (const NamedTensor& n : list) {
    if (n.name == name) return true;
  }
  return false;
}

template <class List>
bool has_child(const List& list, const std::string& name) {
  for (const auto& entry : list) {
    if (entry.first == name) return true;
  }
  return false;
}

bool holds(const Module& module, const Module* what) {
  return &module == what || std::any_of(module.children().begin(), module.children().end(),
                                        [what](const auto& child) { return holds(*child.second, what); });
}

void indent_into(std::string& out, const std::string& text) {
  for (char c : text) {
    out += c;
    if (c == '\n') out += "  ";
  }
}

// Gives every handle of `t` the memory, dtype and device of `by`.
void replace(const Tensor& t, const Tensor& by) {
  autocast::drop_shadow(t);
  TensorImpl& impl = *t.impl();
  // A graph that saved t must not take the other memory for what it saved.
  while (by.version() <= t.version()) by.bump_version();
  impl.storage = by.storage();
  impl.offset = by.impl()->offset;
  impl.strides = by.strides();
  impl.dtype = by.dtype();
  if (impl.autograd) impl.autograd->accumulator.reset();  // made for the dtype and device before
}

template <class Convert>
void convert(const Tensor& t, const Convert& to) {
  NoGrad off;
  MemoryScope tag(MemoryTag::parameters);
  const Tensor g = t.grad();
  if (g.defined()) t.set_grad(Tensor());
  replace(t, to(t.detach()));
  if (g.defined()) t.set_grad(to(g));
}

}  // namespace

std::string Module::str() const {
  std::string head = describe();
  if (children_.empty()) return head.find('(') == std::string::npos ? head + "()" : head;
  if (const size_t open = head.find('('); open != std::string::npos && head.back() == ')') {
    const std::string extra = head.substr(open + 1, head.size() - open - 2);
    head = head.substr(0, open) + "(\n" + (extra.empty() ? "" : "  " + extra + "\n");
  } else {
    head += "(\n";
  }
  // Equal children of a ModuleList are printed once.
  const bool folds = dynamic_cast<const ModuleList*>(this) != nullptr;
  for (size_t i = 0; i < children_.size();) {
    const std::string text = children_[i].second->str();
    size_t end = i + 1;
    while (folds && end < children_.size() && children_[end].second->str() == text) ++end;
    std::string name = children_[i].first, count;
    if (end > i + 1) name += "-" + children_[end - 1].first, count = std::to_string(end - i) + " x ";
    head += "  (" + name + "): " + count;
    indent_into(head, text);
    head += '\n';
    i = end;
  }
  return head + ")";
}

Tensor Module::register_parameter(const std::string& name, const Tensor& t) {
  check_name("register_parameter", name, has(parameters_, name) || has(buffers_, name) || has_child(children_, name));
  if (!t.defined()) return t;  // an option left out, such as a bias
  check<ValueError>(t.is_leaf(), "register_parameter", "\"", name, "\" must be a leaf tensor, it was computed by an operation",
                    Help{"pass x.detach()"});
  check<DTypeError>(t.is_floating_point(), "register_parameter", "\"", name, "\" must be floating point, got ", t.dtype(),
                    Help{"register it as a buffer"});
  t.set_requires_grad(true);
  t.set_label(name);
  parameters_.push_back({name, t});
  return t;
}

Tensor Module::register_buffer(const std::string& name, const Tensor& t) {
  check_name("register_buffer", name, has(parameters_, name) || has(buffers_, name) || has_child(children_, name));
  check<ValueError>(t.defined(), "register_buffer", "\"", name, "\" must be a tensor, got an undefined one");
  t.set_label(name);
  buffers_.push_back({name, t});
  return t;
}

Tensor Module::share_parameter(const std::string& name, const Tensor& t) {
  for (NamedTensor& mine : parameters_) {
    if (mine.name != name) continue;
    check<ValueError>(t.defined() && t.is_leaf(), "share_parameter", "\"", name, "\" must be shared with a parameter of a module");
    check<ShapeError>(t.shape() == mine.tensor.shape(), "share_parameter", "\"", name, "\" has shape ", mine.tensor.shape(),
                      " and cannot be shared with a parameter of shape ", t.shape());
    mine.tensor = t;
    return t;
  }
  fail<ValueError>("share_parameter", describe(), " has no parameter \"", name, '"');
}

Tensor Module::forward(const Tensor&) {
  fail<ValueError>("forward", describe(), " does not take one tensor and return one, as this call needs",
                   Help{"call it with its forward's arguments; Sequential, TrainStep and configs need a module of one input"});
}

uint64_t Module::next_hook_key() {
  static std::atomic<uint64_t> next{1};
  return next++;
}

void Module::remove_hook(uint64_t key) {
  if (!hooks_) return;
  // A call under way has a copy of its own.
  auto left = std::make_shared<ModuleHooks>(*hooks_);
  const auto has_key = [key](const auto& entry) { return entry.first == key; };
  std::erase_if(left->before, has_key);
  std::erase_if(left->after, has_key);
  std::erase_if(left->backward, has_key);
  hooks_ = left->empty() ? nullptr : left;
}

namespace {

// Gives the buffers other memory, with the same values, until its end.
class BuffersAside {
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
  BuffersAside(const BuffersAside&) = delete;

 private:
  std::vector<NamedTensor> buffers_;
  Tensors kept_;
};

}  // namespace

Tensor Module::recomputed(const Tensor& x) {
  const auto again = std::make_shared<bool>(false);
  const auto f = [this, again](const Tensor& in) {
    if (!std::exchange(*again, true)) return forward(in);
    const BuffersAside aside(named_buffers());  // the first time has moved them
    return forward(in);
  };
  return checkpoint(f, x, parameters());
}

bool Module::any_recomputes() const {
  return recomputes_ || std::any_of(children_.begin(), children_.end(), [](const auto& c) { return c.second->any_recomputes(); });
}

bool Module::any_hooks() const {
  return has_hooks() ||
         std::any_of(children_.begin(), children_.end(), [](const auto& child) { return child.second->any_hooks(); });
}

std::shared_ptr<Module> Module::clone() const {
  check<ValueError>(remake_ != nullptr, "clone", describe(), " was not made by make<...>(), so nothing says how to make another",
                    Help{"halfstep::make<Net>(arguments) in place of std::make_shared, or override clone()"});
  const Generator::State random = default_generator().state();
  const std::shared_ptr<Module> copy = remake_();
  default_generator().set_state(random);
  copy->take_values(*this);
  return copy;
}

void Module::copy_modes(Module& copy) const {
  copy.training_ = training_;
  for (size_t i = 0; i < children_.size(); ++i) children_[i].second->copy_modes(*copy.children_[i].second);
}

void Module::take_values(const Module& from) {
  const auto take = [&](std::vector<NamedTensor>& mine, const std::vector<NamedTensor>& theirs) {
    check<ValueError>(mine.size() == theirs.size(), "clone", describe(), " has other tensors than when it was made",
                      Help{"override clone()"});
    for (size_t i = 0; i < mine.size(); ++i) {
      const Tensor &to = mine[i].tensor, &value = theirs[i].tensor;
      check<ValueError>(!to.same(value), "clone", "\"", mine[i].name, "\" of ", describe(),
                        " was handed to its constructor, so a second one has the same tensor", Help{"override clone()"});
      convert(to, [&](const Tensor&) { return value.detach().clone(); });
      to.impl()->shape = value.shape();
      if (to.is_floating_point()) to.set_requires_grad(value.requires_grad());
    }
  };
  take(parameters_, from.parameters_);
  take(buffers_, from.buffers_);
  check<ValueError>(children_.size() == from.children_.size(), "clone", describe(), " has other children than when it was made",
                    Help{"override clone()"});
  for (size_t i = 0; i < children_.size(); ++i) {
    Module &mine = *children_[i].second, &theirs = *from.children_[i].second;
    check<ValueError>(&mine != &theirs, "clone", "\"", children_[i].first, "\" of ", describe(),
                      " was handed to its constructor, so a second one has the same child", Help{"override clone()"});
    mine.take_values(theirs);
  }
  training_ = from.training_;
}

void Module::register_module(const std::string& name, std::shared_ptr<Module> child) {
  check_name("register_module", name, has(parameters_, name) || has(buffers_, name) || has_child(children_, name));
  check<ValueError>(child != nullptr, "register_module", "\"", name, "\" must be a module, got a null pointer");
  check<ValueError>(!holds(*child, this), "register_module", "a module cannot be its own child, nor that of a module below it");
  // Children are complete before they are registered, so labels grow into full names from the leaves up.
  for (const NamedTensor& p : child->named_parameters(name)) p.tensor.set_label(p.name);
  for (const NamedTensor& b : child->named_buffers(name)) b.tensor.set_label(b.name);
  child->train(training_);
  child->name_ = name;
  child->set_path(join(path(), name));
  children_.emplace_back(name, std::move(child));
}

void Module::set_path(const std::string& path) {
  path_ = kept_forever(path);
  for (const auto& [name, child] : children_) child->set_path(join(path, name));
  path_changed();
}

std::vector<std::pair<std::string, Module*>> Module::named_modules(const std::string& prefix) {
  std::vector<std::pair<std::string, Module*>> out{{prefix, this}};
  std::set<Module*> seen{this};
  for (const auto& [name, child] : children_) {
    for (const auto& entry : child->named_modules(join(prefix, name))) {
      if (seen.insert(entry.second).second) out.push_back(entry);
    }
  }
  return out;
}

std::vector<NamedTensor> Module::named_parameters(const std::string& prefix) const {
  std::vector<NamedTensor> out;
  std::set<const TensorImpl*> seen;  // a shared parameter is listed once
  const auto list = [&](const NamedTensor& n) {
    if (seen.insert(n.tensor.impl()).second) out.push_back(n);
  };
  for (const NamedTensor& p : parameters_) list({join(prefix, p.name), p.tensor});
  for (const auto& [name, child] : children_) {
    for (const NamedTensor& p : child->named_parameters(join(prefix, name))) list(p);
  }
  return out;
}

std::vector<NamedTensor> Module::named_buffers(const std::string& prefix) const {
  std::vector<NamedTensor> out;
  std::set<const TensorImpl*> seen;
  const auto list = [&](const NamedTensor& n) {
    if (seen.insert(n.tensor.impl()).second) out.push_back(n);
  };
  for (const NamedTensor& b : buffers_) list({join(prefix, b.name), b.tensor});
  for (const auto& [name, child] : children_) {
    for (const NamedTensor& b : child->named_buffers(join(prefix, name))) list(b);
  }
  return out;
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> out;
  for (NamedTensor& p : named_parameters()) out.push_back(std::move(p.tensor));
  return out;
}

void Module::train(bool on) {
  training_ = on;
  for (const auto& entry : children_) entry.second->train(on);
}

void Module::zero_grad() const {
  for (const Tensor& p : parameters()) p.zero_grad();
}

void Module::requires_grad_(bool on) const {
  for (const Tensor& p : parameters()) p.set_requires_grad(on);
}

void Module::apply(const std::function<void(Module&)>& f) {
  for (const auto& entry : children_) entry.second->apply(f);
  f(*this);
}

Module& Module::to(Device device) {
  const auto move = [&](const Tensor& t) {
    check<MetaError>(device.is_meta() || !t.device().is_meta(), "Module::to", "\"", t.label(),
                     "\" is on the device meta, so it has no values to bring to ", device,
                     Help{"to_empty(device), then load or initialise the weights; load() with a device does both"});
    if (t.device() != device) convert(t, [&](const Tensor& x) { return halfstep::to(x, device); });
  };
  for (const NamedTensor& p : named_parameters()) move(p.tensor);
  for (const NamedTensor& b : named_buffers()) move(b.tensor);
  return *this;
}

Module& Module::to_empty(Device device) {
  const auto make = [&](const Tensor& t) {
    convert(
        t, [&](const Tensor& x) { return Tensor::empty(x.shape(), {.dtype = x.dtype(), .device = device, .format = x.format()}); });
  };
  for (const NamedTensor& p : named_parameters()) {
    p.tensor.zero_grad();
    make(p.tensor);
  }
  for (const NamedTensor& b : named_buffers()) make(b.tensor);
  return *this;
}

Module& Module::to(MemoryFormat format) {
  const auto lay = [&](const Tensor& t) {
    const bool has_channels = t.dim() == 4 || t.dim() == 5;
    if (has_channels && !t.is_contiguous(format)) convert(t, [&](const Tensor& x) { return halfstep::to(x, format); });
  };
  for (const NamedTensor& p : named_parameters()) lay(p.tensor);
  for (const NamedTensor& b : named_buffers()) lay(b.tensor);
  return *this;
}

Module& Module::to(DType dtype) {
  check<DTypeError>(is_floating(dtype), "Module::to", "parameters must be floating point, got ", dtype);
  const auto cast = [&](const Tensor& t) {
    if (t.is_floating_point() && t.dtype() != dtype) convert(t, [&](const Tensor& x) { return halfstep::to(x, dtype); });
  };
  for (const NamedTensor& p : named_parameters()) cast(p.tensor);
  for (const NamedTensor& b : named_buffers()) cast(b.tensor);
  return *this;
}

int64_t Module::parameter_count() const {
  int64_t n = 0;
  for (const Tensor& p : parameters()) n += p.numel();
  return n;
}

StateDict Module::state_dict(const std::string& prefix) const {
  StateDict out;
  for (const NamedTensor& p : parameters_) out.push_back({join(prefix, p.name), p.tensor.detach()});
  for (const NamedTensor& b : buffers_) out.push_back({join(prefix, b.name), b.tensor.detach()});
  for (const auto& [name, child] : children_) {
    for (NamedTensor& n : child->state_dict(join(prefix, name))) out.push_back(std::move(n));
  }
  return out;
}

}  // namespace halfstep
