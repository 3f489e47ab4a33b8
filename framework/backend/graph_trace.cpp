// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/graph_trace.h"

#include <algorithm>

#include "framework/base/layer_path.h"

namespace halfstep {
namespace {

std::vector<TraceTensor> traced(std::span<const Tensor> tensors) {
  std::vector<TraceTensor> out;
  for (const Tensor& t : tensors) out.push_back({t, t.defined() ? t.version() : 0});
  return out;
}

std::string current_layer() { return LayerScope::current() ? *LayerScope::current() : ""; }

bool is_forward(const ObservedCall& call) { return call.kind == SpanKind::op && !call.is_backward; }

}  // namespace

GraphTrace::GraphTrace(const Tensors& inputs, Accepts accepts) : accepts_(std::move(accepts)), observing_(*this) {
  for (const Tensor& t : inputs) varying_.insert(t.storage().get());
}

void GraphTrace::add(TraceCall call) {
  bool varies = false;
  for (TraceTensor& t : call.inputs) {
    t.depends = depends(t.tensor);
    varies = varies || t.depends;
  }
  if (varies) {
    for (const TraceTensor& t : call.outputs)
      if (t.tensor.defined()) varying_.insert(t.tensor.storage().get());
  }
  if (call.layer.empty()) call.layer = current_layer();
  calls_.push_back(std::move(call));
}

void GraphTrace::begin(const ObservedCall& call) {
  if (call.kind == SpanKind::simpler) simplified_.push_back(call.name);
  if (!is_forward(call) || depth_++ > 0) return;
  open_ = {std::string(call.name), current_layer(), call.attributes(), traced(call.inputs), {}};
}

void GraphTrace::end(const ObservedCall& call, const CallResult& result) {
  if (call.kind == SpanKind::simpler) simplified_.pop_back();
  if (!is_forward(call) || --depth_ > 0 || result.failed) return;
  open_.outputs = traced(result.outputs);
  add(std::exchange(open_, {}));
}

void GraphTrace::cast(const Tensor& from, const Tensor& to, bool) {
  if (depth_ == 0) add({"to", "", {{"dtype", name(to.dtype())}}, {{from, from.version()}}, {{to, to.version()}}});
}

void GraphTrace::written(const Tensor& from, const Tensor& into) {
  if (depth_ == 0) add({"copy_", "", {}, {{from, from.version()}}, {{into, into.version()}}});
}

void GraphTrace::host_read(const Tensor& t) {
  if (depth_ > 0 || !depends(t)) return;
  fail<ExportError>("export", "a value that depends on the model's input is read on the host (item() or to_vector())",
                    Help{"an export follows tensors alone; where(), masks and other ops on tensors can take such a branch"});
}

// Asks for no simpler form inside of an op's simpler form, which may contain the op.
bool GraphTrace::asks_for_simpler(const ObservedCall& call) const {
  return depth_ == 0 && !accepts_(call.name, call.attributes(), call.inputs) &&
         std::find(simplified_.begin(), simplified_.end(), call.name) == simplified_.end();
}

}  // namespace halfstep
