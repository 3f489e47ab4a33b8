// SPDX-License-Identifier: Apache-2.0
// A trace: the op calls of a piece of a program with the tensors that they read and made, for what writes a model in another form,
// such as ONNX.
//
//   TraceScope trace({x}, [](std::string_view op, const Attributes&, std::span<const Tensor>) { return op == "linear"; });
//   const Tensor y = model(x);
//   for (const TraceCall& call : trace.calls()) ...
//
// An op that the reader does not take is computed by simpler ops, where it has such a form, and these are traced in its place.
// A scope sees the thread that opened it. Where none is open, a trace costs an op one look at a thread's variable.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "framework/backend/export_error.h"
#include "framework/base/attributes.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

struct TraceTensor {
  Tensor tensor;         // undefined where an optional input is left out
  uint64_t version = 0;  // that it had: what was written in place since is another value
  bool depends = false;  // of an input: had its memory been an input of the scope, or written by a call that read such memory?
};

struct TraceCall {
  std::string op;     // "linear"; "copy_": its input was written into its output
  std::string layer;  // "encoder.0"; empty outside of any
  Attributes attributes;
  std::vector<TraceTensor> inputs, outputs;  // held, so that no other tensor gets their memory while the trace lives
};

class TraceScope {
 public:
  using Takes = std::function<bool(std::string_view op, const Attributes& attributes, std::span<const Tensor> inputs)>;
  // While it lives, the thread cannot read values on the host that depend on `inputs`: item() and to_vector() throw ExportError,
  // since a trace would take them for constants.
  [[nodiscard]] TraceScope(const Tensors& inputs, Takes takes);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;

  const std::vector<TraceCall>& calls() const { return calls_; }

  // ---- called by the framework
  static TraceScope* current() { return current_; }
  // The scope, if the thread is in no op call.
  static TraceScope* at_top() { return current_ && current_->depth_ == 0 ? current_ : nullptr; }
  bool takes(std::string_view op, const Attributes& attributes, std::span<const Tensor> inputs) const {
    return takes_(op, attributes, inputs);
  }
  void add(TraceCall call);
  void check_host_read(const Tensor& t) const;

 private:
  friend class TraceEntry;
  friend class TraceSimpler;
  bool depends(const Tensor& t) const { return t.defined() && varying_.contains(t.storage().get()); }
  Takes takes_;
  TraceScope* outer_;
  std::vector<TraceCall> calls_;
  std::vector<std::string_view> simplified_;  // ops that simpler ones compute right now
  std::unordered_set<const Storage*> varying_;
  int depth_ = 0;
  static inline thread_local constinit TraceScope* current_ = nullptr;
};

// An op call of the trace, from here to done(). Calls within are part of it.
class TraceEntry {
 public:
  [[nodiscard]] TraceEntry(TraceScope& scope, std::string_view op, Attributes attributes, std::span<const Tensor> inputs);
  ~TraceEntry() { --scope_.depth_; }
  TraceEntry(const TraceEntry&) = delete;
  void done(std::span<const Tensor> outputs);

 private:
  TraceScope& scope_;
  TraceCall call_;
};

// While it lives, simpler ops compute `op`.
class TraceSimpler {
 public:
  [[nodiscard]] TraceSimpler(TraceScope& scope, std::string_view op) : scope_(scope) { scope_.simplified_.push_back(op); }
  ~TraceSimpler() { scope_.simplified_.pop_back(); }
  TraceSimpler(const TraceSimpler&) = delete;
  // False inside of itself: the op's form in simpler ops has the op in it.
  static bool may(const TraceScope& scope, std::string_view op);

 private:
  TraceScope& scope_;
};

}  // namespace halfstep
