// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/ledger.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "framework/base/layer_path.h"
#include "framework/base/text_stream.h"
#include "framework/tensor/memory.h"

namespace halfstep {
namespace {

thread_local constinit LedgerScope* innermost = nullptr;
thread_local constinit LedgerPass current_pass = LedgerPass::forward;

LedgerTensor entry_of(const Tensor& t) {
  if (!t.defined()) return {};
  return {t.shape(), t.dtype(), t.dtype()};
}

std::string text(DType dtype) {
  TextWriter out;
  out << dtype;
  return out.str();
}

// Why an op that autocast looked at computes in the dtype that it does.
std::string reason_of(const LedgerPolicy& what, std::span<const DType> given) {
  const auto has = [&](DType d) { return std::find(given.begin(), given.end(), d) != given.end(); };
  const bool floats = std::any_of(given.begin(), given.end(), is_floating);
  if (!floats) return "no floating input";
  if (has(DType::f64)) return "no cast: float64";
  switch (what.policy) {
    case CastPolicy::low: return "computes in " + text(what.low);
    case CastPolicy::f32:
      if (what.casts) return "computes in float32";
      [[fallthrough]];
    case CastPolicy::f32_output: return "its result is float32";
    case CastPolicy::promote: return "takes the widest dtype of its inputs";
    case CastPolicy::keep:
    case CastPolicy::banned: break;
  }
  return "takes the dtype it is given";
}

std::string set_for(const std::string& module) { return ", set for " + (module.empty() ? "the model" : module); }

}  // namespace

std::string_view name(LedgerPass pass) {
  constexpr std::string_view names[] = {"forward", "backward", "update"};
  return names[size_t(pass)];
}

double LedgerCall::flops() const {
  return std::accumulate(products.begin(), products.end(), 0.0, [](double sum, const LedgerProduct& p) { return sum + p.flops(); });
}
double LedgerCall::flops(DType dtype) const {
  double sum = 0;
  for (const LedgerProduct& p : products) sum += p.dtype == dtype ? p.flops() : 0;
  return sum;
}

LedgerScope::LedgerScope(Device device) : device_(device), outer_(innermost) { innermost = this; }
LedgerScope::~LedgerScope() { innermost = outer_; }

LedgerPassScope::LedgerPassScope(LedgerPass pass) : saved_(std::exchange(current_pass, pass)), span_(SpanKind::part, name(pass)) {}
LedgerPassScope::~LedgerPassScope() { current_pass = saved_; }

bool Ledger::is_open() { return innermost != nullptr; }
std::string_view Ledger::current_op() {
  if (!innermost) return {};
  if (innermost->depth_ > 0) return innermost->calls_.back().op;
  return innermost->casting_ ? "autocast" : std::string_view();
}
LedgerPass Ledger::current_pass() { return halfstep::current_pass; }

void Ledger::policy(const LedgerPolicy& what, std::span<const Tensor> inputs) {
  if (!innermost || innermost->depth_ > 0) return;
  innermost->given_.clear();
  for (const Tensor& t : inputs) innermost->given_.push_back(t.defined() ? t.dtype() : DType::boolean);
  innermost->policy_ = what.policy;
  innermost->set_by_ = what.set_for ? set_for(*what.set_for) : "";
  if (what.of_region) innermost->set_by_ += joined(", policy set to ", name(what.policy));
  std::string& reason = innermost->next_.reason;
  reason = reason_of(what, innermost->given_);
  const bool by_region = reason.starts_with("computes in") || reason.starts_with("its result");
  reason += !innermost->set_by_.empty() ? innermost->set_by_ : by_region ? " in a region" : "";
}

void Ledger::paused(const std::string& module, std::span<const Tensor> inputs) {
  if (!innermost || innermost->depth_ > 0) return;
  const bool floats =
      std::any_of(inputs.begin(), inputs.end(), [](const Tensor& t) { return t.defined() && t.is_floating_point(); });
  if (floats) innermost->next_.reason = "computes in float32" + set_for(module);
}

void Ledger::cast(const Tensor& from, DType to, bool shadow) {
  if (!innermost) return;
  LedgerCall& call = innermost->depth_ > 0 ? innermost->calls_.back() : innermost->next_;
  call.casts.push_back({from.dtype(), to, from.numel(), shadow});
  innermost->casting_ = !shadow;
}

void Ledger::saved(const Tensor& t) {
  if (innermost && innermost->depth_ == 1) innermost->calls_.back().saved.push_back(entry_of(t));
}

void Ledger::attributes(Attributes attributes) {
  if (innermost && innermost->depth_ == 1) innermost->calls_.back().attributes = std::move(attributes);
}

void Ledger::outputs(std::span<const Tensor> outputs) {
  if (!innermost || innermost->depth_ != 1) return;
  for (const Tensor& t : outputs) innermost->calls_.back().outputs.push_back(entry_of(t));
}

void Ledger::kernel(std::string_view name, double bytes_read, double bytes_written) {
  if (!innermost) return;
  const bool cast = innermost->casting_;
  innermost->casting_ = false;
  if (innermost->depth_ == 0 && !cast) {  // work that is no op's, such as an optimizer's
    const LedgerEntry entry(name, CastPolicy::keep, {}, LayerScope::current());
    return kernel(name, bytes_read, bytes_written);
  }
  LedgerCall& call = innermost->depth_ > 0 ? innermost->calls_.back() : innermost->next_;
  call.bytes_read += bytes_read;
  call.bytes_written += bytes_written;
  ++call.kernels;
}

void Ledger::product(const LedgerProduct& product) {
  if (!innermost || innermost->depth_ == 0) return;
  LedgerCall& call = innermost->calls_.back();
  if (call.products.empty()) call.compute = product.dtype;
  call.products.push_back(product);
}

LedgerEntry::LedgerEntry(std::string_view op, CastPolicy policy, std::span<const Tensor> inputs, const std::string* layer)
    : span_(SpanKind::op, op, inputs, layer) {
  if (!innermost) [[likely]]
    return;
  scope_ = innermost;
  if (scope_->depth_++ > 0) return;
  LedgerCall call = std::move(scope_->next_);
  scope_->next_ = {};
  const bool looked_at = !call.reason.empty();
  policy = std::exchange(scope_->policy_, {}).value_or(policy);
  call.op = op;
  call.pass = current_pass;
  call.layer = layer ? *layer : "";
  call.policy = policy;
  for (size_t i = 0; i < inputs.size(); ++i) {
    LedgerTensor t = entry_of(inputs[i]);
    if (looked_at && scope_->given_.size() == inputs.size() && inputs[i].defined()) t.given = scope_->given_[i];
    call.inputs.push_back(t);
  }
  const auto floating =
      std::find_if(inputs.begin(), inputs.end(), [](const Tensor& t) { return t.defined() && t.is_floating_point(); });
  if (floating != inputs.end()) call.compute = floating->dtype();
  if (looked_at && policy == CastPolicy::f32 && is_half(call.compute)) {
    call.compute = DType::f32;
    call.reason = "computes in float32 and reads 16 bits" + scope_->set_by_;
  }
  if (!looked_at) {
    constexpr const char* reasons[] = {"takes the dtype it is given", "as its forward", "as its parameters"};
    call.reason = reasons[size_t(current_pass)];
  }
  scope_->calls_.push_back(std::move(call));
}

LedgerEntry::~LedgerEntry() {
  if (!scope_ || --scope_->depth_ > 0) return;
  const MemoryStats memory = allocator(scope_->device_).stats();
  scope_->calls_.back().live = memory.live;
  scope_->calls_.back().peak = memory.peak;
}

}  // namespace halfstep
