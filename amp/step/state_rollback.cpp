// SPDX-License-Identifier: Apache-2.0
#include "amp/step/state_rollback.h"

#include <utility>

#include "framework/autograd/grad_mode.h"
#include "framework/backend/backend.h"
#include "framework/ops/core/promotion.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

// `now` becomes `before` where the flag is set; zero is what a state begins as.
void select_back(const Tensor& now, const Tensor& before, const Tensor& flag) {
  if (!now.defined()) return;
  const bool fits = before.defined() && before.shape() == now.shape();
  now.copy_(where(flag, fits ? before.to(now.dtype()) : zeros_like(now), now.detach()));
}

// `now` becomes `before` where the flag is set, in one kernel.
void select_into(const Tensor& now, const Tensor& flag, const Tensor& before) {
  const Tensor at = now.detach();
  if (!at.is_contiguous()) {
    at.copy_(where(flag, before, at));
    return;
  }
  backend_for(at.device()).where(broadcast_view(flag, at.shape()), before.contiguous().view(), at.view(), at.view());
  at.bump_version();
}

}  // namespace

void StateRollback::save() {
  if (!buffers_) {
    buffers_.emplace();
    for (const NamedTensor& b : module_.named_buffers()) buffers_->push_back({b.tensor});
    any_stateful_ = !stateful_layers(module_).empty();
  }
  const NoGrad off;
  const MemoryScope tag(MemoryTag::workspace);
  for (Buffer& b : *buffers_) {
    b.before = b.moves ? b.tensor.detach().clone() : Tensor();
    b.version = b.tensor.version();
  }
  kept_.clear();
  if (!any_stateful_) return;
  const auto copy = [](const Tensor& t) { return t.defined() ? t.clone() : t; };
  for (const auto& [name, layer] : stateful_layers(module_))
    kept_.push_back({layer, {copy(layer->kept().h), copy(layer->kept().c), layer->kept().begins}});
}

void StateRollback::settle(const Tensor& found_inf) {
  if (!buffers_) return;
  const NoGrad off;
  const MemoryScope tag(MemoryTag::workspace);
  Tensor skipped;
  for (Buffer& b : *buffers_) {
    b.moves = b.tensor.version() != b.version;
    if (b.moves && b.before.defined() && found_inf.defined()) {
      if (!skipped.defined()) skipped = found_inf.ne(0);
      select_into(b.tensor, skipped, b.before);
    }
    b.before = Tensor();
  }
  for (const Kept& k : kept_) {
    const RecurrentLayer::Kept& now = k.layer->kept();
    if (!now.h.defined()) continue;
    const Tensor bad = zeros({}, {.device = now.h.device()});
    const TensorView views[] = {now.h.view(), now.c.defined() ? now.c.view() : now.h.view()};
    backend_for(now.h.device()).check_finite(views, bad.data_ptr<float>());
    const Tensor flag = bad.ne(0);
    select_back(now.h, k.before.h, flag);
    select_back(now.c, k.before.c, flag);
  }
  kept_.clear();
}

void StateRollback::exchange() {
  if (!buffers_) return;
  const NoGrad off;
  for (Buffer& b : *buffers_) {
    if (!b.before.defined() || b.tensor.version() == b.version) continue;
    const Tensor now = b.tensor.detach().clone();
    b.tensor.copy_(b.before);
    b.before = now;
  }
  for (Kept& k : kept_) std::swap(k.layer->kept(), k.before);
}

}  // namespace halfstep
