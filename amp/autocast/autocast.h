// SPDX-License-Identifier: Apache-2.0
// Autocast: a region in which ops choose their own precision. The rules are in amp/policy/policy.h; ops carry their policy.
//
//   { Autocast region(Device::cpu, DType::bf16); loss = loss_fn(net(x), target); }   // forward and loss only
//   scaler.scale(loss).backward();
//
// State is thread-local and per device type; a new thread starts with it off. A region restores the state before it, also when an
// exception leaves it. Float64, integer and bool tensors, tensors on other devices, in-place forms and ops called with an
// explicit dtype are not touched.
//
// Weights are not cast at every use: the 16-bit copy ("shadow") of a float32 leaf that requires grad is kept beside it, keyed by
// the parameter's version, and the optimizer rewrites it in the pass that updates the parameter. It is never stale, and holds
// no graph. `cache_enabled = false` casts at each use instead, and so does a weight to which somebody has a pointer
// (Tensor::data_ptr, as_eigen) or whose memory is the caller's (from_blob), as it may change unnoticed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "amp/policy/policy.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

struct AutocastOptions {
  // Unset: the device's current autocast dtype (cuda: f16, cpu and meta: bf16, or the enclosing region's).
  std::optional<DType> dtype = {};
  bool enabled = true;
  std::optional<bool> cache_enabled = {};  // unset: unchanged
  std::optional<OpPolicies> policies = {};  // of ops, in place of their own; unset: the enclosing region's
};

// The dtype of a region or a training step that computes in `dtype`: none, so no autocast, if that does not have 16 bits.
constexpr std::optional<DType> if_half(DType dtype) { return is_half(dtype) ? std::optional(dtype) : std::nullopt; }

namespace autocast {

enum class Mode : uint8_t {
  off,
  on,
  paused,  // off for the duration of a module in float32 (ModuleRegion): a module in 16 bits inside it turns it on again
};

// What applies to one type of device.
struct Region {
  Mode mode = Mode::off;
  DType dtype = DType::bf16;
  OpPolicies policies = {};
  const std::string* set_for = nullptr;  // path of the module whose precision made it what it is; null: none
};
// What applies in this thread.
struct Regions {
  Region of[kDeviceTypeCount] = {{}, {.dtype = DType::f16}, {}};  // cpu, cuda, meta
  bool cache_enabled = true;
  bool any_policies = false;  // has one of them policies of its own for some ops?
};
struct State : Regions {
  uint64_t casts = 0;  // so far
};
inline thread_local constinit State state{};

}  // namespace autocast

class Autocast {
 public:
  // An enabled region with a dtype other than f16 and bf16 warns and is disabled.
  [[nodiscard]] explicit Autocast(Device device, const AutocastOptions& options = {});
  [[nodiscard]] Autocast(Device device, DType dtype, bool enabled = true) : Autocast(device, AutocastOptions{dtype, enabled}) {}
  // Nothing: the region is off, as with enabled = false.
  [[nodiscard]] Autocast(Device device, std::optional<DType> low) : Autocast(device, AutocastOptions{low, low.has_value()}) {}
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  Device::Type type_;
  autocast::Region saved_;
  bool cache_;
};

namespace autocast {

bool is_enabled(Device::Type type);
DType dtype(Device::Type type);
bool is_cache_enabled();

// All of the above and the policies, for code that runs later as if it were here.
const Regions& regions();
class AsIn {
 public:
  [[nodiscard]] explicit AsIn(const Regions& then);
  ~AsIn();
  AsIn(const AsIn&) = delete;

 private:
  Regions saved_;
};

// Around the call of a module that computes in `dtype` (Module::set_precision): float32 turns open regions off, float16 and
// bfloat16 change their dtype. Without an open region it does nothing. `path` names the module for reports, and is kept forever.
class ModuleRegion {
 public:
  [[nodiscard]] ModuleRegion(DType dtype, const std::string* path);
  ~ModuleRegion();
  ModuleRegion(const ModuleRegion&) = delete;
  // Where it has turned regions off: casts inputs of 16 bits to float32, as an op's inputs are cast. Equal handles stay equal.
  void widen(std::span<Tensor* const> inputs) const;

 private:
  Regions saved_;
};

// Does a region of this thread have policies of its own for some ops?
inline bool any_policies() { return state.any_policies; }

// The shadow of `parameter` in `low`, if it is true now; else undefined. What the optimizer's kernel writes.
Tensor shadow_of(const Tensor& parameter);
// Declares that the shadow was rewritten together with the parameter (call after the parameter's version grew).
void shadow_is_current(const Tensor& parameter);
// Frees the shadow.
void drop_shadow(const Tensor& parameter);
// Number of casts that autocast has made in this thread (reusing a shadow does not count). For tests and reports.
uint64_t cast_count();

// Casts the inputs of an op by its policy, or by the one that the region has for it; used by call<Op>. Returns the policy, or
// nothing where no region applied. reads_half: under f32 the inputs stay, for a kernel that widens what it reads.
// Throws AmpError for banned ops. `advice` names the safe alternative.
std::optional<CastPolicy> apply(std::string_view op, CastPolicy policy, bool reads_half, std::span<Tensor> inputs,
                                std::string_view advice);
// The policies of the region that applies to these inputs of an op; none where there is no region.
OpPolicies policies_for(std::span<const Tensor> inputs);

// Off for all devices while it lives: inside an op, and in the engine.
class Off {
 public:
  [[nodiscard]] Off();
  ~Off();
  Off(const Off&) = delete;

 private:
  Mode saved_[kDeviceTypeCount];
};

}  // namespace autocast
}  // namespace halfstep
