// SPDX-License-Identifier: Apache-2.0
#include "layers/module/hooks.h"

#include "framework/autograd/grad_mode.h"
#include "framework/autograd/node.h"
#include "framework/base/check.h"
#include "framework/base/layer_path.h"
#include "layers/module/module.h"
#include "layers/module/parametrize.h"

namespace halfstep {
namespace {

Tensors values_of(const std::vector<Tensor*>& places) {
  Tensors out;
  for (const Tensor* t : places) out.push_back(*t);
  return out;
}

void check_count(const char* hook, const Module& module, size_t given, size_t wanted) {
  check<ValueError>(given == wanted, hook, "a hook of ", module.describe(), " must return nothing or ", wanted,
                    wanted == 1 ? " tensor" : " tensors", ", one for each that it was given, got ", given);
}

void check_not_moved(const Module& module, bool moved) {
  check<ValueError>(
      !moved, "hook", module.describe(),
      " was moved after a hook was registered that holds something, which may be its former address",
      Help{"use the module that a hook is given, and register hooks where the module stays: make<Net>() makes it there"});
}

// Replaces the tensors in `places` that need gradients by outputs of `node`, and appends their positions to `positions`.
void put_behind(const std::shared_ptr<Node>& node, const std::vector<Tensor*>& places, std::vector<size_t>& positions) {
  Tensors made;
  for (size_t i = 0; i < places.size(); ++i) {
    Tensor& t = *places[i];
    if (!t.defined() || !t.is_floating_point() || !t.requires_grad()) continue;
    positions.push_back(i);
    node->edges.push_back(edge_of(t));
    made.push_back(t.alias(t.shape(), t.strides()));
  }
  attach(node, made);
  for (size_t k = 0; k < made.size(); ++k) *places[positions[k]] = made[k];
}

// Returns a list of `count` gradients, with `grads` at these positions and undefined ones elsewhere.
Tensors spread(const Tensors& grads, const std::vector<size_t>& positions, size_t count) {
  Tensors out(count);
  for (size_t k = 0; k < positions.size(); ++k) out[positions[k]] = grads[k];
  return out;
}

}  // namespace

Module* ModulePlace::find() const {
  const ModulePlace* at = this;
  while (!at->module && at->moved_to) at = at->moved_to.get();
  return at->module;
}

// State that a module's output node and input node share in backward. The output node runs first.
struct HookedCall::Backward {
  std::shared_ptr<ModulePlace> place;
  const Module* called;  // where the module was in forward
  bool may_hold_address;
  std::vector<BackwardHook> hooks{};
  std::vector<size_t> inputs{}, outputs{};  // positions of those that need gradients
  size_t input_count = 0, output_count = 0;
  Tensors grad_outputs{};

  // Calls the hooks; returns the gradients of the inputs, which each may replace.
  Tensors call(Tensors grad_inputs) const {
    Module* const module = place->find();
    check<AutogradError>(module != nullptr, "full_backward_hook", "the module is gone with which its hooks would be called",
                         Help{"let the module live until backward"});
    check_not_moved(*module, may_hold_address && module != called);
    for (const BackwardHook& hook : hooks) {
      std::optional<Tensors> made = hook(*module, grad_inputs, grad_outputs);
      if (!made) continue;
      check_count("full_backward_hook", *module, made->size(), grad_inputs.size());
      grad_inputs = std::move(*made);
    }
    return grad_inputs;
  }

  struct Outputs final : Node {
    explicit Outputs(std::shared_ptr<Backward> shared) : shared(std::move(shared)) {}
    std::string_view name() const override { return "module_outputs"; }
    Tensors backward(Tensors grads, const BackwardCall&) override {
      shared->grad_outputs = spread(grads, shared->outputs, shared->output_count);
      if (shared->inputs.empty()) shared->call(Tensors(shared->input_count));
      return grads;
    }
    std::shared_ptr<Backward> shared;
  };
  struct Inputs final : Node {
    explicit Inputs(std::shared_ptr<Backward> shared) : shared(std::move(shared)) {}
    std::string_view name() const override { return "module_inputs"; }
    Tensors backward(Tensors grads, const BackwardCall&) override {
      const Tensors grad_inputs = shared->call(spread(grads, shared->inputs, shared->input_count));
      for (size_t k = 0; k < grads.size(); ++k) grads[k] = grad_inputs[shared->inputs[k]];
      return grads;
    }
    std::shared_ptr<Backward> shared;
  };
};

void HookedCall::before(const std::vector<Tensor*>& inputs) {
  check_not_moved(module_, hooks_.moved);
  for (const auto& [key, hook] : hooks_.before) {
    const std::optional<Tensors> made = hook(module_, values_of(inputs));
    if (!made) continue;
    check_count("forward_pre_hook", module_, made->size(), inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) *inputs[i] = (*made)[i];
  }
  if (hooks_.computes) computed_.compute(module_);
  inputs_ = values_of(inputs);
  if (hooks_.backward.empty() || !grad_enabled()) return;
  backward_ = std::make_shared<Backward>(Backward{module_.place(), &module_, hooks_.may_hold_address});
  for (const auto& [key, hook] : hooks_.backward) backward_->hooks.push_back(hook);
  backward_->input_count = inputs.size();
  if (should_record(inputs_)) put_behind(make_node<Backward::Inputs>(backward_), inputs, backward_->inputs);
}

void HookedCall::after(const std::vector<Tensor*>& outputs) {
  for (const auto& [key, hook] : hooks_.after) {
    const std::optional<Tensors> made = hook(module_, inputs_, values_of(outputs));
    if (!made) continue;
    check_count("forward_hook", module_, made->size(), outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) *outputs[i] = (*made)[i];
  }
  if (!backward_ || !should_record(values_of(outputs))) return;
  backward_->output_count = outputs.size();
  put_behind(make_node<Backward::Outputs>(backward_), outputs, backward_->outputs);
}

SpecialCall::SpecialCall(Module& module, const ModuleHooks* hooks, std::optional<DType> precision, const std::string* path) {
  if (precision) region_.emplace(*precision, path ? path : kept_forever(""));
  if (hooks) hooked_.emplace(module, *hooks);
}

void SpecialCall::before(const std::vector<Tensor*>& inputs) {
  if (region_) region_->widen(inputs);
  if (hooked_) hooked_->before(inputs);
}

void SpecialCall::after(const std::vector<Tensor*>& outputs) {
  if (hooked_) hooked_->after(outputs);
  if (!region_) return;
  region_.reset();
  // Cast the outputs back: a float32 module around one of 16 bits takes them as its input.
  std::vector<Tensor*> given;
  for (Tensor* const t : outputs)
    if (t->defined() && autocast::regions().by_device[size_t(t->device().type)].mode == autocast::Mode::paused) given.push_back(t);
  if (!given.empty()) autocast::ModuleRegion(DType::f32, kept_forever("")).widen(given);
}

}  // namespace halfstep
