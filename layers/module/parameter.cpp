// SPDX-License-Identifier: Apache-2.0
#include "layers/module/parameter.h"

#include "layers/module/assignments.h"
#include "layers/module/module.h"
#include "layers/module/parametrize.h"

namespace halfstep {

void check_parameter(const char* where, const std::string& name, const Tensor& t) {
  check<ValueError>(t.is_leaf(), where, "\"", name, "\" must be a leaf tensor, it was computed by an operation",
                    Help{"pass x.detach()"});
  check<DTypeError>(t.is_floating_point(), where, "\"", name, "\" must be floating point, got ", t.dtype(),
                    Help{"register it as a buffer"});
}

void enter_module(const Tensor& parameter) {
  if (!parameter.defined()) return;
  AutogradMeta& meta = parameter.impl()->meta();
  ++meta.modules;
  meta.replaced = false;
}

void leave_module(const Tensor& parameter) {
  if (!parameter.defined()) return;
  AutogradMeta& meta = parameter.impl()->meta();
  if (meta.modules > 0 && --meta.modules == 0) meta.replaced = true;
}

void HeldTensor::bind(std::shared_ptr<TensorSlot> slot) noexcept {
  release();
  slot_ = std::move(slot);
  if (!slot_) return;
  Tensor::operator=(slot_->get());
  if (slot_->holder) slot_->holder->slot_.reset();
  slot_->holder = this;
  slot_->value = Tensor();  // else the first tensor would live as long as the module, even after an assignment
}

void HeldTensor::release() noexcept {
  if (!slot_ || slot_->holder != this) return;
  slot_->value = *this;
  slot_->holder = nullptr;
  slot_.reset();
}

HeldTensor::HeldTensor(const HeldTensor& other) : Tensor(other), loose_(true) {
  bool in_copy = false;
  std::shared_ptr<TensorSlot> slot = Module::tensor_slot_for_copy(other.slot_.get(), &other, this, in_copy);
  if (in_copy) loose_ = other.loose_;
  if (slot) bind(std::move(slot));
}

HeldTensor::HeldTensor(HeldTensor&& other) noexcept : Tensor(other), slot_(std::move(other.slot_)), loose_(other.loose_) {
  if (slot_) slot_->holder = this;
}

void HeldTensor::assign(const Tensor& t, bool shared) {
  if (!slot_) {
    check<ValueError>(loose_, "Parameter", "this member has no name, so no module would see what is assigned",
                      Help{"weight = register_parameter(\"weight\", t), steps = register_buffer(\"steps\", t)"});
    Tensor::operator=(t);
    return;
  }
  if (same(t)) return;
  if (slot_->computed) return slot_->computed->set(t);
  const bool is_parameter = slot_->is_parameter;
  if (t.defined()) {
    if (is_parameter) check_parameter("Parameter", slot_->label, t);
    if (is_parameter && !shared) t.set_requires_grad(true);
    if (!shared || t.label().empty()) t.set_label(slot_->label);
  }
  const Tensor before = *this;
  Tensor::operator=(t);
  ++module_assignments;
  slot_->waits = false;
  if (!is_parameter) return;
  leave_module(before);
  enter_module(t);
}

void HeldTensor::take(HeldTensor&& other) {
  if (this == &other) return;
  const bool has_place = slot_ && slot_->registered;
  if (!has_place && other.slot_)
    bind(std::move(other.slot_));
  else if (!slot_ && !other.slot_)
    Tensor::operator=(other);
  else
    assign(other, /*shared=*/true);
}

}  // namespace halfstep
