// SPDX-License-Identifier: Apache-2.0
#include "amp/step/train_step.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "amp/autocast/autocast.h"
#include "framework/autograd/grad_mode.h"
#include "framework/backend/observe.h"
#include "framework/ops/core/op_policy.h"
#include "framework/ops/ops.h"
#include "optim/clip.h"
#include "optim/gradients.h"

namespace halfstep {
namespace {

// Leaves gradients as they are for this step alone, also if it throws, which saves writing them.
struct ScaledGradients {
  [[nodiscard]] explicit ScaledGradients(Optimizer& o) : optimizer(o) { optimizer.keep_unscaled_gradients(false); }
  ~ScaledGradients() { optimizer.keep_unscaled_gradients(true); }
  ScaledGradients(const ScaledGradients&) = delete;
  Optimizer& optimizer;
};

}  // namespace

TrainStep::TrainStep(Module& module, const Loss& loss, Optimizer& optimizer, GradScaler& scaler, Schedule* schedule,
                     const TrainStepOptions& options)
    : module_(module),
      loss_(loss),
      optimizer_(optimizer),
      scaler_(scaler),
      options_(options),
      window_(options.accumulate_steps, options.group ? options.group->size() : 1),
      states_(module) {
  if (schedule) schedule_.emplace(*schedule);
  check_options();
  if (options.group)
    ranks_ = std::make_unique<RankExchange>(optimizer.parameters(), *options.group, options.reducer, options.device.is_meta());
  // A user's optimizer that reads found_inf back waits for the device anyway.
  if (optimizer.needs_closure() || !options.device.is_cuda() || !optimizer.handles_amp()) return;
  rates_ = std::make_unique<DeviceRates>(optimizer, schedule, options.device);
  if (!may_record()) return;
  const auto step = [this](const Tensor& x, const Tensor& y, const BatchRows& part, math::ResultRing* ring) {
    return eager(x, y, part, ring);
  };
  recorder_ =
      std::make_unique<StepRecorder>(step, module, optimizer, scaler, *rates_, options.device, options.graph, options.group,
                                     [this](int readiness, const BatchRows& part) { return ranks_->agree(readiness, part); });
}

bool TrainStep::may_record() const {
  const TrainStepOptions& o = options_;
  const bool wanted = o.graph == GraphMode::on || (o.graph == GraphMode::automatic && module_.is_recordable() &&
                                                   loss_.is_recordable() && !module_.any_recomputes());
  return wanted && o.accumulate_steps == 1 && backend_for(o.device).can_record() && (!o.group || o.group->can_record());
}

StepResult TrainStep::operator()(const Tensor& input, const Tensor& target, const std::optional<BatchRows>& part) {
  const BatchRows rows = rows_of(input, part);
  if (keeps_step_) keep_batch(work_of(input, target, rows), rows);
  if (!recorder_) return eager(input, target, rows, nullptr);
  optimizer(), scaler();  // throw if they are gone; the recorder refers to them
  StepResult result = (*recorder_)(input, target, rows);
  notify(0);
  return result;
}

StepResult TrainStep::operator()(const Tensors& inputs, const Tensor& target, const std::optional<BatchRows>& part) {
  check<ValueError>(!inputs.empty(), "TrainStep", "a step needs an input");
  if (inputs.size() == 1) return (*this)(inputs[0], target, part);
  if (!forward_of_several_) train_step::throw_wrong_inputs(module_, inputs.size());
  const BatchRows rows = rows_of(inputs[0], part);
  const auto forward = [this, inputs, target](const Tensor& seed) {
    const Tensor output = forward_of_several_(module_, inputs);
    return std::pair(output, loss_.with_seed(output, target, seed));
  };
  const Work work{
      forward, inputs, {target}, inputs[0].defined() && inputs[0].device() == options_.device, denominator_of(target, rows)};
  if (keeps_step_) keep_batch(work, rows);
  return eager(work, rows, nullptr);
}

StepResult TrainStep::operator()(const std::function<Tensor()>& loss, const std::optional<BatchRows>& part,
                                 std::optional<double> denominator) {
  check<ValueError>(!denominator || *denominator >= 0, "TrainStep", "what a loss is a mean over must be >= 0, got ",
                    denominator.value_or(0));
  const BatchRows rows = part ? *part : rows_of(Tensor::empty({1}), {});
  const Denominator given = denominator
                                ? Denominator(rows.rows, 1, full({}, *denominator, {.dtype = DType::f64, .device = Device::cpu}))
                                : Denominator(double(rows.rows));
  const Work work{[loss](const Tensor&) { return std::pair(Tensor(), loss()); }, {}, {}, false, given};
  if (keeps_step_) keep_batch(work, rows);
  return eager(work, rows, nullptr);
}

// Avoids waiting for a GPU, unless ranks exchange over the host or a user's optimizer decides there.
Denominator TrainStep::denominator_of(const Tensor& target, const BatchRows& part) const {
  if (part.rows == 0 || !target.defined()) return 0.0;
  if (window_.is_single() && target.device().is_cuda()) return double(part.rows);  // not used as a weight
  const Denominator denominator = loss_.denominator(target);
  return rates_ && (!ranks_ || recorder_) ? denominator : denominator.on_host();
}

TrainStep::Work TrainStep::work_of(const Tensor& input, const Tensor& target, const BatchRows& part) {
  const auto forward = [this, input, target](const Tensor& seed) {
    const Tensor output = module_(input);
    return std::pair(output, loss_.with_seed(output, target, seed));
  };
  return {forward, {input}, {target}, input.defined() && input.device() == options_.device, denominator_of(target, part)};
}

StepResult TrainStep::eager(const Tensor& input, const Tensor& target, const BatchRows& part, math::ResultRing* ring) {
  Work work = work_of(input, target, part);
  if (ranks_ && !ring) work.denominator = work.denominator.on_host();  // such a step waits for the device anyway
  return eager(work, part, ring);
}

StepResult TrainStep::eager(const Work& work, const BatchRows& part, math::ResultRing* ring) {
  if (optimizer().needs_closure()) return by_closure(work);
  if (window_.pending() == 0) {
    if (rates_) rates_->prepare();
    optimizer().zero_grad();
    // Without a scaler, every step with a target that counts is applied. The host does not read denominators on the device.
    const bool may_count_nothing = part.rows > 0 && (work.denominator.is_zero() || work.denominator.on_device().defined());
    if (scaler().is_enabled() || options_.keeps_states || may_count_nothing) states_.save();
    window_loss_ = Tensor();
    window_.open(part);
    if (ranks_) ranks_->open();
  }
  if (ranks_ && window_.is_last()) ranks_->arm();

  StepResult result;
  if (part.rows > 0) {
    window_.begin(part, work.denominator);
    result = compute(work, part);
    result.denominator = work.denominator;
  }
  // Create the scale in the first step, also on a rank without rows that count.
  if (scaler().is_enabled() && (part.rows == 0 || work.denominator.is_zero())) scaler().seed(options_.device);
  if (options_.accumulate_steps > 1 && !ranks_ && scaler().is_enabled()) {
    const NoGrad off;
    const MemoryScope tag(MemoryTag::workspace);
    const Tensor& denominator = work.denominator.on_device();
    const Tensor loss = denominator.defined() ? where(gt(denominator, 0.0), result.loss, 0.0) : result.loss;
    if (!work.denominator.is_zero()) window_loss_ = window_loss_.defined() ? window_loss_ + loss : loss;
  }
  if (ranks_ && !ring && result.loss.defined()) {
    ranks_->add_loss(result.loss.device().is_meta() ? 0 : result.loss.item<double>(), work.denominator);
    result.loss = Tensor();
  }
  window_.count(part, work.denominator);
  if (!window_.full()) return result;

  StepResult last = finish_window(ring, result.loss);
  if (ranks_) result.loss = last.loss, result.denominator = last.denominator;
  result.stepped = last.stepped;
  result.no_target = last.no_target;
  result.outcome = std::move(last.outcome);
  result.grad_norm = std::move(last.grad_norm);
  return result;
}

// Runs forward and backward of one micro-batch.
StepResult TrainStep::compute(const Work& work, const BatchRows& part) {
  StepResult result;
  Tensor loss;
  const bool on_device = work.denominator.on_device().defined();
  const double weight = on_device ? 0 : window_.loss_weight(work.denominator);
  const AccumulationWindow::Draws draws(window_, part);
  const GroupScope group(options_.group);
  {
    const bool seeded = weight == 1 && work.on_device && !Observing::observes_kernels(options_.device);
    const Tensor seed = seeded ? scaler().seed(options_.device) : Tensor();
    const StepPassScope pass(StepPass::forward);
    const Autocast region(options_.device, region_options());
    Tensor output;
    std::tie(output, loss) = work.forward(seed);
    if (output.defined()) result.output = output.detach();
  }
  check<ShapeError>(loss.numel() == 1, "TrainStep", "the loss must be one number, got shape ", loss.shape(),
                    Help{"use the loss with reduction mean"});
  result.loss = loss.detach().reshape({});
  if (work.denominator.is_zero()) return result;  // the loss is NaN and has no gradient
  if (options_.on_bad_loss && !std::isfinite(result.loss.item<double>())) {
    const StateRollback::Rewound as_before(states_);
    StepUnderTest step = step_without_batches();
    step.random = window_.random();
    step.batches.push_back(describe_batch(work, part));
    options_.on_bad_loss(step);
  }
  // Halves memory and traffic, but only if no code computes with the gradients before the optimizer does.
  const LowGradients low(keeps_low_gradients());
  if (on_device)
    scaler().backward(loss, no_grad([&] { return window_.loss_weight_on_device(work.denominator); }));
  else
    scaler().backward(loss, weight);
  return result;
}

bool TrainStep::keeps_low_gradients() const { return options_.accumulate_steps == 1 && !clips() && !options_.group; }

StepUnderTest TrainStep::step_without_batches() const {
  StepUnderTest out{.module = module_, .batches = {}, .device = options_.device, .low = options_.amp};
  out.policies = options_.policies;
  out.scale = scaler().get_scale();
  out.low_gradients = keeps_low_gradients();
  return out;
}

TestedBatch TrainStep::describe_batch(const Work& work, const BatchRows& part) const {
  AccumulationWindow window = window_;
  if (window.pending() == 0) window.open(part);
  const Denominator denominator = work.denominator.on_host();
  window.begin(part, denominator);
  const auto loss = [forward = work.forward, window, part, group = options_.group] {
    const AccumulationWindow::Draws draws(window, part);
    const GroupScope scope(group);
    return forward({}).second;
  };
  return {loss, work.inputs, work.targets, window.loss_weight(denominator), {}, window.rows_of(part), denominator.value()};
}

StepUnderTest TrainStep::described(const Tensor& input, const Tensor& target, const std::optional<BatchRows>& part) {
  StepUnderTest out = step_without_batches();
  out.random = default_generator().state();
  const BatchRows rows = rows_of(input, part);
  if (rows.rows > 0) out.batches.push_back(describe_batch(work_of(input, target, rows), rows));
  return out;
}

void TrainStep::keep_step(bool keep) {
  keeps_step_ = keep;
  if (!keep) kept_step_.reset();
}

void TrainStep::keep_batch(const Work& work, const BatchRows& part) {
  if (window_.pending() == 0) {
    kept_step_.emplace(step_without_batches());
    kept_step_->random = default_generator().state();
  }
  if (kept_step_ && part.rows > 0) kept_step_->batches.push_back(describe_batch(work, part));
}

StepResult TrainStep::without_targets() {
  StepResult out;
  out.stepped = out.no_target = true;
  out.outcome = StepOutcome(full({}, 1.0, {.device = options_.device}));
  states_.restore_after_step(out.outcome.found_inf());
  window_loss_ = Tensor();
  if (!rates_ && schedule_) schedule().step(false);
  return out;
}

StepResult TrainStep::by_closure(const Work& work) {
  StepResult result;
  if (work.denominator.is_zero())
    return result = without_targets(), result.loss = full({}, NAN, {.device = options_.device}), result;
  const auto closure = [&] {
    optimizer().zero_grad();
    Tensor loss;
    {
      const StepPassScope pass(StepPass::forward);
      const Autocast region(options_.device, region_options());
      Tensor output;
      std::tie(output, loss) = work.forward({});
      if (!result.output.defined() && output.defined()) result.output = output.detach();
    }
    loss.backward();
    return loss;
  };
  const StepPassScope pass(StepPass::update);
  result.loss = optimizer().step(closure)->detach().reshape({});
  result.stepped = true;
  if (schedule_) schedule().step();
  return result;
}

bool TrainStep::clips() const { return options_.clip_grad_norm > 0 || options_.clip_grad_value > 0 || options_.clip_grad_agc > 0; }

AutocastOptions TrainStep::region_options() const {
  return {.dtype = options_.amp, .enabled = options_.amp.has_value(), .policies = options_.policies};
}

// Returns whether the optimizer's pass clips: only by the norm of gradients that are not rounded to 16 bits when they are clipped,
// and not of float64, since its factor is a float.
bool TrainStep::clips_in_update() const {
  const TrainStepOptions& o = options_;
  if (o.clip_grad_norm == 0 || o.clip_grad_value > 0 || o.clip_grad_agc > 0 || !optimizer().handles_amp()) return false;
  const std::vector<Tensor> params = optimizer().parameters();
  return std::none_of(params.begin(), params.end(), [](const Tensor& p) { return p.dtype() != DType::f32; });
}

// Clips in memory, and returns the norm of the gradients if requested.
Tensor TrainStep::clip() {
  const Gradients gradients = scaler().unscale_(optimizer());
  if (options_.clip_grad_agc > 0) clip_grad_agc_(gradients, options_.clip_grad_agc);
  if (options_.clip_grad_value > 0) clip_grad_value_(gradients, options_.clip_grad_value);
  if (options_.clip_grad_norm > 0) return clip_grad_norm_(gradients, options_.clip_grad_norm);
  return options_.grad_norm ? grad_norm(gradients) : Tensor();
}

// Multiplies the gradients by the window's factor (accumulation_window.h). Returns, as bool on the device, whether no target
// counts, which makes the factor infinite; undefined if the host has checked that.
Tensor TrainStep::apply_gradient_factor() {
  const NoGrad off;
  if (window_.total_on_device().defined()) {
    const Tensor factor = window_.gradient_factor_on_device().to(DType::f32);
    for (const Tensor& g : gradients_of(optimizer().parameters())) g.mul_(factor);
    return eq(window_.total_on_device(), 0.0);
  }
  if (const double factor = window_.gradient_factor(); factor != 1) {
    for (const Tensor& g : gradients_of(optimizer().parameters())) g.mul_(factor);
  }
  return {};
}

StepResult TrainStep::flush() { return window_.pending() > 0 ? finish_window() : StepResult{}; }

StepResult TrainStep::finish_window(math::ResultRing* ring, const Tensor& loss) {
  const StepPassScope pass(StepPass::update);
  StepResult result;
  window_.close();
  result.loss = !ranks_ ? loss : ring ? ranks_->finish_recorded(window_, loss) : ranks_->finish(window_);
  math::StepTail tail;
  tail.ring = ring;
  Tensor tail_loss = window_loss_.defined() ? window_loss_ : result.loss;
  result.denominator = window_.denominator();
  if (window_.counts_nothing()) {
    Tensor window_loss = std::move(result.loss);
    result = without_targets();
    result.loss = std::move(window_loss);
    result.denominator = window_.denominator();
    return result;
  }
  const Tensor counts_nothing = apply_gradient_factor();
  Tensor skip;
  if (counts_nothing.defined()) {
    // Skip a step without any target that counts. Under a scaler its gradients do so: they are not finite, since the factor is
    // infinite. The loss becomes NaN, so that the scale stays.
    const NoGrad off;
    if (!scaler().is_enabled()) skip = counts_nothing.to(DType::f32);
    if (tail_loss.defined()) tail_loss = where(counts_nothing, NAN, tail_loss);
  }
  if (tail_loss.defined() && (ring || scaler().is_enabled())) {
    if (ranks_) tail_loss = tail_loss.to(options_.device);  // may be on the host
    tail.loss = tail_loss.data_ptr();
    tail.loss_dtype = tail_loss.dtype();
  }
  NormClip clip_of_update;
  if (clips() && !clips_in_update()) {
    const CallScope span(SpanKind::task, "clip_grad");
    result.grad_norm = clip();
  } else if (clips() || options_.grad_norm) {
    const CallScope span(SpanKind::task, "grad_norm");
    result.grad_norm = scaler().grad_norm(optimizer());
    if (clips()) clip_of_update = {result.grad_norm, options_.clip_grad_norm};
  }
  result.stepped = true;
  {
    const CallScope span(SpanKind::task, "optimizer");
    const ScaledGradients leave(optimizer());
    if (rates_) rates_->add_to(tail);
    result.outcome = scaler().finish(optimizer(), tail, skip, clip_of_update);
  }
  if (scaler().is_enabled() || skip.defined()) states_.restore_after_step(result.outcome.found_inf());
  window_loss_ = Tensor();
  if (rates_)
    rates_->note_step();
  else if (schedule_)
    schedule().step(result.outcome.applied());
  return result;
}

void TrainStep::check_options() const {
  const TrainStepOptions& o = options_;
  check<ValueError>(o.accumulate_steps >= 1, "TrainStep", "accumulate_steps must be >= 1, got ", o.accumulate_steps);
  check<ValueError>(!o.amp || is_half(*o.amp), "TrainStep", "amp must be float16 or bfloat16, got ", o.amp.value_or(DType::f32),
                    Help{"leave it out to compute in float32"});
  check_names(o.policies);
  check<ValueError>(o.clip_grad_norm >= 0, "TrainStep", "clip_grad_norm must be >= 0, got ", o.clip_grad_norm);
  check<ValueError>(o.clip_grad_agc >= 0, "TrainStep", "clip_grad_agc must be >= 0, got ", o.clip_grad_agc);
  check<ValueError>(o.clip_grad_value >= 0, "TrainStep", "clip_grad_value must be >= 0, got ", o.clip_grad_value);
  if (o.group) {
    check<ValueError>(!optimizer().needs_closure(), "TrainStep", optimizer().describe(),
                      " evaluates the loss itself, which ranks do not", Help{"train in one process, or with another optimizer"});
    check<ValueError>(o.graph != GraphMode::on || o.group->can_record(), "TrainStep",
                      "steps of ranks that exchange over the host are not recorded",
                      Help{"let them exchange over NCCL, or leave performance.cuda_graph at \"auto\""});
  }
  check<ValueError>(!optimizer().is_sharded() || o.group, "TrainStep", "ranks share the states of ", optimizer().describe(),
                    ", so they must train together, got no group", Help{"give the step their group"});
  if (!optimizer().needs_closure()) return;
  check<ValueError>(!scaler().is_enabled(), "TrainStep", optimizer().describe(),
                    " evaluates the loss several times a step, which a gradient scaler does not allow",
                    Help{"train in float32 or bfloat16"});
  check<ValueError>(o.accumulate_steps == 1 && !clips() && !o.grad_norm, "TrainStep", optimizer().describe(),
                    " evaluates the loss itself: it neither accumulates nor clips gradients",
                    Help{"leave out accumulate_steps, grad_norm and what clips"});
}

namespace {

// Returns whether a layer normalises over ranks.
bool syncs_over_ranks(Module& module) {
  bool syncs = false;
  module.apply([&](Module& m) {
    const auto* norm = dynamic_cast<const RunningNorm*>(&m);
    syncs |= norm && norm->syncs();
  });
  return syncs;
}

}  // namespace

BatchRows TrainStep::rows_of(const Tensor& input, const std::optional<BatchRows>& part) const {
  const int64_t ranks = options_.group ? options_.group->size() : 1, rank = options_.group ? options_.group->rank() : 0;
  if (part) {
    const bool right = part->first >= 0 && part->rows >= 0 && part->total > 0 && part->first + part->rows <= part->total &&
                       (part->rows == 0 || (input.defined() && input.dim() > 0 && input.size(0) == part->rows));
    check<ShapeError>(right, "TrainStep", "the part of a batch must be its input's rows, got rows [", part->first, ", ",
                      part->first + part->rows, ") of ", part->total, " and ",
                      input.defined() ? joined("input ", input.shape()) : "no input");
    check<ValueError>(ranks > 1 || part->rows == part->total, "TrainStep", "a part of a batch needs a group of ranks");
    check<ValueError>(part->total >= ranks || !syncs_over_ranks(module_), "TrainStep",
                      "batch normalisation over ranks needs a sample on each of ", ranks, ", got a batch of ", part->total,
                      Help{"drop_last leaves out a last batch that is small"});
    return *part;
  }
  const int64_t samples = input.dim() > 0 ? input.size(0) : 1;
  check<ShapeError>(samples > 0, "TrainStep", "a batch must have samples, got input ", input.shape());
  return {rank * samples, samples, ranks * samples};
}

void train_step::throw_wrong_inputs(const Module& module, size_t given) {
  fail<ValueError>("TrainStep", "the module must take the tensors before the target and give one, got ", given, " for ",
                   module.describe(),
                   Help{"give the step a function of the loss: step([&] { return loss_fn(net(a, b), target); })"});
}

}  // namespace halfstep
