// SPDX-License-Identifier: Apache-2.0
#include "torch/nn/module.h"

#include <cxxabi.h>

#include "torch/serialize/archive.h"

namespace torch {

std::string demangle(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  const std::string out = status == 0 ? text : name;
  std::free(text);
  return out;
}

namespace nn {
namespace {

std::string join(const std::string& prefix, const std::string& name) { return prefix.empty() ? name : prefix + "." + name; }

void check_name(const char* what, const std::string& name) {
  TORCH_CHECK(!name.empty(), what, " name must not be empty");
  TORCH_CHECK(name.find('.') == std::string::npos, what, " name must not contain a dot (got '", name, "')");
}

// Gives the tensors of a clone the values of the original.
void copy_values(const char* what, const char* call, OrderedDict<std::string, Tensor>& to,
                 const OrderedDict<std::string, Tensor>& from, const std::optional<Device>& device) {
  TORCH_CHECK(to.size() == from.size(), "The cloned module does not have the same number of ", what,
              " as the original module after calling reset(). Are you sure you called ", call,
              "() inside reset() and not the constructor?");
  for (const auto& p : from) {
    if (!p.value().defined()) continue;
    const Tensor v = p.value().detach();
    to[p.key()].set_data(device && v.device() != *device ? v.to(TensorOptions(*device)) : v.clone());
  }
}

}  // namespace

const std::string& Module::name() const noexcept {
  if (!name_) name_ = demangle(typeid(*this).name());
  return *name_;
}

std::shared_ptr<Module> Module::clone(const std::optional<Device>&) const {
  detail::fail("clone() has not been implemented for ", name(), ". Subclass torch::nn::Cloneable<", name(),
               "> instead of torch::nn::Module to inherit the ability to clone.");
}
void Module::fill_clone(Module& copy, const std::optional<Device>& device) const {
  copy_values("parameters", "register_parameter", copy.parameters_, parameters_, device);
  copy_values("buffers", "register_buffer", copy.buffers_, buffers_, device);
  TORCH_CHECK(copy.children_.size() == children_.size(),
              "The cloned module does not have the same number of child modules as the original module after calling reset(). Are "
              "you sure you called register_module() inside reset() and not the constructor?");
  for (const auto& c : children_) copy.children_[c.key()]->clone_(*c.value(), device);
}

void Module::apply(const ModuleApplyFunction& f) {
  f(*this);
  each("", [&](const std::string&, const std::shared_ptr<Module>& m) { f(*m); });
}
void Module::apply(const ConstModuleApplyFunction& f) const {
  f(*this);
  each("", [&](const std::string&, const std::shared_ptr<Module>& m) { f(*m); });
}
void Module::apply(const NamedModuleApplyFunction& f, const std::string& prefix) {
  f(prefix, *this);
  each(prefix, [&](const std::string& n, const std::shared_ptr<Module>& m) { f(n, *m); });
}
void Module::apply(const ConstNamedModuleApplyFunction& f, const std::string& prefix) const {
  f(prefix, *this);
  each(prefix, [&](const std::string& n, const std::shared_ptr<Module>& m) { f(n, *m); });
}
void Module::apply(const ModulePointerApplyFunction& f) const {
  f(self());
  each("", [&](const std::string&, const std::shared_ptr<Module>& m) { f(m); });
}
void Module::apply(const NamedModulePointerApplyFunction& f, const std::string& prefix) const {
  f(prefix, self());
  each(prefix, f);
}

std::vector<Tensor> Module::parameters(bool recurse) const { return named_parameters(recurse).values(); }
OrderedDict<std::string, Tensor> Module::named_parameters(bool recurse) const { return list(&Module::parameters_, recurse); }
std::vector<Tensor> Module::buffers(bool recurse) const { return named_buffers(recurse).values(); }
OrderedDict<std::string, Tensor> Module::named_buffers(bool recurse) const { return list(&Module::buffers_, recurse); }
OrderedDict<std::string, Tensor> Module::list(OrderedDict<std::string, Tensor> Module::*of, bool recurse) const {
  OrderedDict<std::string, Tensor> out;
  auto take = [&](const std::string& prefix, const Module& m) {
    for (const auto& p : m.*of)
      if (p.value().defined()) out.insert(join(prefix, p.key()), p.value());
  };
  take("", *this);
  if (recurse) each("", [&](const std::string& n, const std::shared_ptr<Module>& m) { take(n, *m); });
  return out;
}
std::vector<std::shared_ptr<Module>> Module::modules(bool include_self) const {
  std::vector<std::shared_ptr<Module>> out;
  if (include_self) out.push_back(self());
  each("", [&](const std::string&, const std::shared_ptr<Module>& m) { out.push_back(m); });
  return out;
}
OrderedDict<std::string, std::shared_ptr<Module>> Module::named_modules(const std::string& prefix, bool include_self) const {
  OrderedDict<std::string, std::shared_ptr<Module>> out;
  if (include_self) out.insert(prefix, self());
  each(prefix, [&](const std::string& n, const std::shared_ptr<Module>& m) { out.insert(n, m); });
  return out;
}

void Module::train(bool on) {
  for (auto& c : children_) c.value()->train(on);
  training_ = on;
}
void Module::to(Device device, ScalarType dtype, bool) { convert(device, dtype); }
void Module::to(ScalarType dtype, bool) { convert({}, dtype); }
void Module::to(Device device, bool) { convert(device, {}); }
void Module::convert(std::optional<Device> device, std::optional<ScalarType> dtype) {
  for (auto& c : children_) {
    if (device && dtype)
      c.value()->to(*device, *dtype);
    else if (device)
      c.value()->to(*device);
    else
      c.value()->to(*dtype);
  }
  auto change = [&](const Tensor& t) {
    if (!t.defined()) return;
    TensorOptions o;
    if (device) o = o.device(*device);
    if (dtype) o = o.dtype(*dtype);
    t.set_data(t.detach().to(o));
  };
  for (auto& p : parameters_) change(p.value());
  for (auto& b : buffers_) change(b.value());
}
void Module::zero_grad(bool set_to_none) {
  for (auto& c : children_) c.value()->zero_grad(set_to_none);
  for (auto& p : parameters_) {
    if (p.value().defined()) detail::zero_grad(p.value(), set_to_none);
  }
}

Tensor& Module::register_parameter(std::string name, Tensor t, bool requires_grad) {
  check_name("Parameter", name);
  if (t.defined())
    t.set_requires_grad(requires_grad);
  else if (requires_grad)
    TORCH_WARN("An undefined tensor cannot require grad. Ignoring the `requires_grad=true` function parameter.");
  return parameters_.insert(std::move(name), std::move(t));
}
Tensor& Module::register_buffer(std::string name, Tensor t) {
  check_name("Buffer", name);
  return buffers_.insert(std::move(name), std::move(t));
}
void Module::put_child(std::string name, std::shared_ptr<Module> m) {
  check_name("Submodule", name);
  children_.insert(std::move(name), std::move(m));
}
void Module::unregister_module(const std::string& name) {
  TORCH_CHECK(children_.contains(name), "No Module with name `", name, "` is registered");
  children_.erase(name);
}

std::shared_ptr<Module> Module::self() const {
  try {
    return std::const_pointer_cast<Module>(shared_from_this());
  } catch (const std::bad_weak_ptr&) {
    detail::fail(
        "It looks like you attempted to retrieve your top-level module as a shared_ptr, but it is not stored in a "
        "shared_ptr. Use std::make_shared<",
        name(),
        "> instead of creating your module on the stack, or alternatively "
        "do not try to access your top-level module at all by passing /*include_self=*/false to modules() or "
        "named_modules()");
  }
}
void Module::each(const std::string& prefix, const NamedModulePointerApplyFunction& f) const {
  for (const auto& c : children_) {
    const std::string n = join(prefix, c.key());
    f(n, c.value());
    c.value()->each(n, f);
  }
}
void Module::print_tree(std::ostream& out, const std::string& indent) const {
  pretty_print(out);
  if (children_.is_empty()) return;
  out << "(\n";
  for (const auto& c : children_) {
    out << indent << "  (" << c.key() << "): ";
    c.value()->print_tree(out, indent + "  ");
    out << '\n';
  }
  out << indent << ")";
}

void Module::save(serialize::OutputArchive& archive) const {
  for (const auto& p : parameters_) archive.write(p.key(), p.value());
  for (const auto& b : buffers_) archive.write(b.key(), b.value(), true);
  for (const auto& c : children_) {
    if (!c.value()->is_serializable()) continue;
    serialize::OutputArchive nested;
    c.value()->save(nested);
    archive.write(c.key(), nested);
  }
}
void Module::load(serialize::InputArchive& archive) {
  for (auto& p : parameters_) archive.read(p.key(), p.value());
  for (auto& b : buffers_) archive.read(b.key(), b.value(), true);
  for (const auto& c : children_) {
    if (!c.value()->is_serializable()) continue;
    serialize::InputArchive nested;
    // A state_dict of Python does not mention modules without tensors, such as ReLU.
    if (!archive.try_read(c.key(), nested) && c.value()->parameters().empty() && c.value()->buffers().empty()) continue;
    archive.read(c.key(), nested);
    c.value()->load(nested);
  }
}

}  // namespace nn
}  // namespace torch
