// SPDX-License-Identifier: Apache-2.0
// Autocast: a region in which ops choose their own precision. The rules are in amp/policy/policy.h; ops carry their policy.
//
//   { Autocast region(Device::cpu, DType::bf16); loss = loss_fn(net(x), target); }   // forward and loss only
//   scaler.scale(loss).backward();
//
// The state is thread-local and per device type; a new thread starts with autocast off. At its end a region restores the state
// that it found, also when an exception leaves it; one that ends before a region inside of it does so when that one ends. Float64,
// integer and bool tensors, tensors on other devices, in-place forms and ops called with an explicit dtype do not change.
//
// Weights are not cast at every use. The 16-bit copy ("shadow") of a float32 leaf that requires grad is stored beside it with the
// parameter's version, and the optimizer rewrites it in the pass that updates the parameter. It is never stale and holds no graph.
// With `cache_enabled = false` each use casts. So does each use of a weight that may change unnoticed: one whose pointer was taken
// (Tensor::data_ptr, as_eigen), or whose memory belongs to the caller (from_blob).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "amp/policy/policy.h"
#include "framework/base/guard.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

struct AutocastOptions {
  // Unset: the device's current autocast dtype (cuda: f16, cpu and meta: bf16, or the enclosing region's).
  std::optional<DType> dtype = {};
  bool enabled = true;
  std::optional<bool> cache_enabled = {};   // unset: unchanged
  std::optional<OpPolicies> policies = {};  // replace the ops' own policies; unset: the enclosing region's
};

// Returns the autocast dtype of a region or training step that computes in `dtype`: none (no autocast) unless it has 16 bits.
constexpr std::optional<DType> if_half(DType dtype) { return is_half(dtype) ? std::optional(dtype) : std::nullopt; }

namespace autocast {

enum class Mode : uint8_t {
  off,
  on,
  paused,  // off inside a module in float32 (ModuleRegion); a 16-bit module inside it turns autocast on again
};

// Autocast state of one device type.
struct Region {
  Mode mode = Mode::off;
  DType dtype = DType::bf16;
  OpPolicies policies = {};
  const std::string* set_for = nullptr;  // path of the module whose precision set this state; null: none
};
// Autocast state of this thread.
struct Regions {
  Region by_device[kDeviceTypeCount] = {{}, {.dtype = DType::f16}, {}};  // cpu, cuda, meta
  bool cache_enabled = true;
  bool any_policies = false;  // one of them has policies for some ops
};
struct State : Regions {
  uint64_t casts = 0;  // count of casts so far
};
inline thread_local constinit State state{};

// Base of guards of the autocast state. Each part of the state that it sets goes back to what it was before, in this thread or, if
// a guard that sets the same part began later and still lives, at the end of that one.
class Scope : public OrderedGuard<Scope> {
 protected:
  static constexpr uint8_t kModes = 7, kOthers = 7 << 3, kCache = 1 << 6;  // bits by device type: of the mode, of the rest
  static constexpr uint8_t part_of(Device::Type type) { return uint8_t((1 | 1 << 3) << int(type)); }
  [[nodiscard]] explicit Scope(uint8_t parts);
  ~Scope();
  Regions saved_;

 private:
  Regions& heir(uint8_t part) const;  // where that part goes at the end
  const uint8_t parts_;
};

}  // namespace autocast

class Autocast : autocast::Scope {
 public:
  // An enabled region with a dtype other than f16 and bf16 warns and is disabled.
  [[nodiscard]] explicit Autocast(Device device, const AutocastOptions& options = {});
  [[nodiscard]] Autocast(Device device, DType dtype, bool enabled = true) : Autocast(device, AutocastOptions{dtype, enabled}) {}
  // Turns autocast off if `low` is empty, as with enabled = false.
  [[nodiscard]] Autocast(Device device, std::optional<DType> low) : Autocast(device, AutocastOptions{low, low.has_value()}) {}
};

namespace autocast {

bool is_enabled(Device::Type type);
DType dtype(Device::Type type);
bool is_cache_enabled();

// Returns the whole autocast state, for code that must run later under the same rules.
const Regions& regions();
// Sets the whole autocast state of this thread while it lives.
class AsIn : Scope {
 public:
  [[nodiscard]] explicit AsIn(const Regions& then);
};

// Surrounds the call of a module that computes in `dtype` (Module::set_precision). float32 turns open regions off; float16 and
// bfloat16 change their dtype. Does nothing outside of a region. `path` names the module in reports and is never freed.
class ModuleRegion : Scope {
 public:
  [[nodiscard]] ModuleRegion(DType dtype, const std::string* path);
  // If the regions were turned off, casts 16-bit inputs to float32 like an op's inputs. Handles that were equal stay equal.
  void widen(std::span<Tensor* const> inputs) const;
};

// Returns whether a region of this thread has policies for some ops.
inline bool any_policies() { return state.any_policies; }

// Returns the shadow of `parameter` if it is current, else an undefined tensor. The optimizer's kernel writes to it.
Tensor shadow_of(const Tensor& parameter);
// Marks the shadow as current. Call it after the shadow was rewritten and the parameter's version grew.
void mark_shadow_current(const Tensor& parameter);
// Frees the shadow.
void drop_shadow(const Tensor& parameter);
// Returns how many casts autocast made in this thread; reuse of a shadow does not count. For tests and reports.
uint64_t cast_count();

// Casts the inputs of an op by its policy, or by the region's policy for this op; used by call<Op>. Returns the policy, or nothing
// if no region applied. reads_half: an f32 policy leaves the inputs, because the kernel widens them as it reads. Throws AmpError
// for banned ops; `advice` names the safe alternative.
std::optional<CastPolicy> apply(std::string_view op, CastPolicy policy, bool reads_half, std::span<Tensor> inputs,
                                std::string_view advice);
// Returns the policies of the region that applies to these inputs; empty without a region.
OpPolicies policies_for(std::span<const Tensor> inputs);

// Turns autocast off for all devices while it lives: inside an op, and in the engine.
class Off : Scope {
 public:
  [[nodiscard]] Off();
};

}  // namespace autocast
}  // namespace halfstep
