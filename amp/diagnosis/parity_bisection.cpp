// SPDX-License-Identifier: Apache-2.0
// Locates an error of 16 bits: in single modules, and in other parts that can be computed in float32.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "amp/autocast/autocast.h"
#include "amp/diagnosis/parity.h"
#include "amp/diagnosis/state_guard.h"
#include "framework/autograd/grad_mode.h"
#include "framework/backend/op_log.h"
#include "framework/ops/core/op_policy.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

// The rms error of a rounding to nearest, relative to the value, in units of 2^-8 (bfloat16) or 2^-11 (float16): 1/sqrt(3) times
// sqrt(3 / (8 ln 2)) where the significands are spread evenly over a logarithmic scale.
constexpr double kRmsRounding = 0.42;
constexpr size_t kListedOps = 4;  // in the name of a variant
double rounding_unit(DType low) { return low == DType::bf16 ? 0x1p-8 : 0x1p-11; }

AutocastOptions low_region(const StepUnderTest& step) {
  return {.dtype = step.low, .cache_enabled = false, .policies = step.policies};
}

// The first call of a module.
struct SeenCall {
  Tensor input, output;
  std::optional<StepStates> states;  // before it
};
using SeenCalls = std::map<std::string, SeenCall>;

// Records calls, from one tensor to one, of modules without children while it lives.
class CallWatch {
 public:
  [[nodiscard]] CallWatch(Module& model, SeenCalls& seen) {
    for (const auto& [name, module] : model.named_modules()) {
      if (!module->children().empty()) continue;
      const std::string path = name;
      keys_.push_back({module, module->register_forward_pre_hook([path, &seen](Module& m, const Tensors& in) {
                         if (in.size() == 1 && !seen.contains(path)) seen[path] = {in[0].detach().clone(), {}, StepStates(m)};
                       })});
      keys_.push_back({module, module->register_forward_hook([path, &seen](Module&, const Tensors&, const Tensors& out) {
                         const auto at = seen.find(path);
                         if (at != seen.end() && out.size() == 1 && !at->second.output.defined())
                           at->second.output = out[0].detach().clone();
                       })});
    }
  }
  ~CallWatch() {
    for (const auto& [module, key] : keys_) module->remove_hook(key);
  }
  CallWatch(const CallWatch&) = delete;

 private:
  std::vector<std::pair<Module*, uint64_t>> keys_;
};

int64_t roundings_in(const std::vector<LoggedCall>& calls) {
  int64_t out = 0;
  for (const LoggedCall& call : calls) {
    for (const LoggedCast& c : call.casts) out += is_half(c.to);
    for (const LoggedTensor& t : call.outputs) out += is_half(t.dtype);
  }
  return out;
}

double norm_of(const Tensor& t) { return norm(t.to(DType::f64)).item<double>(); }

// Returns the ops of the forward that have 16-bit tensors, by their policy there.
std::map<CastPolicy, std::set<std::string>> ops_by_policy(const StepUnderTest& step) {
  const StateGuard untouched(step.module, step.low, step.random);
  const EnableGrad on;
  const OpLogScope log(step.device);
  {
    const Autocast region(step.device, low_region(step));
    step.batches[0].loss();
  }
  std::map<CastPolicy, std::set<std::string>> out;
  for (const LoggedCall& call : log.calls()) {
    const auto any_low = [](const std::vector<LoggedTensor>& list) {
      return std::any_of(list.begin(), list.end(), [](const LoggedTensor& t) { return is_half(t.dtype) || is_half(t.given); });
    };
    const Op* const op = find_op(call.op);
    if (!op || calls_others(call.op) || !(any_low(call.inputs) || any_low(call.outputs))) continue;
    out[step.policies.find(call.op).value_or(op->policy)].insert(call.op);
  }
  return out;
}

}  // namespace

std::vector<ModuleParity> compare_modules(const StepUnderTest& step) {
  const StateGuard untouched(step.module, {}, step.random);
  const NoGrad off;
  const StepStates before(step.module);
  SeenCalls float32, low;
  {
    const CallWatch watch(step.module, float32);
    const Autocast region(step.device, {.enabled = false});
    step.batches[0].loss();
  }
  before.put_back_for(step.low);
  {
    const CallWatch watch(step.module, low);
    const Autocast region(step.device, low_region(step));
    step.batches[0].loss();
  }
  std::vector<ModuleParity> out;
  for (const auto& [path, module] : step.module.named_modules()) {
    const auto at = float32.find(path), at_low = low.find(path);
    if (at == float32.end() || at_low == low.end() || !at->second.output.defined()) continue;
    if (!at->second.output.is_floating_point()) continue;
    at->second.states->put_back_for(step.low);
    // Use the dtype that the input has if the layers before it compute in 16 bits.
    const DType given = at_low->second.input.dtype();
    const bool rounds = is_half(given) && at->second.input.dtype() == DType::f32;
    const Tensor input = rounds ? at->second.input.to(given) : at->second.input;
    ModuleParity m{.path = path, .what = module->describe()};
    Tensor y;
    {
      const OpLogScope log(step.device);
      const Autocast region(step.device, low_region(step));
      y = (*module)(input);
      m.roundings = roundings_in(log.calls()) + rounds;
    }
    const Tensor& exact = at->second.output;
    const double size = norm_of(exact), difference = norm_of(y.to(DType::f64) - exact.to(DType::f64));
    m.error = size > 0 ? difference / size : difference > 0 ? INFINITY : 0;
    if (std::isnan(m.error)) m.error = INFINITY;
    m.expected = kRmsRounding * rounding_unit(*step.low) * std::sqrt(double(std::max<int64_t>(m.roundings, 1)));
    out.push_back(m);
  }
  return out;
}

std::vector<ParityVariant> bisection(const StepUnderTest& step) {
  std::vector<ParityVariant> out;
  if (!step.module.any_recomputes()) out.push_back({.name = "weights", .rounded_weights = true});
  if (step.low_gradients) out.push_back({.name = "gradients of weights", .low_gradients = false});
  for (const auto& [policy, ops] : ops_by_policy(step)) {
    if (policy == CastPolicy::f32 || policy == CastPolicy::banned) continue;
    OpPolicies::ByName list = step.policies.by_name();
    std::string names;
    size_t shown = 0;
    for (const std::string& op : ops) {
      list[op] = CastPolicy::f32;
      if (++shown <= kListedOps) names += (names.empty() ? "" : ", ") + op;
    }
    out.push_back(
        {.name = joined("ops of policy ", name(policy), ": ", names, shown > kListedOps ? ", ..." : ""), .policies = list});
  }
  for (const auto& [name, child] : step.module.named_children()) {
    if (child->precision() == DType::f32) continue;
    out.push_back({.name = "module " + name, .modules = {name}});
  }
  return out;
}

}  // namespace halfstep
