// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/trace.h"

#include <algorithm>

#include "framework/base/layer_path.h"

namespace halfstep {
namespace {

std::vector<TraceTensor> seen(std::span<const Tensor> tensors) {
  std::vector<TraceTensor> out;
  for (const Tensor& t : tensors) out.push_back({t, t.defined() ? t.version() : 0});
  return out;
}

std::string current_layer() { return LayerScope::current() ? *LayerScope::current() : ""; }

}  // namespace

TraceScope::TraceScope(const Tensors& inputs, Takes takes) : takes_(std::move(takes)), outer_(current_) {
  for (const Tensor& t : inputs) varying_.insert(t.storage().get());
  current_ = this;
}
TraceScope::~TraceScope() { current_ = outer_; }

void TraceScope::add(TraceCall call) {
  bool varies = false;
  for (TraceTensor& t : call.inputs) varies |= t.depends = depends(t.tensor);
  if (varies) {
    for (const TraceTensor& t : call.outputs)
      if (t.tensor.defined()) varying_.insert(t.tensor.storage().get());
  }
  if (call.layer.empty()) call.layer = current_layer();
  calls_.push_back(std::move(call));
}

void TraceScope::check_host_read(const Tensor& t) const {
  if (depth_ > 0 || !depends(t)) return;
  fail<ExportError>("export", "a value that depends on the model's input is read on the host (item() or to_vector())",
                    Help{"an export follows tensors alone; where(), masks and other ops on tensors can take such a branch"});
}

TraceEntry::TraceEntry(TraceScope& scope, std::string_view op, Attributes attributes, std::span<const Tensor> inputs)
    : scope_(scope), call_{std::string(op), current_layer(), std::move(attributes), seen(inputs), {}} {
  ++scope_.depth_;
}
void TraceEntry::done(std::span<const Tensor> outputs) {
  call_.outputs = seen(outputs);
  scope_.add(std::move(call_));
}

bool TraceSimpler::may(const TraceScope& scope, std::string_view op) {
  return std::find(scope.simplified_.begin(), scope.simplified_.end(), op) == scope.simplified_.end();
}

}  // namespace halfstep
