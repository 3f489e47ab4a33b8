// SPDX-License-Identifier: Apache-2.0
// The parameters and buffers of a module and of those below it.
#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>
#include <utility>

#include "framework/autograd/grad_mode.h"
#include "framework/base/list_text.h"
#include "layers/module/module.h"

namespace halfstep {
namespace {

std::string joined_name(const std::string& prefix, const std::string& name) { return prefix.empty() ? name : prefix + "." + name; }

// Throws ValueError with the nearest of the existing names.
[[noreturn]] void fail_name(const char* where, std::string_view name, const std::vector<std::string>& known) {
  const std::string near = nearest_name(std::string(name), known);
  fail<ValueError>(where, "there is no \"", name, '"', near.empty() ? "" : "; did you mean \"" + near + "\"?");
}

}  // namespace

const Tensor& NamedTensors::at(std::string_view name) const {
  std::vector<std::string> known;
  for (const NamedTensor& t : *this) {
    if (t.name == name) return t.tensor;
    known.push_back(t.name);
  }
  fail_name("state_dict", name, known);
}

bool NamedTensors::contains(std::string_view name) const {
  return std::any_of(begin(), end(), [&](const NamedTensor& t) { return t.name == name; });
}

Module& Module::get_submodule(const std::string& name) {
  std::vector<std::string> known;
  for (const auto& [path, module] : named_modules()) {
    if (path == name) return *module;
    known.push_back(path);
  }
  fail_name("get_submodule", name, known);
}

void Module::list_tensors(Slots own, const std::string& prefix, std::vector<NamedTensor>& out) const {
  check_copied();
  for (const auto& slot : this->*own) {
    if (slot->get().defined() && !slot->computed) out.push_back({joined_name(prefix, slot->name), slot->get()});
  }
  for (const auto& slot : children_) {
    if (slot->module) slot->module->list_tensors(own, joined_name(prefix, slot->name), out);
  }
}

namespace {

// Removes repeated tensors: a tensor that several modules share keeps its first name.
std::vector<NamedTensor> once_each(std::vector<NamedTensor> list) {
  std::set<const TensorImpl*> seen;
  std::erase_if(list, [&](const NamedTensor& n) { return !seen.insert(n.tensor.impl()).second; });
  return list;
}

}  // namespace

std::vector<NamedTensor> Module::all_parameters() const {
  std::vector<NamedTensor> out;
  list_tensors(&Module::parameters_, "", out);
  return once_each(std::move(out));
}

std::vector<NamedTensor> Module::all_tensors() const {
  std::vector<NamedTensor> out;
  list_tensors(&Module::parameters_, "", out);
  list_tensors(&Module::buffers_, "", out);
  return once_each(std::move(out));
}

void Module::wait_for_sizes() {
  const NoGrad off;
  for (const auto* slots : {&parameters_, &buffers_}) {
    for (const auto& slot : *slots) {
      const Tensor before = slot->get();
      if (!before.defined() || before.dim() == 0) continue;
      const Tensor none = Tensor::empty({0}, {.dtype = before.dtype(), .device = before.device()});
      none.set_requires_grad(before.requires_grad());
      none.set_label(slot->label);
      slot->put(none);
      slot->waits = true;
      if (slot->is_parameter) leave_module(before), enter_module(none);
    }
  }
}

void Module::check_sizes() const {
  visit([](const Module& m) {
    for (const auto* slots : {&m.parameters_, &m.buffers_}) {
      for (const auto& slot : *slots) {
        if (!slot->waits) continue;  // describe() takes time
        fail<ValueError>("parameters", '"', slot->label, "\" has no size before the first call of ", m.describe(),
                         Help{"call the model with an input first, model(x), and make the optimizer then"});
      }
    }
  });
}

NamedTensors Module::named_parameters(const std::string& prefix) const {
  check_sizes();
  NamedTensors out;
  list_tensors(&Module::parameters_, prefix, out);
  return once_each(std::move(out));
}

NamedTensors Module::named_buffers(const std::string& prefix) const {
  check_sizes();
  NamedTensors out;
  list_tensors(&Module::buffers_, prefix, out);
  return once_each(std::move(out));
}

namespace {

// Lists as named_parameters and named_buffers do, without making names: each training step, and each call of a model on a GPU,
// needs these lists.
struct TensorCollector {
  std::unordered_set<const TensorImpl*> seen;
  std::vector<Tensor> list;
  void add(const TensorSlot& slot) {
    if (slot.get().defined() && !slot.computed && seen.insert(slot.get().impl()).second) list.push_back(slot.get());
  }
};

}  // namespace

std::vector<Tensor> Module::parameters() const {
  check_sizes();
  TensorCollector collector;
  visit([&](const Module& m) {
    m.check_copied();
    for (const auto& slot : m.parameters_) collector.add(*slot);
  });
  return std::move(collector.list);
}

std::vector<Tensor> Module::buffers() const {
  check_sizes();
  TensorCollector collector;
  visit([&](const Module& m) {
    m.check_copied();
    for (const auto& slot : m.buffers_) collector.add(*slot);
  });
  return std::move(collector.list);
}

void Module::train(bool on) {
  training_ = on && !stays_in_eval_;
  for (const auto& slot : children_) {
    if (slot->module) slot->module->train(on);
  }
}

void Module::zero_grad() const {
  for (const NamedTensor& p : all_parameters()) p.tensor.zero_grad();
}

void Module::requires_grad_(bool on) const {
  for (const NamedTensor& p : all_parameters()) p.tensor.set_requires_grad(on);
}

int64_t Module::parameter_count() const {
  int64_t n = 0;
  for (const Tensor& p : parameters()) n += p.numel();
  return n;
}

bool are_same_elements(const Tensor& a, const Tensor& b) {
  return a.numel() > 0 && a.storage() == b.storage() && a.const_data_ptr() == b.const_data_ptr() && a.shape() == b.shape() &&
         a.strides() == b.strides();
}

StateDict Module::state_dict(const std::string& prefix) const {
  const NoGrad off;
  StateDict out = state_tensors(prefix);
  std::map<std::pair<const Storage*, const void*>, std::pair<Tensor, Tensor>> first;  // tensors and their copies, by address
  for (NamedTensor& n : out) {
    auto& [seen, copy] = first[{n.tensor.storage().get(), n.tensor.const_data_ptr()}];
    if (!seen.defined() || !are_same_elements(seen, n.tensor)) seen = n.tensor, copy = n.tensor.clone();
    n.tensor = copy;
  }
  return out;
}

StateDict Module::state_tensors(const std::string& prefix) const {
  check_copied();
  check_sizes();
  StateDict out;
  for (const auto* slots : {&parameters_, &buffers_}) {
    for (const auto& slot : *slots) {
      if (slot->get().defined() && slot->persistent && !slot->computed)
        out.push_back({joined_name(prefix, slot->name), slot->get().detach()});
    }
  }
  for (const auto& slot : children_) {
    if (!slot->module) continue;
    for (NamedTensor& n : slot->module->state_tensors(joined_name(prefix, slot->name))) out.push_back(std::move(n));
  }
  return out;
}

}  // namespace halfstep
