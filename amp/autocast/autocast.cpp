// SPDX-License-Identifier: Apache-2.0
#include "amp/autocast/autocast.h"

#include <algorithm>
#include <array>
#include <functional>
#include <mutex>
#include <utility>

#include "framework/autograd/grad_mode.h"
#include "framework/autograd/node.h"
#include "framework/backend/backend.h"
#include "framework/backend/graph_trace.h"
#include "framework/backend/observe.h"
#include "framework/backend/op_log.h"
#include "framework/backend/profile.h"
#include "framework/base/fork_mutex.h"
#include "framework/base/layer_path.h"
#include "framework/base/log.h"
#include "framework/base/text_stream.h"

namespace halfstep {
namespace {

using autocast::Mode, autocast::Region, autocast::Regions, autocast::state;

Region& region_of(Device::Type type) { return state.by_device[size_t(type)]; }

void update_any_policies() {
  state.any_policies =
      std::any_of(std::begin(state.by_device), std::end(state.by_device), [](const Region& r) { return !r.policies.empty(); });
}

// Returns the region that applies to an op: the region of the device of its first tensor input. C++ numbers are on no device.
const Region* region_for(std::span<const Tensor> inputs) {
  const Tensor* first = nullptr;
  for (const Tensor& t : inputs)
    if (t.defined() && (!first || first->impl()->wrapped_number)) first = &t;
  return first ? &region_of(first->device().type) : nullptr;
}

void copy_converted(const Tensor& x, const Tensor& out) {
  const CallScope span(SpanKind::cast, "autocast", {&x, 1}, LayerScope::current());
  const MemoryFormat format = x.format();
  backend_for(x.device()).copy(in_memory_order(x.view(), format), in_memory_order(out.view(), format));
  ++state.casts;
}

Tensor convert(const Tensor& x, DType dtype, MemoryTag tag) {
  const MemoryScope memory(tag);
  Tensor out = Tensor::empty(x.shape(), {.dtype = dtype, .device = x.device(), .format = x.format()});
  copy_converted(x, out);
  return out;
}

// Returns whether this tensor's low-precision copy may be kept beside it.
bool keeps_shadow(const Tensor& x, DType low) {
  const TensorImpl& impl = *x.impl();
  return state.cache_enabled && low == region_of(x.device().type).dtype && impl.dtype == DType::f32 && impl.autograd &&
         impl.autograd->requires_grad && !impl.autograd->node && !impl.is_view && !impl.storage->is_exposed();
}

// Returns the lock of a parameter. Several threads may run one model. Few locks serve all parameters, so threads rarely wait.
ForkMutex& lock_of(const TensorImpl* parameter) {
  static constinit std::array<ForkMutex, 64> locks{};
  return locks[std::hash<const void*>()(parameter) / alignof(std::max_align_t) % locks.size()];
}

// Returns a copy of x in `low`: the shadow if it is current, else a new copy, which becomes the shadow if it may be kept. Does not
// hold the lock while it makes the copy: the device may be busy with the recording of another thread, which may want the lock. If
// several threads make a copy at once, each uses its own, and the first one is kept. kept: set to true if the shadow was current.
Tensor low_data(const Tensor& x, DType low, bool& kept) {
  if (!keeps_shadow(x, low)) return convert(x, low, MemoryScope::current());
  ForkMutex& guard = lock_of(x.impl());
  Shadow& shadow = x.impl()->meta().shadow;
  const uint64_t version = x.version();
  const auto is_current = [&] { return shadow.low.defined() && shadow.low.dtype() == low && shadow.version == version; };
  Tensor made;
  {
    const std::lock_guard lock(guard);
    if (is_current()) return kept = true, shadow.low;
    const bool reuse = shadow.low.defined() && shadow.low.dtype() == low && shadow.low.shape() == x.shape() &&
                       shadow.low.storage().use_count() == 1;  // no graph uses the old values any more
    if (reuse) made = std::exchange(shadow.low, Tensor());
  }
  if (made.defined()) {
    copy_converted(x, made);
    made.bump_version();
  } else {
    made = convert(x, low, MemoryTag::shadows);
  }
  const std::lock_guard lock(guard);
  if (!is_current()) {
    shadow.low = made;
    shadow.version = version;
  }
  return made;
}

// Casts x so that gradients flow back to x in x's own dtype.
Tensor cast(const Tensor& x, DType target) {
  if (x.dtype() == target) return x;
  bool kept = false;
  const Tensor out = is_half(target) ? low_data(x, target, kept) : convert(x, target, MemoryScope::current());
  if (Observing::any()) [[unlikely]]
    Observing::report([&](OpObserver& o) { o.cast(x, out, kept); });
  return record_autocast(x, out);
}

}  // namespace

Autocast::Autocast(Device device, const AutocastOptions& options) : Scope(part_of(device.type) | kCache) {
  Region& region = region_of(device.type);
  const DType chosen = options.dtype.value_or(region.dtype);
  bool enabled = options.enabled;
  if (enabled && !is_half(chosen)) {
    TextWriter text;
    text << "[autocast] " << name(device.type) << " regions run in float16 or bfloat16, not " << chosen
         << ": this region is disabled";
    logging::warn(text.str());
    enabled = false;
  }
  region = {enabled ? Mode::on : Mode::off, is_half(chosen) ? chosen : region.dtype, options.policies.value_or(region.policies)};
  state.cache_enabled = options.cache_enabled.value_or(state.cache_enabled);
  update_any_policies();
}

namespace autocast {

Regions& Scope::heir(uint8_t part) const {
  const Next later = next([&](const Scope& scope) { return (scope.parts_ & part) != 0; });
  return later ? later->saved_ : state;
}

Scope::Scope(uint8_t parts) : parts_(parts) {
  if (parts != kModes) {
    saved_ = state;
    return;
  }
  for (int i = 0; i < kDeviceTypeCount; ++i) saved_.by_device[i].mode = state.by_device[i].mode;  // Off, which many ops have
}

Scope::~Scope() {
  if (parts_ == kModes && is_innermost()) [[likely]] {
    for (int i = 0; i < kDeviceTypeCount; ++i) state.by_device[i].mode = saved_.by_device[i].mode;
    return;
  }
  if (!ends_here("autocast")) return;
  const Next later = next();  // keeps guards that take a part from ending on other threads
  for (int i = 0; i < kDeviceTypeCount; ++i) {
    const Region& own = saved_.by_device[i];
    const uint8_t mode = uint8_t(1 << i), others = uint8_t(1 << (i + 3));
    if (parts_ & mode) heir(mode).by_device[i].mode = own.mode;
    if (!(parts_ & others)) continue;
    Region& to = heir(others).by_device[i];
    to = {to.mode, own.dtype, own.policies, own.set_for};
  }
  if (parts_ & kCache) heir(kCache).cache_enabled = saved_.cache_enabled;
  if (parts_ & kOthers) update_any_policies();
}

bool is_enabled(Device::Type type) { return region_of(type).mode == Mode::on; }
DType dtype(Device::Type type) { return region_of(type).dtype; }
bool is_cache_enabled() { return state.cache_enabled; }
uint64_t cast_count() { return state.casts; }

const Regions& regions() { return state; }
AsIn::AsIn(const Regions& then) : Scope(kModes | kOthers | kCache) { static_cast<Regions&>(state) = then; }

ModuleRegion::ModuleRegion(DType dtype, const std::string* path) : Scope(kModes | kOthers) {
  for (Region& region : state.by_device) {
    if (region.mode == Mode::off) continue;
    region.mode = is_half(dtype) ? Mode::on : Mode::paused;
    if (is_half(dtype)) region.dtype = dtype;
    region.set_for = path;
  }
}

void ModuleRegion::widen(std::span<Tensor* const> inputs) const {
  std::vector<std::pair<Tensor, Tensor>> done;  // (input, its cast) pairs
  for (Tensor* const t : inputs) {
    if (!t->defined() || !is_half(t->dtype()) || region_of(t->device().type).mode != Mode::paused) continue;
    auto same = std::find_if(done.begin(), done.end(), [&](const auto& pair) { return pair.first.same(*t); });
    if (same == done.end()) same = done.insert(same, {*t, cast(*t, DType::f32)});
    *t = same->second;
  }
}

Tensor shadow_of(const Tensor& parameter) {
  const auto& meta = parameter.impl()->autograd;
  if (!meta || !meta->shadow.low.defined() || meta->shadow.version != parameter.version() || parameter.storage()->is_exposed())
    return {};
  return meta->shadow.low;
}

void mark_shadow_current(const Tensor& parameter) {
  Shadow& shadow = parameter.impl()->meta().shadow;
  if (!shadow.low.defined()) return;
  shadow.low.bump_version();
  shadow.version = parameter.version();
}

void drop_shadow(const Tensor& parameter) {
  if (parameter.impl()->autograd) parameter.impl()->autograd->shadow = {};
}

OpPolicies policies_for(std::span<const Tensor> inputs) {
  const Region* const region = region_for(inputs);
  return region && region->mode == Mode::on ? region->policies : OpPolicies();
}

std::optional<CastPolicy> apply(std::string_view op, CastPolicy policy, bool reads_half, std::span<Tensor> inputs,
                                std::string_view advice) {
  const Region* const region = region_for(inputs);
  if (!region || region->mode == Mode::off) return {};
  if (region->mode == Mode::paused) {
    if (Observing::any()) [[unlikely]]
      Observing::report([&](OpObserver& o) { o.autocast({.set_for = region->set_for, .paused = true}, inputs); });
    return {};
  }
  const std::optional<CastPolicy> set = any_policies() ? region->policies.find(op) : std::nullopt;
  if (set) {
    policy = *set;
    if (policy == CastPolicy::banned) advice = "the region's policies ban it";
  }
  check<AmpError>(policy != CastPolicy::banned, op, "is unsafe to autocast: its gradient can leave the range of float16",
                  Help{advice});
  const bool casts = policy != CastPolicy::keep && policy != CastPolicy::f32_output && !(policy == CastPolicy::f32 && reads_half);
  const DType low = region->dtype;
  if (Observing::any()) [[unlikely]]
    Observing::report([&](OpObserver& o) { o.autocast({policy, casts, low, set.has_value(), region->set_for}, inputs); });
  if (!casts) return policy;
  DType dtypes[kDTypeCount];  // each once: the list of inputs may be long
  size_t count = 0;
  for (const Tensor& t : inputs)
    if (t.defined() && std::find(dtypes, dtypes + count, t.dtype()) == dtypes + count) dtypes[count++] = t.dtype();
  for (Tensor& t : inputs)
    if (t.defined()) t = cast(t, cast_target(policy, low, t.dtype(), {dtypes, count}));
  return policy;
}

Off::Off() : Scope(kModes) {
  for (Region& region : state.by_device) region.mode = Mode::off;
}

}  // namespace autocast
}  // namespace halfstep
