// SPDX-License-Identifier: Apache-2.0
// The ledger: a list of the op calls of a piece of a program. The dtype that each call computes in and why, the casts that
// autocast made for it, the tensors that it saves for backward, and on Device::meta, whose kernels do nothing else, operations and
// bytes.
//
//   LedgerScope ledger;
//   step(x, y);                                   // a TrainStep on Device::meta: nothing is computed
//   for (const LedgerCall& call : ledger.calls()) ...
//
// A scope sees the thread that opened it. Where none is open, the ledger costs an op one look at a thread's variable.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "amp/policy/policy.h"
#include "framework/backend/profile.h"
#include "framework/base/attributes.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

enum class LedgerPass : uint8_t { forward, backward, update };  // update: the scaler and the optimizer
std::string_view name(LedgerPass pass);

struct LedgerTensor {
  Shape shape;
  DType dtype = DType::f32;  // that the op sees
  DType given = DType::f32;  // that it had before autocast
};

struct LedgerCast {
  DType from = DType::f32, to = DType::f32;
  int64_t elements = 0;
  bool shadow = false;  // nothing was converted: the 16-bit copy that is kept beside a weight still held
};

// [batch, m, k] by [batch, k, n]. A convolution is one with the groups as batch.
struct LedgerProduct {
  DType dtype = DType::f32;  // of the operands
  int64_t batch = 1, m = 0, n = 0, k = 0;
  double flops() const { return 2 * double(batch) * double(m) * double(n) * double(k); }
};

struct LedgerCall {
  std::string op;     // "linear"
  std::string layer;  // "encoder.0"; empty outside of any
  LedgerPass pass = LedgerPass::forward;
  CastPolicy policy = CastPolicy::keep;
  DType compute = DType::f32;  // of the products; without any, of the first floating input
  std::string reason;          // why it computes in this dtype
  Attributes attributes;       // what it was given besides its tensors
  std::vector<LedgerTensor> inputs, outputs;
  std::vector<LedgerTensor> saved;  // for backward
  std::vector<LedgerCast> casts;
  std::vector<LedgerProduct> products;       // matrix products and convolutions. All other work is counted in bytes alone
  double bytes_read = 0, bytes_written = 0;  // by its kernels and casts, as if there were no cache
  int kernels = 0;                           // calls of the backend, casts included
  size_t live = 0, peak = 0;                 // bytes of the device: at the end of the call, and the most so far

  double flops() const;  // two for each multiplication with its addition
  double flops(DType dtype) const;
};

// Keeps the calls of this thread while it lives. Of nested scopes only the innermost sees them.
class LedgerScope {
 public:
  [[nodiscard]] explicit LedgerScope(Device device = Device::meta);  // whose memory is counted
  ~LedgerScope();
  LedgerScope(const LedgerScope&) = delete;
  const std::vector<LedgerCall>& calls() const { return calls_; }

 private:
  friend struct Ledger;
  friend class LedgerEntry;
  Device device_;
  LedgerScope* outer_;
  std::vector<LedgerCall> calls_;
  LedgerCall next_;           // casts by autocast for the next call
  std::optional<CastPolicy> policy_;  // of it, from autocast
  std::string set_by_;                // what decided that besides the op's own policy: ends the reason
  std::vector<DType> given_;          // to it
  bool casting_ = false;      // the next kernel is a cast that autocast makes
  int depth_ = 0;             // calls that are open, one inside the other
};

// Which part of a step the calls of this thread belong to while it lives.
class LedgerPassScope {
 public:
  [[nodiscard]] explicit LedgerPassScope(LedgerPass pass);
  ~LedgerPassScope();
  LedgerPassScope(const LedgerPassScope&) = delete;

 private:
  LedgerPass saved_;
  ProfileEntry span_;
};

// What autocast does to the next call.
struct LedgerPolicy {
  CastPolicy policy = CastPolicy::keep;
  bool casts = false;                    // as the policy says; else the kernel does that by itself
  DType low = DType::f32;                // of the region
  bool of_region = false;                // the policy is the region's, not the op's own
  const std::string* set_for = nullptr;  // path of the module whose precision the region has; null: none
};

// Called by the framework to report to the open scope. Without an open scope all of it does nothing.
struct Ledger {
  static bool is_open();
  // What the innermost scope is in: an op's call, or "autocast" for a cast before one, or empty; and the part of a step.
  static std::string_view current_op();
  static LedgerPass current_pass();
  // From autocast, before it casts the inputs of the next call.
  static void policy(const LedgerPolicy& what, std::span<const Tensor> inputs);
  // The next call is in a module that is set to float32 in a region.
  static void paused(const std::string& module, std::span<const Tensor> inputs);
  static void cast(const Tensor& from, DType to, bool shadow);  // before the kernel that does it
  static void saved(const Tensor& t);
  static void attributes(Attributes attributes);
  static void outputs(std::span<const Tensor> outputs);
  // From a backend that counts.
  static void kernel(std::string_view name, double bytes_read, double bytes_written);
  static void product(const LedgerProduct& product);
};

// An op call, from here to the end of this object: of the ledger, of which calls within are part of it, and a span of a profile.
class LedgerEntry {
 public:
  [[nodiscard]] LedgerEntry(std::string_view op, CastPolicy policy, std::span<const Tensor> inputs, const std::string* layer);
  ~LedgerEntry();
  LedgerEntry(const LedgerEntry&) = delete;

 private:
  LedgerScope* scope_ = nullptr;
  ProfileEntry span_;
};

}  // namespace halfstep
