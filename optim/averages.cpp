// SPDX-License-Identifier: Apache-2.0
#include "optim/averages.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "amp/autocast/autocast.h"
#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

DType kept_dtype(const Tensor& p) { return p.dtype() == DType::f64 ? DType::f64 : DType::f32; }

StepControl control_of(const AmpStep& amp) {
  StepControl control;
  if (amp.found_inf.defined()) control.found_inf = amp.found_inf.data_ptr<float>();
  return control;
}

}  // namespace

HALFSTEP_OPTIONS(WeightAverageOptions, option("decay", &O::decay, "share of the old average in the new one").at_least(0).under(1),
                 option("warm_up", &O::warm_up, "a smaller decay at first: (1 + t) / (10 + t)"),
                 option("every", &O::every, "applied steps to each update").at_least(1),
                 option("start", &O::start, "steps before averaging begins").at_least(0))
HALFSTEP_OPTIONS(LookaheadOptions, option("k", &O::k, "steps").at_least(1),
                 option("alpha", &O::alpha, "fraction of the difference by which the slow weights move").above(0).at_most(1))

WeightAverage::WeightAverage(Optimizer& optimizer, const WeightAverageOptions& o) : Follower(optimizer), options_(o) {
  check_options("WeightAverage", o);
  begin_states(name_);
}

// Runs a pass over all parameters. It counts the steps in `step`, one number for each parameter; null: in the states.
void WeightAverage::follow(const math::AverageRule& rule, const StepControl& control, float* step) {
  optimizer().check_own_values("WeightAverage");
  const NoGrad off;
  size_t i = 0;
  for (const ParamGroup& group : groups()) {
    std::vector<ParamUpdate> updates;
    for (const Tensor& p : group.params) {
      float* const own_step = state(i, name_ + "_step", {}, DType::f32).data_ptr<float>();
      updates.push_back({.param = state(i, name_, p.shape(), kept_dtype(p)).view(),
                         .grad = p.view(),
                         .state = {},
                         .shadow = {},
                         .step = step ? step + i : own_step,
                         .number = state(i, name_ + "_count", {}, DType::f32).data_ptr<float>()});
      ++i;
    }
    backend_for(group.params.front().device()).update(updates, rule, control);
  }
}

void WeightAverage::stepped(const AmpStep& amp) {
  const auto every = double(options_.every), skipped = double(options_.start) + every - 1;  // the rule begins behind these
  follow({.decay = options_.decay,
          .equal = options_.equal,
          .warm_up = options_.warm_up,
          .start = options_.by_hand ? std::numeric_limits<double>::infinity() : skipped,
          .every = every},
         control_of(amp), nullptr);
}

void WeightAverage::update() {
  const std::vector<Tensor> params = optimizer().parameters();
  const Tensor steps = zeros({int64_t(params.size())}, {.dtype = DType::f32, .device = params.front().device()});
  follow({.decay = options_.decay, .equal = options_.equal, .warm_up = options_.warm_up}, {}, steps.data_ptr<float>());
}

Tensors WeightAverage::averages() const {
  Tensors out;
  for (size_t i = 0; i < optimizer().parameters().size(); ++i) {
    const Tensor* const count = find_state(i, name_ + "_count");
    const bool made = count && !count->device().is_meta() && count->item<double>() > 0;
    out.push_back(made ? *find_state(i, name_) : Tensor());
  }
  return out;
}

bool WeightAverage::swap_in() {
  optimizer().check_own_values("WeightAverage::Scope");
  const NoGrad off;
  const MemoryScope tag(MemoryTag::workspace);
  const Tensors averaged = averages();
  const std::vector<Tensor> params = optimizer().parameters();
  own_.resize(params.size());
  swapped_ = params;
  for (size_t i = 0; i < params.size(); ++i) {
    if (!averaged[i].defined()) continue;
    const Tensor p = params[i].detach();
    own_[i] = p.clone();
    p.copy_(averaged[i]);
  }
  return std::any_of(averaged.begin(), averaged.end(), [](const Tensor& t) { return t.defined(); });
}

void WeightAverage::swap_out() {
  const NoGrad off;
  const Tensors own = std::exchange(own_, {}), params = std::exchange(swapped_, {});
  for (size_t i = 0; i < own.size(); ++i) {
    if (own[i].defined()) params[i].detach().copy_(own[i]);
  }
}

void WeightAverage::copy_to_parameters() {
  optimizer().check_own_values("WeightAverage");
  const NoGrad off;
  const Tensors averaged = averages();
  const std::vector<Tensor> params = optimizer().parameters();
  for (size_t i = 0; i < params.size(); ++i) {
    if (!averaged[i].defined()) continue;
    params[i].detach().copy_(averaged[i]);
    if (options_.equal) AveragedWeights::put_for_good();
  }
}

std::string WeightAverage::describe() const {
  const std::string when = options_.by_hand ? ", by_hand=True"
                                            : joined(options_.start > 0 ? joined(", start=", options_.start) : "",
                                                     options_.every > 1 ? joined(", every=", options_.every) : "");
  if (options_.equal) return "SWA(" + (when.empty() ? when : when.substr(2)) + ")";  // without the first ", "
  return joined("EMA(decay=", options_.decay, options_.warm_up ? ", warm_up=True" : "", when, ")");
}

Lookahead::Lookahead(Optimizer& optimizer, const LookaheadOptions& o) : Follower(optimizer), options_(o) {
  check_options("Lookahead", o);
  begin_states(name_);
  add_slow_weights();
}

// Initialises missing slow weights with the parameters.
void Lookahead::add_slow_weights() {
  const NoGrad off;
  const std::vector<Tensor> params = optimizer().parameters();
  for (size_t i = 0; i < params.size(); ++i)
    if (!find_state(i, name_)) state(i, name_, params[i].shape(), kept_dtype(params[i])).copy_(params[i].detach());
}

void Lookahead::stepped(const AmpStep& amp) {
  const NoGrad off;
  add_slow_weights();  // for a loaded state that lacks them
  size_t i = 0;
  for (const ParamGroup& group : groups()) {
    std::vector<ParamUpdate> updates;
    Tensors shadows;
    for (const Tensor& p : group.params) {
      ParamUpdate u{.param = p.view(), .grad = p.view(), .state = {}, .shadow = {}, .step = nullptr};
      u.state[0] = state(i, name_, p.shape(), kept_dtype(p)).view();
      u.step = state(i, name_ + "_step", {}, DType::f32).data_ptr<float>();
      shadows.push_back(autocast::shadow_of(p));
      if (shadows.back().defined()) u.shadow = shadows.back().view();
      updates.push_back(u);
      ++i;
    }
    backend_for(group.params.front().device())
        .update(updates, math::LookaheadRule{.k = double(options_.k), .alpha = options_.alpha}, control_of(amp));
    for (size_t k = 0; k < group.params.size(); ++k) {
      group.params[k].bump_version();
      if (shadows[k].defined()) autocast::mark_shadow_current(group.params[k]);
    }
  }
}

std::string Lookahead::describe() const { return joined("Lookahead(k=", options_.k, ", alpha=", options_.alpha, ")"); }

}  // namespace halfstep
