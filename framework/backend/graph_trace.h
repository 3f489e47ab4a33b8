// SPDX-License-Identifier: Apache-2.0
// A trace: the op calls of a piece of a program with the tensors that they read and made, for code that writes a model in another
// form, such as ONNX.
//
//   GraphTrace trace({x}, [](std::string_view op, const Attributes&, std::span<const Tensor>) { return op == "linear"; });
//   const Tensor y = model(x);
//   for (const TraceCall& call : trace.calls()) ...
//
// Simpler ops compute an op that the function does not accept, where it has such a form, and are traced in its place.
// A trace sees the thread that opened it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "framework/backend/export_error.h"
#include "framework/backend/observe.h"
#include "framework/base/guard.h"

namespace halfstep {

struct TraceTensor {
  Tensor tensor;         // undefined where an optional input is left out
  uint64_t version = 0;  // of its storage at the call: a later write in place makes another value
  bool depends = false;  // of an input: whether its value may depend on the inputs of the trace
};

struct TraceCall {
  std::string op;     // "linear"; "copy_": its input was written into its output
  std::string layer;  // "encoder.0"; empty outside of any
  Attributes attributes;
  std::vector<TraceTensor> inputs, outputs;  // held, so that no other tensor gets their memory while the trace lives
};

class GraphTrace final : public OpObserver, LocalGuard {
 public:
  using Accepts = std::function<bool(std::string_view op, const Attributes& attributes, std::span<const Tensor> inputs)>;
  // Makes item() and to_vector() throw ExportError, while it lives, for values that depend on `inputs`: a trace would take them
  // for constants.
  [[nodiscard]] GraphTrace(const Tensors& inputs, Accepts accepts);

  const std::vector<TraceCall>& calls() const { return calls_; }

  void begin(const ObservedCall& call) override;
  void end(const ObservedCall& call, const CallResult& result) override;
  void cast(const Tensor& from, const Tensor& to, bool kept) override;
  void written(const Tensor& from, const Tensor& into) override;
  void host_read(const Tensor& t) override;
  bool asks_for_simpler(const ObservedCall& call) const override;
  bool follows_values() const override { return depth_ == 0; }

 private:
  void add(TraceCall call);
  bool depends(const Tensor& t) const { return t.defined() && varying_.contains(t.storage().get()); }
  Accepts accepts_;
  std::vector<TraceCall> calls_;
  TraceCall open_;                            // the outermost open call
  std::vector<std::string_view> simplified_;  // ops that simpler ones compute right now
  std::unordered_set<const Storage*> varying_;  // memory of the trace's inputs, or written by a call that read such memory
  int depth_ = 0;  // calls that are open, one inside the other
  Observing observing_;
};

}  // namespace halfstep
