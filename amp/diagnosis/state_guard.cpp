// SPDX-License-Identifier: Apache-2.0
#include "amp/diagnosis/state_guard.h"

#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

RecurrentLayer::KeptState copy_of(const RecurrentLayer::KeptState& kept, std::optional<DType> dtype) {
  const auto copy = [&](const Tensor& t) { return t.defined() ? t.to(dtype.value_or(t.dtype())).clone() : t; };
  return {copy(kept.h), copy(kept.c), kept.begins};
}

}  // namespace

StepStates::StepStates(Module& module) : random_(default_generator().state()) {
  const NoGrad off;
  for (const NamedTensor& b : module.named_buffers())
    if (b.tensor.defined()) buffers_.push_back({b.tensor, b.tensor.detach().clone()});
  for (const auto& [name, layer] : stateful_layers(module))
    kept_.push_back({layer, layer->kept_state(), copy_of(layer->kept_state(), {})});
}

void StepStates::put_back_all_but_kept() const {
  const NoGrad off;
  for (const auto& [b, values] : buffers_) b.copy_(values);
  default_generator().set_state(random_);
}

void StepStates::put_back() const {
  put_back_all_but_kept();
  for (const LayerState& k : kept_) k.layer->kept_state() = k.handles;
}

void StepStates::put_back_for(std::optional<DType> low) const {
  put_back_all_but_kept();
  const NoGrad off;
  for (const LayerState& k : kept_) k.layer->kept_state() = copy_of(k.values, low.value_or(DType::f32));
}

StateGuard::StateGuard(Module& module, std::optional<DType> low, const Generator::State& random) : states_(module) {
  for (const Tensor& p : module.parameters()) {
    const auto& meta = p.impl()->autograd;
    gradients_.push_back({p, p.raw_grad(), meta && meta->scaled, meta && meta->mixed});
    p.zero_grad();
  }
  states_.put_back_for(low);
  default_generator().set_state(random);
}

StateGuard::~StateGuard() {
  for (const SavedGradient& g : gradients_) {
    g.parameter.set_grad(g.values);
    if (g.scaled) g.parameter.impl()->meta().scaled = true;
    if (g.mixed) g.parameter.impl()->meta().mixed = true;
  }
  states_.put_back();
}

}  // namespace halfstep
