// SPDX-License-Identifier: Apache-2.0
#include "framework/autograd/scaled_backward.h"

#include <atomic>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "framework/base/fork_mutex.h"

namespace halfstep {

// One value of a loss scale. Where the scale has changed since, `number` or `copy` has the value, or it is not known.
struct ScaleValue {
  Tensor scale;  // undefined once its LossScale has ended
  Tensor copy = {};
  std::optional<double> number = {};  // the value, once it was read
  bool is_known = true;
  double read() {
    if (!number) number = (copy.defined() ? copy : scale).item<double>();
    copy = Tensor();
    return *number;
  }
  // Keeps the value without the scale, whose LossScale ends, if that needs no wait for a device.
  void end() {
    if (is_known && scale.device().is_cpu()) read();
    is_known = number.has_value();
    scale = copy = Tensor();
  }
};

namespace {

// The leaves of the process whose gradients are multiplied by a known scale. An entry counts while the leaf's gradient is marked as
// scaled. The mutex guards all values, too.
struct ScaledLeaves {
  struct Entry {
    std::weak_ptr<TensorImpl> leaf;  // expired: another tensor may have its address
    std::shared_ptr<ScaleValue> value;
  };
  ForkMutex mutex;
  std::unordered_map<const TensorImpl*, Entry> entries;
  size_t limit = 256;  // number of entries at which those of leaves that are gone are removed
  std::atomic<bool> any{false};

  const std::shared_ptr<ScaleValue>* find(const Tensor& leaf) const {
    const auto at = entries.find(leaf.impl());
    return at != entries.end() && !at->second.leaf.expired() ? &at->second.value : nullptr;
  }
  void set(const Tensor& leaf, const std::shared_ptr<ScaleValue>& value) {
    any = true;
    entries[leaf.impl()] = {leaf.impl_ptr(), value};
    if (entries.size() <= limit) return;
    std::erase_if(entries, [](const auto& entry) { return entry.second.leaf.expired(); });
    limit = 2 * entries.size() + 256;
  }
};
ScaledLeaves& scaled_leaves() {
  static ScaledLeaves& leaves = *new ScaledLeaves;
  return leaves;
}

struct Pass {
  bool is_scaled = false;
  std::shared_ptr<LossScale> scale = nullptr;  // null: none, or one that is not known
};
thread_local constinit Pass running_pass;

}  // namespace

LossScale::LossScale(Tensor scale) : scale_(std::move(scale)), now_(std::make_shared<ScaleValue>(ScaleValue{scale_})) {}

LossScale::~LossScale() {
  const std::lock_guard lock(scaled_leaves().mutex);
  for (auto& [leaf, entry] : scaled_leaves().entries)
    if (entry.value->scale.same(scale_)) entry.value->end();
}

bool LossScale::is_same(const Tensor& leaf) const {
  const auto* const value = scaled_leaves().find(leaf);
  if (!value || *value == now_) return true;
  ScaleValue& own = **value;
  if (!own.is_known) return own.scale.same(scale_);
  const auto is_there = [](const ScaleValue& v) { return v.number || !v.scale.device().is_meta(); };
  return is_there(own) && is_there(*now_) && own.read() == now_->read();
}

bool LossScale::fits(const Tensor& leaf) const {
  const std::lock_guard lock(scaled_leaves().mutex);
  return is_same(leaf);
}

bool LossScale::join(const Tensor& leaf, bool joins) {
  const std::lock_guard lock(scaled_leaves().mutex);
  const bool same = !joins || is_same(leaf);
  scaled_leaves().set(leaf, now_);
  return same;
}

void LossScale::change(bool known) {
  const std::lock_guard lock(scaled_leaves().mutex);
  if (now_.use_count() > 1) {
    now_->is_known = known || now_->number;
    if (known && !now_->number) now_->copy = scale_.clone();
    now_ = std::make_shared<ScaleValue>(ScaleValue{scale_});
  }
  now_->number.reset();
}

bool is_zero(const Tensor& gradient) {
  return !gradient.device().is_meta() && !gradient.detach().any().item<bool>();
}

bool unmark_zeros(const Tensor& leaf) {
  const Tensor& gradient = leaf.raw_grad();
  if (!gradient.defined() || !is_zero(gradient)) return false;
  AutogradMeta& meta = leaf.impl()->meta();
  meta.scaled = meta.mixed = false;
  return true;
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
  if (!running_pass.is_scaled) return true;
  if (running_pass.scale) return running_pass.scale->join(leaf, joins);
  ScaledLeaves& leaves = scaled_leaves();
  if (!joins && leaves.any) {  // an entry that the leaf may have is of a gradient before
    const std::lock_guard lock(leaves.mutex);
    leaves.entries.erase(leaf.impl());
  }
  return true;
}

}  // namespace halfstep
