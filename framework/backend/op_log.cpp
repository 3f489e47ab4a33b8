// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/op_log.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "framework/base/layer_path.h"
#include "framework/base/text_stream.h"
#include "framework/tensor/memory.h"

namespace halfstep {
namespace {

LoggedTensor entry_of(const Tensor& t) {
  if (!t.defined()) return {};
  return {t.shape(), t.dtype(), t.dtype()};
}

std::string text(DType dtype) {
  TextWriter out;
  out << dtype;
  return out.str();
}

// Returns the reason for the dtype that autocast chose for an op.
std::string reason_of(const AutocastChoice& choice, std::span<const DType> given) {
  const auto has = [&](DType d) { return std::find(given.begin(), given.end(), d) != given.end(); };
  const bool floats = std::any_of(given.begin(), given.end(), is_floating);
  if (!floats) return "no floating input";
  if (has(DType::f64)) return "no cast: float64";
  switch (choice.policy) {
    case CastPolicy::low: return "computes in " + text(choice.low);
    case CastPolicy::f32:
      if (choice.casts) return "computes in float32";
      [[fallthrough]];
    case CastPolicy::f32_output: return "its result is float32";
    case CastPolicy::promote: return "takes the widest dtype of its inputs";
    case CastPolicy::keep:
    case CastPolicy::banned: break;
  }
  return "takes the dtype it is given";
}

std::string set_for_text(const std::string& module) { return ", set for " + (module.empty() ? "the model" : module); }

}  // namespace

double LoggedCall::flops() const {
  return std::accumulate(products.begin(), products.end(), 0.0, [](double sum, const MatrixProduct& p) { return sum + p.flops(); });
}
double LoggedCall::flops(DType dtype) const {
  double sum = 0;
  for (const MatrixProduct& p : products) sum += p.dtype == dtype ? p.flops() : 0;
  return sum;
}

void OpLog::autocast(const AutocastChoice& choice, std::span<const Tensor> inputs) {
  if (muted_ || depth_ > 0) return;
  if (choice.paused) {
    const bool floats =
        std::any_of(inputs.begin(), inputs.end(), [](const Tensor& t) { return t.defined() && t.is_floating_point(); });
    if (floats) next_.reason = "computes in float32" + set_for_text(*choice.set_for);
    return;
  }
  given_.clear();
  for (const Tensor& t : inputs) given_.push_back(t.defined() ? t.dtype() : DType::boolean);
  policy_ = choice.policy;
  set_by_ = choice.set_for ? set_for_text(*choice.set_for) : "";
  if (choice.of_region) set_by_ += joined(", policy set to ", name(choice.policy));
  std::string& reason = next_.reason;
  reason = reason_of(choice, given_);
  const bool by_region = reason.starts_with("computes in") || reason.starts_with("its result");
  reason += !set_by_.empty() ? set_by_ : by_region ? " in a region" : "";
}

void OpLog::cast(const Tensor& from, const Tensor& to, bool kept) {
  if (!muted_) current().casts.push_back({from.dtype(), to.dtype(), from.numel(), kept});
}

void OpLog::kernel(const ObservedKernel& kernel) {
  if (muted_ || !kernel.device.is_meta()) return;
  if (depth_ == 0 && casting_ == 0) {  // work outside of ops, such as an optimizer's
    const ObservedCall call{.name = kernel.name, .layer = LayerScope::current()};
    ObservedKernel alone = kernel;
    alone.product.reset();
    begin(call);
    this->kernel(alone);
    return end(call, {});
  }
  LoggedCall& call = current();
  call.bytes_read += kernel.bytes_read;
  call.bytes_written += kernel.bytes_written;
  ++call.kernels;
  if (!kernel.product || depth_ == 0) return;
  if (call.products.empty()) call.compute = kernel.product->dtype;
  call.products.push_back(*kernel.product);
}

void OpLog::begin(const ObservedCall& observed) {
  if (muted_) return;
  if (observed.kind == SpanKind::cast) ++casting_;
  if (observed.kind != SpanKind::op || depth_++ > 0) return;
  LoggedCall call = std::exchange(next_, {});
  const bool autocast_chose = !call.reason.empty();
  const CastPolicy policy = std::exchange(policy_, {}).value_or(observed.policy);
  call.op = observed.name;
  call.pass = Observing::pass();
  call.layer = observed.layer ? *observed.layer : "";
  call.policy = policy;
  if (!observed.is_backward) call.attributes = observed.attributes();
  const std::span<const Tensor> inputs = observed.inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    LoggedTensor t = entry_of(inputs[i]);
    if (autocast_chose && given_.size() == inputs.size() && inputs[i].defined()) t.given = given_[i];
    call.inputs.push_back(t);
  }
  const auto floating =
      std::find_if(inputs.begin(), inputs.end(), [](const Tensor& t) { return t.defined() && t.is_floating_point(); });
  if (floating != inputs.end()) call.compute = floating->dtype();
  if (autocast_chose && policy == CastPolicy::f32 && is_half(call.compute)) {
    call.compute = DType::f32;
    call.reason = "computes in float32 and reads 16 bits" + set_by_;
  }
  if (!autocast_chose) {
    constexpr const char* reasons[] = {// of forward, backward, update
                                       "takes the dtype it is given", "as its forward", "as its parameters"};
    call.reason = reasons[size_t(call.pass)];
  }
  calls_.push_back(std::move(call));
}

void OpLog::end(const ObservedCall& observed, const CallResult& result) {
  if (muted_) return;
  if (observed.kind == SpanKind::cast && casting_ > 0) --casting_;
  if (observed.kind != SpanKind::op || depth_ == 0 || --depth_ > 0) return;
  LoggedCall& call = calls_.back();
  if (!observed.is_backward) {
    for (const Tensor& t : result.saved) call.saved.push_back(entry_of(t));
    for (const Tensor& t : result.outputs) call.outputs.push_back(entry_of(t));
  }
  const MemoryStats memory = allocator(device_).stats();
  call.live = memory.live;
  call.peak = memory.peak;
}

OpLogScope::OpLogScope(Device device) : OpLog(device), outer_(Observing::find<OpLogScope>()), observing_(*this) {
  if (outer_) outer_->mute(true);
}
OpLogScope::~OpLogScope() {
  if (outer_) outer_->mute(false);
}

}  // namespace halfstep
