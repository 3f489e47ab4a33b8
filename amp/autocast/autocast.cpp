// SPDX-License-Identifier: Apache-2.0
#include "amp/autocast/autocast.h"

#include <algorithm>
#include <array>
#include <functional>
#include <mutex>
#include <sstream>
#include <utility>

#include "framework/autograd/grad_mode.h"
#include "framework/autograd/node.h"
#include "framework/backend/backend.h"
#include "framework/backend/ledger.h"
#include "framework/backend/trace.h"
#include "framework/base/log.h"

namespace halfstep {
namespace {

struct State {
  bool enabled[kDeviceTypeCount] = {};
  DType dtype[kDeviceTypeCount] = {DType::bf16, DType::f16, DType::bf16};  // cpu, cuda, meta
  bool cache_enabled = true;
  int nesting = 0;
  uint64_t casts = 0;
};
thread_local State state;

size_t slot(Device::Type type) { return size_t(type); }

Tensor convert(const Tensor& x, DType dtype, MemoryTag tag) {
  const MemoryScope memory(tag);
  const MemoryFormat format = x.format();
  Tensor out = Tensor::empty(x.shape(), {.dtype = dtype, .device = x.device(), .format = format});
  Ledger::cast(x, dtype, false);
  backend_for(x.device()).copy(in_memory_order(x.view(), format), in_memory_order(out.view(), format));
  ++state.casts;
  return out;
}

// May this tensor's low-precision copy be kept beside it?
bool keeps_shadow(const Tensor& x, DType low) {
  const TensorImpl& impl = *x.impl();
  return state.cache_enabled && low == state.dtype[slot(x.device().type)] && impl.dtype == DType::f32 && impl.autograd &&
         impl.autograd->requires_grad && !impl.autograd->node && !impl.is_view;
}

// Threads may run one model at once. A few locks serve all parameters, so that those of different models rarely wait.
std::mutex& lock_of(const TensorImpl* parameter) {
  static std::array<std::mutex, 64> locks;
  return locks[std::hash<const void*>()(parameter) / alignof(std::max_align_t) % locks.size()];
}

// The lock is not held while the copy is made: the device may be busy with the recording of another thread, which may want this
// lock. Of threads that make one at once, each uses its own, and the first one stays.
Tensor low_data(const Tensor& x, DType low) {
  if (!keeps_shadow(x, low)) return convert(x, low, MemoryScope::current());
  std::mutex& guard = lock_of(x.impl());
  Shadow& shadow = x.impl()->meta().shadow;
  const uint64_t version = x.version();
  const auto is_current = [&] { return shadow.low.defined() && shadow.low.dtype() == low && shadow.version == version; };
  Tensor made;
  {
    const std::lock_guard lock(guard);
    if (is_current()) {
      Ledger::cast(x, low, true);
      return shadow.low;
    }
    const bool reuse = shadow.low.defined() && shadow.low.dtype() == low && shadow.low.shape() == x.shape() &&
                       shadow.low.storage().use_count() == 1;  // no graph still looks at the old values
    if (reuse) made = std::exchange(shadow.low, Tensor());
  }
  if (made.defined()) {
    Ledger::cast(x, low, false);
    const MemoryFormat format = x.format();
    backend_for(x.device()).copy(in_memory_order(x.view(), format), in_memory_order(made.view(), format));
    made.bump_version();
    ++state.casts;
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

// A differentiable cast: its gradient reaches x in x's own dtype.
Tensor cast(const Tensor& x, DType target) {
  if (x.dtype() == target) return x;
  const Tensor out = is_half(target) ? low_data(x, target) : convert(x, target, MemoryScope::current());
  if (TraceScope* const trace = TraceScope::at_top()) [[unlikely]]
    trace->add({"to", "", {{"dtype", name(target)}}, {{x, x.version()}}, {{out, out.version()}}});
  return record_autocast(x, out);
}

}  // namespace

Autocast::Autocast(Device device, const AutocastOptions& options)
    : type_(device.type), enabled_(state.enabled[slot(type_)]), cache_(state.cache_enabled), dtype_(state.dtype[slot(type_)]) {
  const DType chosen = options.dtype.value_or(dtype_);
  bool enabled = options.enabled;
  if (enabled && !is_half(chosen)) {
    std::ostringstream text;
    text << "[autocast] " << name(device.type) << " regions run in float16 or bfloat16, not " << chosen
         << ": this region is disabled";
    logging::warn(text.str());
    enabled = false;
  }
  state.enabled[slot(type_)] = enabled;
  if (is_half(chosen)) state.dtype[slot(type_)] = chosen;
  state.cache_enabled = options.cache_enabled.value_or(cache_);
  ++state.nesting;
}

Autocast::~Autocast() {
  --state.nesting;
  state.enabled[slot(type_)] = enabled_;
  state.dtype[slot(type_)] = dtype_;
  state.cache_enabled = cache_;
}

namespace autocast {

bool is_enabled(Device::Type type) { return state.enabled[slot(type)]; }
void set_enabled(Device::Type type, bool enabled) { state.enabled[slot(type)] = enabled; }
DType dtype(Device::Type type) { return state.dtype[slot(type)]; }
void set_dtype(Device::Type type, DType dtype) {
  check<DTypeError>(is_half(dtype), "autocast", "the dtype must be float16 or bfloat16, got ", dtype);
  state.dtype[slot(type)] = dtype;
}
bool is_cache_enabled() { return state.cache_enabled; }
void set_cache_enabled(bool enabled) { state.cache_enabled = enabled; }
int nesting() { return state.nesting; }
uint64_t cast_count() { return state.casts; }

Tensor shadow_of(const Tensor& parameter) {
  const auto& meta = parameter.impl()->autograd;
  if (!meta || !meta->shadow.low.defined() || meta->shadow.version != parameter.version()) return {};
  return meta->shadow.low;
}

void shadow_is_current(const Tensor& parameter) {
  Shadow& shadow = parameter.impl()->meta().shadow;
  if (!shadow.low.defined()) return;
  shadow.low.bump_version();
  shadow.version = parameter.version();
}

void drop_shadow(const Tensor& parameter) {
  if (parameter.impl()->autograd) parameter.impl()->autograd->shadow = {};
}

bool apply(std::string_view op, CastPolicy policy, std::span<Tensor> inputs, std::string_view advice) {
  // The device whose region applies: that of the first tensor input. A C++ number is on none.
  const Tensor* first = nullptr;
  for (const Tensor& t : inputs)
    if (t.defined() && (!first || first->impl()->wrapped_number)) first = &t;
  if (!first || !state.enabled[slot(first->device().type)]) return false;
  check<AmpError>(policy != CastPolicy::banned, op, "is unsafe to autocast: its gradient can leave the range of float16",
                  Help{advice});
  Ledger::policy(policy, state.dtype[slot(first->device().type)], inputs);
  if (policy == CastPolicy::keep || policy == CastPolicy::f32_output) return true;
  const DType low = state.dtype[slot(first->device().type)];
  DType all[kDTypeCount];  // each dtype once: a list may be long
  size_t count = 0;
  for (const Tensor& t : inputs)
    if (t.defined() && std::find(all, all + count, t.dtype()) == all + count) all[count++] = t.dtype();
  for (Tensor& t : inputs)
    if (t.defined()) t = cast(t, cast_target(policy, low, t.dtype(), {all, count}));
  return true;
}

Off::Off() {
  for (int i = 0; i < kDeviceTypeCount; ++i) {
    saved_[i] = state.enabled[i];
    state.enabled[i] = false;
  }
}
Off::~Off() {
  for (int i = 0; i < kDeviceTypeCount; ++i) state.enabled[i] = saved_[i];
}

}  // namespace autocast
}  // namespace halfstep
