// SPDX-License-Identifier: Apache-2.0
// A log of the op calls of a piece of a program: the dtype that each call computes in and why, the casts that autocast made for it,
// the tensors that it saves for backward, and on Device::meta, whose kernels do nothing else, operations and bytes.
//
//   OpLogScope log;
//   step(x, y);                                   // a TrainStep on Device::meta: nothing is computed
//   for (const LoggedCall& call : log.calls()) ...
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/backend/observe.h"
#include "framework/base/guard.h"

namespace halfstep {

struct LoggedTensor {
  Shape shape;
  DType dtype = DType::f32;  // as the op gets it
  DType given = DType::f32;  // before autocast
};

struct LoggedCast {
  DType from = DType::f32, to = DType::f32;
  int64_t elements = 0;
  bool shadow = false;  // nothing was converted: the 16-bit copy that is kept beside a weight was up to date
};

struct LoggedCall {
  std::string op;     // "linear"
  std::string layer;  // "encoder.0"; empty outside of any
  StepPass pass = StepPass::forward;
  CastPolicy policy = CastPolicy::keep;
  DType compute = DType::f32;  // of the products; without any, of the first floating input
  std::string reason;          // why it computes in this dtype
  Attributes attributes;       // its arguments other than tensors
  std::vector<LoggedTensor> inputs, outputs;
  std::vector<LoggedTensor> saved;  // for backward
  std::vector<LoggedCast> casts;
  std::vector<MatrixProduct> products;       // matrix products and convolutions. All other work is counted in bytes alone
  double bytes_read = 0, bytes_written = 0;  // by its kernels and casts, as if there were no cache
  int kernels = 0;                           // calls of the backend, casts included
  size_t live = 0, peak = 0;                 // bytes of the device: at the end of the call, and the most so far

  double flops() const;  // two for each multiplication with its addition
  double flops(DType dtype) const;
};

// Logs the calls that are reported to it.
class OpLog : public OpObserver {
 public:
  // `device`: the one whose memory is counted.
  explicit OpLog(Device device = Device::meta) : device_(device) {}
  const std::vector<LoggedCall>& calls() const { return calls_; }
  // Stops or continues the log. Call it between ops.
  void mute(bool on) { muted_ = on; }

  void begin(const ObservedCall& call) override;
  void end(const ObservedCall& call, const CallResult& result) override;
  void autocast(const AutocastChoice& choice, std::span<const Tensor> inputs) override;
  void cast(const Tensor& from, const Tensor& to, bool kept) override;
  void kernel(const ObservedKernel& kernel) override;

 private:
  LoggedCall& current() { return depth_ > 0 ? calls_.back() : next_; }

  Device device_;
  bool muted_ = false;
  std::vector<LoggedCall> calls_;
  LoggedCall next_;                   // the next call: so far, autocast's reason and casts
  std::optional<CastPolicy> policy_;  // of the next call, from autocast
  std::string set_by_;                // end of the reason: which setting chose the dtype, if not the op's own policy
  std::vector<DType> given_;          // dtypes of the next call's inputs before autocast
  int casting_ = 0, depth_ = 0;       // casts and calls that are open, one inside the other
};

// Logs the calls of this thread while it lives. Of nested scopes only the innermost sees them.
class OpLogScope final : public OpLog, LocalGuard {
 public:
  [[nodiscard]] explicit OpLogScope(Device device = Device::meta);
  ~OpLogScope() override;

 private:
  OpLogScope* outer_;
  Observing observing_;
};

}  // namespace halfstep
