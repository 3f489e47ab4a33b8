// SPDX-License-Identifier: Apache-2.0
#include "framework/autograd/scaled_backward.h"

#include <mutex>
#include <utility>
#include <vector>

#include "framework/base/fork_mutex.h"

namespace halfstep {
namespace {

// All loss scales of the process, usually one. The mutex guards their gradients, too.
struct LossScales {
  ForkMutex mutex;
  std::vector<LossScale*> all;
};
LossScales& loss_scales() {
  static LossScales& scales = *new LossScales;
  return scales;
}

struct Pass {
  bool is_scaled = false;
  std::shared_ptr<LossScale> scale = nullptr;  // null: none, or one that is not known
};
thread_local constinit Pass running_pass;

}  // namespace

LossScale::LossScale(Tensor scale) : scale_(std::move(scale)) {
  LossScales& scales = loss_scales();
  const std::lock_guard lock(scales.mutex);
  scales.all.push_back(this);
}

LossScale::~LossScale() {
  LossScales& scales = loss_scales();
  const std::lock_guard lock(scales.mutex);
  std::erase(scales.all, this);
}

const LossScale::Gradient* LossScale::find(const Tensor& leaf) const {
  const auto at = gradients_.find(leaf.impl());
  return at != gradients_.end() && !at->second.leaf.expired() ? &at->second : nullptr;  // expired: another tensor had its address
}

bool LossScale::is_same(const Tensor& leaf) const {
  if (const Gradient* const own = find(leaf)) {
    if (!own->scale.defined() || own->scale.same(scale_)) return true;
    return !scale_.device().is_meta() && own->scale.item<double>() == scale_.item<double>();
  }
  for (const LossScale* other : loss_scales().all)
    if (other->find(leaf)) return false;
  return true;
}

bool LossScale::fits(const Tensor& leaf) const {
  const std::lock_guard lock(loss_scales().mutex);
  return is_same(leaf);
}

bool LossScale::join(const Tensor& leaf, bool joins) {
  LossScales& scales = loss_scales();
  const std::lock_guard lock(scales.mutex);
  const bool same = !joins || is_same(leaf);
  if (scales.all.size() > 1) {
    for (LossScale* other : scales.all)
      if (other != this) other->gradients_.erase(leaf.impl());
  }
  gradients_[leaf.impl()] = {leaf.impl_ptr(), scale_};
  return same;
}

void LossScale::change(bool known) {
  std::vector<std::shared_ptr<TensorImpl>> leaves;  // kept until the mutex is free: their graphs may end a LossScale
  const std::lock_guard lock(loss_scales().mutex);
  Tensor before;
  for (auto at = gradients_.begin(); at != gradients_.end();) {
    leaves.push_back(at->second.leaf.lock());
    const TensorImpl* const leaf = leaves.back().get();
    const bool has_it = leaf && leaf->autograd && leaf->autograd->scaled && leaf->autograd->grad.defined();
    if (!has_it) {
      at = gradients_.erase(at);
      continue;
    }
    Tensor& scale = at->second.scale;
    if (!known) {
      scale = Tensor();
    } else if (scale.defined() && scale.same(scale_)) {
      if (!before.defined()) before = scale_.clone();
      scale = before;
    }
    ++at;
  }
}

ScaledBackward::ScaledBackward(std::shared_ptr<LossScale> scale)
    : was_scaled_(running_pass.is_scaled), previous_(running_pass.scale) {
  if (scale) mark(std::move(scale));
}

ScaledBackward::~ScaledBackward() { running_pass = {was_scaled_, std::move(previous_)}; }

void ScaledBackward::mark(std::shared_ptr<LossScale> scale) {
  running_pass.is_scaled = true;
  if (scale) running_pass.scale = std::move(scale);
}

bool ScaledBackward::is_scaled() { return running_pass.is_scaled; }

bool ScaledBackward::join(const Tensor& leaf, bool joins) {
  return !running_pass.is_scaled || !running_pass.scale || running_pass.scale->join(leaf, joins);
}

}  // namespace halfstep
