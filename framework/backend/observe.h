// SPDX-License-Identifier: Apache-2.0
// Observers of what a thread computes. The framework reports op calls, casts of autocast and kernels to those of the thread:
//
//   struct Counter : OpObserver {
//     int calls = 0;
//     void begin(const ObservedCall& call) override { calls += call.kind == SpanKind::op; }
//   };
//   Counter counter;
//   { const Observing on(counter); y = model(x); }
//
// OpLog (op_log.h), ProfileScope (profile.h), KernelLog (kernel_log.h) and GraphTrace (graph_trace.h) are observers. Without an
// observer, an op tests one pointer of its thread, and one of the process for the ranges of profilers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "amp/policy/policy.h"
#include "framework/base/attributes.h"
#include "framework/base/device.h"
#include "framework/base/guard.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

class Backend;
struct TensorView;

enum class StepPass : uint8_t { forward, backward, update };  // update: the scaler and the optimizer
std::string_view name(StepPass pass);

// step: a whole training step. part: a pass of it. op: the call of an op, or its backward. cast: a cast by autocast, before the op
// that needs it. wait: the thread waits for data or for other ranks. task: work of a step that is not an op, such as an
// optimizer's updates. simpler: an op that other ops compute because an observer requests that; they follow as calls.
enum class SpanKind : uint8_t { step, part, op, cast, wait, task, simpler };

struct ObservedCall {
  SpanKind kind = SpanKind::op;
  std::string_view name;                // "linear"
  std::span<const Tensor> inputs = {};  // after casts; of a backward: its gradients, until its end
  const std::string* layer = nullptr;   // "encoder.0"; null outside of any
  CastPolicy policy = CastPolicy::keep;
  bool is_backward = false;
  const void* attr = nullptr;  // for `describe`, while the call lasts
  Attributes (*describe)(const void* attr) = nullptr;
  Attributes attributes() const { return describe ? describe(attr) : Attributes(); }
};
struct CallResult {
  std::span<const Tensor> outputs = {}, saved = {};  // saved: for backward
  bool failed = false;                               // the call threw
};

// Autocast's decision for the next call.
struct AutocastChoice {
  CastPolicy policy = CastPolicy::keep;
  bool casts = false;                    // whether inputs are cast; else the op reads them in the dtypes that they have
  DType low = DType::f32;                // the region's 16-bit dtype
  bool of_region = false;                // the policy is the region's, not the op's own
  const std::string* set_for = nullptr;  // path of the module for which the precision was set; null: none
  bool paused = false;                   // that module computes in float32, so nothing is cast
};

// A product of [batch, m, k] and [batch, k, n]. A convolution is one with the groups as batch.
struct MatrixProduct {
  DType dtype = DType::f32;  // of the operands
  bool fused = false;        // one of several products in a kernel that does not write the [m, n] between them to memory
  int64_t batch = 1, m = 0, n = 0, k = 0;
  double flops() const { return 2 * double(batch) * double(m) * double(n) * double(k); }
};

struct ObservedKernel {
  std::string_view name;  // "gemm"; of elementwise kernels and reductions which one, "div", but the row on Device::meta: "binary"
  Device device;
  std::span<const TensorView> reads = {}, writes = {};  // on a device that computes
  bool by_library = false;                              // a library computes it as a whole
  bool from_host = false;                               // a copy from the host, which is no kernel
  // On Device::meta, as if there were no cache.
  double bytes_read = 0, bytes_written = 0;
  std::optional<MatrixProduct> product = {};
};

class OpObserver {
 public:
  virtual ~OpObserver() = default;

  // ---- events. Calls nest, and the end of each is reported, also when it throws. `end` must not throw.
  virtual void begin(const ObservedCall&) {}
  virtual void end(const ObservedCall&, const CallResult&) {}
  virtual void autocast(const AutocastChoice&, std::span<const Tensor> /*inputs*/) {}  // before the casts for the next call
  virtual void cast(const Tensor& /*from*/, const Tensor& /*to*/, bool /*kept*/) {}  // by autocast; kept: a 16-bit copy still held
  virtual void written(const Tensor& /*from*/, const Tensor& /*into*/) {}            // an op's result was copied into a tensor
  virtual void host_read(const Tensor&) {}                                           // before its values are read on the host
  virtual void before_kernel(const ObservedKernel&) {}                               // not on Device::meta
  virtual void kernel(const ObservedKernel&) {}                                      // after it

