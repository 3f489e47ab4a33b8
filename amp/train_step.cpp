#include "amp/train_step.h"

#include "amp/autocast.h"
#include "framework/autograd/grad_mode.h"
#include "framework/backend/ledger.h"
#include "framework/ops/loss/loss_seed.h"
#include "framework/ops/ops.h"
#include "optim/clip.h"
#include "optim/gradients.h"

namespace halfstep {
namespace {

// Spares a step the writing of unscaled gradients, and only this one, also when it throws.
struct ScaledGradients {
  explicit ScaledGradients(Optimizer& o) : optimizer(o) { optimizer.keep_unscaled_gradients(false); }
  ~ScaledGradients() { optimizer.keep_unscaled_gradients(true); }
  ScaledGradients(const ScaledGradients&) = delete;
  Optimizer& optimizer;
};

}  // namespace

TrainStep::TrainStep(Module& module, const Loss& loss, Optimizer& optimizer, GradScaler& scaler, Schedule* schedule,
                     const TrainStepOptions& options)
    : module_(module), loss_(loss), optimizer_(optimizer), scaler_(scaler), schedule_(schedule), options_(options) {
  check<ValueError>(options.accumulate_steps >= 1, "TrainStep", "accumulate_steps must be >= 1, got ", options.accumulate_steps);
  check<ValueError>(options.clip_grad_norm >= 0, "TrainStep", "clip_grad_norm must be >= 0, got ", options.clip_grad_norm);
  check<ValueError>(options.clip_grad_agc >= 0, "TrainStep", "clip_grad_agc must be >= 0, got ", options.clip_grad_agc);
  check<ValueError>(options.clip_grad_value >= 0, "TrainStep", "clip_grad_value must be >= 0, got ", options.clip_grad_value);
  if (optimizer.needs_closure()) {
    check<ValueError>(!scaler.is_enabled(), "TrainStep", optimizer.describe(),
                      " evaluates the loss several times a step, which a "
                      "gradient scaler does not allow",
                      Help{"train in float32 or bfloat16"});
    check<ValueError>(options.accumulate_steps == 1 && !clips(), "TrainStep", optimizer.describe(),
                      " evaluates the loss itself: it neither accumulates nor clips gradients",
                      Help{"leave out accumulate_steps, grad_norm and what clips"});
    return;
  }
  // An optimizer of the user's that reads found_inf back waits for the device anyway.
  if (!options.device.is_cuda() || !optimizer.handles_amp()) return;
  rates_ = std::make_unique<DeviceRates>(optimizer, schedule, options.device);
  const bool may_record =
      options.graph == GraphMode::on || (options.graph == GraphMode::automatic && module.is_recordable() && loss.is_recordable());
  if (may_record && options.accumulate_steps == 1 && backend_for(options.device).can_record()) {
    recorder_ = std::make_unique<StepRecorder>(
        [this](const Tensor& x, const Tensor& y, math::ResultRing* ring) { return eager(x, y, ring); }, module, optimizer, scaler,
        *rates_, options.device, options.graph);
  }
}

StepResult TrainStep::operator()(const Tensor& input, const Tensor& target) {
  const bool records = recorder_ && !module_.any_hooks();  // hooks decide on the host
  return records ? (*recorder_)(input, target) : eager(input, target, nullptr);
}

StepResult TrainStep::eager(const Tensor& input, const Tensor& target, math::ResultRing* ring) {
  const int64_t samples = input.dim() > 0 ? input.size(0) : 1;
  check<ShapeError>(samples > 0, "TrainStep", "a batch must have samples, got input ", input.shape());
  if (optimizer_.needs_closure()) return by_closure(input, target);
  if (pending_ == 0) {
    if (rates_) rates_->prepare();
    optimizer_.zero_grad();
    keep_buffers();
    first_ = samples;
    samples_ = 0;
  }

  StepResult result;
  Tensor loss;
  const double weight = double(samples) / double(options_.accumulate_steps * first_);
  {
    const LossSeed expected(weight == 1 && input.device() == options_.device ? scaler_.seed(options_.device) : Tensor());
    const Autocast region(options_.device, options_.dtype, options_.amp);
    const Tensor output = module_(input);
    loss = loss_(output, target);
    result.output = output.detach();
  }
  check<ShapeError>(loss.numel() == 1, "TrainStep", "the loss must be one number, got shape ", loss.shape(),
                    Help{"use the loss with reduction mean"});
  result.loss = loss.detach().reshape({});
  {
    // Half the memory and traffic, but only where nobody computes with the gradients before the optimizer does.
    const LowGradients low(options_.accumulate_steps == 1 && !clips());
    scaler_.backward(loss, weight);
  }
  ++pending_;
  samples_ += samples;
  if (pending_ < options_.accumulate_steps) return result;

  math::StepTail tail;
  if (ring) {
    tail.ring = ring;
    tail.loss = result.loss.data();
    tail.loss_bytes = int32_t(size_of(result.loss.dtype()));
  }
  StepResult last = finish_window(tail);
  result.stepped = last.stepped;
  result.outcome = std::move(last.outcome);
  result.grad_norm = std::move(last.grad_norm);
  return result;
}

StepResult TrainStep::by_closure(const Tensor& input, const Tensor& target) {
  StepResult result;
  const auto closure = [&] {
    optimizer_.zero_grad();
    Tensor loss;
    {
      const Autocast region(options_.device, options_.dtype, options_.amp);
      const Tensor output = module_(input);
      loss = loss_(output, target);
      if (!result.output.defined()) result.output = output.detach();
    }
    loss.backward();
    return loss;
  };
  result.loss = optimizer_.step(closure)->detach().reshape({});
  result.stepped = true;
  if (schedule_) schedule_->step();
  return result;
}

bool TrainStep::clips() const {
  return options_.clip_grad_norm > 0 || options_.clip_grad_value > 0 || options_.clip_grad_agc > 0 || options_.grad_norm;
}

void TrainStep::keep_buffers() {
  if (!scaler_.is_enabled()) return;  // every step is applied
  if (!buffers_) {
    buffers_.emplace();
    for (const NamedTensor& b : module_.named_buffers()) buffers_->push_back({b.tensor});
  }
  const NoGrad off;
  const MemoryScope tag(MemoryTag::workspace);
  for (Buffer& b : *buffers_) {
    b.before = b.moves ? b.tensor.detach().clone() : Tensor();
    b.version = b.tensor.version();
  }
}

void TrainStep::settle_buffers(const Tensor& found_inf) {
  if (!buffers_) return;
  const NoGrad off;
  const MemoryScope tag(MemoryTag::workspace);
  for (Buffer& b : *buffers_) {
    b.moves = b.tensor.version() != b.version;
    if (b.moves && b.before.defined() && found_inf.defined()) b.tensor.copy_(where(found_inf.ne(0), b.before, b.tensor.detach()));
    b.before = Tensor();
  }
}

StepResult TrainStep::flush() { return pending_ > 0 ? finish_window() : StepResult{}; }

StepResult TrainStep::finish_window(math::StepTail tail) {
  const LedgerPassScope pass(LedgerPass::update);
  const int64_t expected = options_.accumulate_steps * first_;
  pending_ = 0;
  if (samples_ != expected) {
    NoGrad off;
    for (const Tensor& g : gradients_of(optimizer_.parameters())) g.mul_(double(expected) / double(samples_));
  }
  StepResult result;
  if (clips()) {
    scaler_.unscale_(optimizer_);
    if (options_.clip_grad_agc > 0) clip_grad_agc_(optimizer_.parameters(), options_.clip_grad_agc);
    if (options_.clip_grad_value > 0) clip_grad_value_(optimizer_.parameters(), options_.clip_grad_value);
    if (options_.clip_grad_norm > 0)
      result.grad_norm = clip_grad_norm_(optimizer_.parameters(), options_.clip_grad_norm);
    else if (options_.grad_norm)
      result.grad_norm = grad_norm(optimizer_.parameters());
  }
  result.stepped = true;
  {
    const ScaledGradients leave(optimizer_);
    if (rates_) rates_->add_to(tail);
    result.outcome = scaler_.finish(optimizer_, tail);
  }
  settle_buffers(result.outcome.found_inf());
  if (rates_)
    rates_->advanced();
  else if (schedule_)
    schedule_->step(result.outcome.applied());
  return result;
}

}  // namespace halfstep
