// SPDX-License-Identifier: Apache-2.0
#include "amp/step/state_rollback.h"

#include <utility>
#include <vector>

#include "framework/autograd/grad_mode.h"
#include "framework/backend/backend.h"
#include "framework/ops/core/promotion.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

// Restores `before` in `now` if the flag is set; states begin as zero.
void restore_where(const Tensor& now, const Tensor& before, const Tensor& flag) {
  if (!now.defined()) return;
  const bool fits = before.defined() && before.shape() == now.shape();
  now.copy_(where(flag, fits ? before.to(now.dtype()) : zeros_like(now), now.detach()));
}

// Copies from[i] to to[i] if the flag is set or undefined. Runs one kernel for each device: on a GPU a launch for each buffer
// would cost more than the copies.
void copy_where(const Tensors& from, const Tensors& to, const Tensor& flag = {}) {
  std::vector<bool> done(to.size());
  for (size_t first = 0; first < to.size(); ++first) {
    if (done[first]) continue;
    std::vector<TensorView> reads, writes;
    for (size_t i = first; i < to.size(); ++i) {
      if (to[i].device() != to[first].device()) continue;
      done[i] = true;
      reads.push_back(from[i].view());
      writes.push_back(to[i].view());
    }
    backend_for(to[first].device()).copy_all(reads, writes, flag.defined() ? flag.data_ptr<float>() : nullptr);
  }
  for (const Tensor& t : to) t.bump_version();
}

}  // namespace

void StateRollback::save() {
  if (!buffers_) {
    buffers_.emplace();
    for (const NamedTensor& b : module_.named_buffers()) buffers_->push_back({b.tensor});
    has_stateful_layers_ = !stateful_layers(module_).empty();
  }
  const NoGrad off;
  const MemoryScope tag(MemoryTag::workspace);
  Tensors now, before;
  open_ = true;
  for (Buffer& b : *buffers_) {
    if (!b.moves && !b.changed()) continue;
    b.version = b.tensor.version(), b.memory = b.tensor.storage();
    const Tensor& t = b.tensor;
    if (!b.before.defined() || b.before.shape() != t.shape() || b.before.dtype() != t.dtype() || b.before.device() != t.device())
      b.before = Tensor::empty(t.shape(), {.dtype = t.dtype(), .device = t.device()});
    now.push_back(t.detach());
    before.push_back(b.before);
  }
  copy_where(now, before);
  layer_states_.clear();
  if (!has_stateful_layers_) return;
  const auto copy = [](const Tensor& t) { return t.defined() ? t.clone() : t; };
  for (const auto& [name, layer] : stateful_layers(module_))
    layer_states_.push_back({layer, {copy(layer->kept_state().h), copy(layer->kept_state().c), layer->kept_state().begins}});
}

void StateRollback::restore_after_step(const Tensor& found_inf) {
  if (!open_) return;
  const NoGrad off;
  const MemoryScope tag(MemoryTag::workspace);
  Tensors before, now;
  for (Buffer& b : *buffers_) {
    b.moves = b.changed();
    if (b.moves && found_inf.defined()) {
      before.push_back(b.before);
      now.push_back(b.tensor.detach());
    }
  }
  open_ = false;
  copy_where(before, now, found_inf);
  for (const LayerState& k : layer_states_) {
    const RecurrentLayer::KeptState& state = k.layer->kept_state();
    if (!state.h.defined()) continue;
    const Tensor bad = zeros({}, {.device = state.h.device()});
    const TensorView views[] = {state.h.view(), state.c.defined() ? state.c.view() : state.h.view()};
    backend_for(state.h.device()).check_finite(views, bad.data_ptr<float>());
    const Tensor flag = bad.ne(0);
    restore_where(state.h, k.before.h, flag);
    restore_where(state.c, k.before.c, flag);
  }
  layer_states_.clear();
}

void StateRollback::exchange() {
  if (!open_) return;
  const NoGrad off;
  for (Buffer& b : *buffers_) {
    if (!b.changed()) continue;
    const Tensor now = b.tensor.detach().clone();
    b.tensor.copy_(b.before);
    b.before = now;
  }
  for (LayerState& k : layer_states_) std::swap(k.layer->kept_state(), k.before);
}

}  // namespace halfstep