  // ---- requests of the observer
  struct Kernels {
    Device device;
    bool libraries = false;  // a call that a library computes as a whole is one kernel; else halfstep's own kernels compute it
  };
  // Returns the device whose kernels are reported. Those of Device::meta always are.
  virtual std::optional<Kernels> observes_kernels() const { return {}; }
  // Returns whether simpler ops should compute this call, if it has such a form.
  virtual bool asks_for_simpler(const ObservedCall&) const { return false; }
  // Returns whether each value needs a tensor of its own. Then ops in place copy their result, and no index is read on the host.
  virtual bool follows_values() const { return false; }
};

// Adds an observer to this thread while it lives. An observer that is added within a call does not get its end.
class Observing : LocalGuard {
 public:
  [[nodiscard]] explicit Observing(OpObserver& observer);
  ~Observing();

  static bool any() { return thread_.innermost != nullptr; }
  // Returns the innermost observer of this type, or null.
  template <class Observer>
  static Observer* find() {
    for (const Observing* o = thread_.innermost; o; o = o->outer_)
      if (auto* const found = dynamic_cast<Observer*>(&o->observer_)) return found;
    return nullptr;
  }
  static StepPass pass() { return thread_.pass; }
  // Adds an observer of begin() and end() to all threads, for good, before the first op.
  static void observe_all_threads(OpObserver& observer) { all_threads_ = &observer; }

  // ---- called by the framework
  template <class Event>
  static void report(const Event& event) {  // event(observer)
    for (const Observing* o = thread_.innermost; o; o = o->outer_) event(o->observer_);
  }
  static bool asks_for_simpler(const ObservedCall& call);
  static bool follow_values() { return any() && any_follows_values(); }
  // Returns the backend that reports its kernels, if an observer requests those of this device; else null.
  static Backend* backend_on(Device device);
  static bool observes_kernels(Device device) { return any() && backend_on(device) != nullptr; }

 private:
  friend class CallScope;
  friend class StepPassScope;
  // The observers of a thread, and its part of the step.
  struct Thread {
    Observing* innermost;
    StepPass pass;
  };
  static bool any_follows_values();

  OpObserver& observer_;
  Observing* outer_;
  uint64_t number_;  // place in the order in which observers were added
  std::optional<OpObserver::Kernels> kernels_;
  std::unique_ptr<Backend> backend_;
  static inline thread_local constinit Thread thread_{nullptr, StepPass::forward};
  static inline constinit OpObserver* all_threads_ = nullptr;
};

// Reports a call, from here to the end of this object.
class CallScope : LocalGuard {
 public:
  // call(): an ObservedCall, which is made only if there is an observer.
  template <class Call>
  requires std::is_invocable_v<Call>
  [[nodiscard]] explicit CallScope(const Call& call) {
    if (Observing::any() || Observing::all_threads_) [[unlikely]]
      begin(call());
  }
  [[nodiscard]] explicit CallScope(SpanKind kind, std::string_view name, std::span<const Tensor> inputs = {},
                                   const std::string* layer = nullptr)
      : CallScope([&] { return ObservedCall{.kind = kind, .name = name, .inputs = inputs, .layer = layer}; }) {}
  ~CallScope() {
    if (open_) [[unlikely]]
      leave();
  }

  bool observed() const { return open_ != nullptr; }
  // Reports the end of the call.
  void done(const CallResult& result = {}) {
    if (open_) [[unlikely]]
      end(result);
  }

 private:
  struct Open;
  struct Delete {
    void operator()(Open* open) const;
  };
  void begin(const ObservedCall& call);
  void end(const CallResult& result) noexcept;
  void leave() noexcept;  // ends a call without done(): an op that has thrown
  std::unique_ptr<Open, Delete> open_;
};

// Sets the part of a step that this thread is in while it lives.
class StepPassScope : LocalGuard {
 public:
  [[nodiscard]] explicit StepPassScope(StepPass pass);
  ~StepPassScope();

 private:
  StepPass saved_;
  CallScope span_;
};

}  // namespace halfstep
