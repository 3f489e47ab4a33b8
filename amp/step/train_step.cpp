// SPDX-License-Identifier: Apache-2.0
#include "amp/step/train_step.h"

#include <algorithm>

#include "amp/autocast/autocast.h"
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
  check<ValueError>(!options.amp || is_half(options.dtype), "TrainStep", "amp needs the dtype float16 or bfloat16, got ",
                    options.dtype);
  check<ValueError>(options.clip_grad_norm >= 0, "TrainStep", "clip_grad_norm must be >= 0, got ", options.clip_grad_norm);
  check<ValueError>(options.clip_grad_agc >= 0, "TrainStep", "clip_grad_agc must be >= 0, got ", options.clip_grad_agc);
  check<ValueError>(options.clip_grad_value >= 0, "TrainStep", "clip_grad_value must be >= 0, got ", options.clip_grad_value);
  if (options.group) {
    check<ValueError>(!optimizer.needs_closure(), "TrainStep", optimizer.describe(), " evaluates the loss itself, which ranks do not",
                      Help{"train in one process, or with another optimizer"});
    check<ValueError>(options.graph != GraphMode::on || options.group->can_record(), "TrainStep",
                      "steps of ranks that exchange over the host are not recorded",
                      Help{"let them exchange over NCCL, or leave performance.cuda_graph at \"auto\""});
    reducer_ = std::make_unique<GradientReducer>(optimizer.parameters(), *options.group, options.reducer);
    module.apply([&](Module& m) {
      const auto* norm = dynamic_cast<const RunningNorm*>(&m);
      syncs_ |= norm && norm->syncs();
    });
  }
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
  if (may_record && options.accumulate_steps == 1 && backend_for(options.device).can_record() &&
      (!options.group || options.group->can_record())) {
    const auto step = [this](const Tensor& x, const Tensor& y, const BatchRows& part, math::ResultRing* ring) {
      return eager(x, y, part, ring);
    };
    recorder_ = std::make_unique<StepRecorder>(step, module, optimizer, scaler, *rates_, options.device, options.graph, options.group,
                                               [this](int readiness, const BatchRows& part) { return agree(readiness, part); });
  }
}

StepResult TrainStep::operator()(const Tensor& input, const Tensor& target, const std::optional<BatchRows>& part) {
  const BatchRows rows = checked(input, part);
  if (!recorder_) return eager(input, target, rows, nullptr);
  StepResult result = (*recorder_)(input, target, rows);
  notice_ = 0;
  return result;
}

BatchRows TrainStep::checked(const Tensor& input, const std::optional<BatchRows>& part) const {
  const int64_t ranks = options_.group ? options_.group->size() : 1, rank = options_.group ? options_.group->rank() : 0;
  if (part) {
    const bool right = part->first >= 0 && part->rows >= 0 && part->total > 0 && part->first + part->rows <= part->total &&
                       (part->rows == 0 || (input.defined() && input.dim() > 0 && input.size(0) == part->rows));
    check<ShapeError>(right, "TrainStep", "the part of a batch must be its input's rows, got rows [", part->first, ", ",
                      part->first + part->rows, ") of ", part->total, " and ",
                      input.defined() ? joined("input ", input.shape()) : "no input");
    check<ValueError>(ranks > 1 || part->rows == part->total, "TrainStep", "a part of a batch needs a group of ranks");
    check<ValueError>(!syncs_ || part->total >= ranks, "TrainStep", "batch normalisation over ranks needs a sample on each of ", ranks,
                      ", got a batch of ", part->total, Help{"drop_last leaves out a last batch that is small"});
    return *part;
  }
  const int64_t samples = input.dim() > 0 ? input.size(0) : 1;
  check<ShapeError>(samples > 0, "TrainStep", "a batch must have samples, got input ", input.shape());
  return {rank * samples, samples, ranks * samples};
}

StepResult TrainStep::eager(const Tensor& input, const Tensor& target, const BatchRows& part, math::ResultRing* ring) {
  if (optimizer_.needs_closure()) return by_closure(input, target);
  const int64_t ranks = options_.group ? options_.group->size() : 1;
  if (pending_ == 0) {
    if (rates_) rates_->prepare();
    optimizer_.zero_grad();
    keep_buffers();
    first_ = (part.total + ranks - 1) / ranks;
    whole_ = part.total;
    samples_ = mine_ = 0;
    loss_sum_ = 0;
    random_ = default_generator().state();
  }
  if (reducer_ && pending_ + 1 == options_.accumulate_steps) reducer_->arm();

  StepResult result;
  if (part.rows > 0) {
    result = compute(input, target, part, ring != nullptr);
  } else if (scaler_.is_enabled()) {
    scaler_.seed(options_.device);  // the scale is there from the first step on, as on the other ranks
  }
  ++pending_;
  samples_ += part.total;
  mine_ += part.rows;
  if (pending_ < options_.accumulate_steps) return result;

  StepResult last = finish_window(ring, result.loss);
  if (options_.group) result.loss = last.loss;
  result.stepped = last.stepped;
  result.outcome = std::move(last.outcome);
  result.grad_norm = std::move(last.grad_norm);
  return result;
}

namespace {

// The default generator at the window's start for a later micro-batch of it; then where it was, or where that ended.
class AtWindow {
 public:
  AtWindow(bool later, const Generator::State& window) : later_(later), before_(default_generator().state()) {
    if (later_) default_generator().set_state(window);
  }
  ~AtWindow() {
    if (!later_) return;
    Generator::State now = default_generator().state();
    now.offset = std::max(now.offset, before_.offset);
    default_generator().set_state({before_.seed, now.offset});
  }
  AtWindow(const AtWindow&) = delete;

 private:
  bool later_;
  Generator::State before_;
};

}  // namespace

// Forward and backward of one micro-batch.
StepResult TrainStep::compute(const Tensor& input, const Tensor& target, const BatchRows& part, bool recording) {
  const int64_t ranks = options_.group ? options_.group->size() : 1;
  StepResult result;
  Tensor loss;
  const double weight = double(part.rows) / double(options_.accumulate_steps * ranks * first_);
  // Of the window's samples as one batch. One whose micro-batches grow needs more than it had reserved.
  std::optional<BatchRows> rows;
  const int64_t first = samples_ + part.first, expected_rows = options_.accumulate_steps * whole_;
  if (options_.group || options_.accumulate_steps > 1) rows = {first, part.rows, std::max(expected_rows, first + part.rows)};
  const DrawsOf draws(rows);
  const AtWindow at_window(pending_ > 0, random_);
  const GroupScope group(options_.group);
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
    const LowGradients low(options_.accumulate_steps == 1 && !clips() && !options_.group);
    scaler_.backward(loss, weight);
  }
  if (options_.group && !recording) {
    loss_sum_ += result.loss.item<double>() * double(part.rows);
    result.loss = Tensor();
  }
  return result;
}

// What the ranks must know of each other before a step that may be replayed: the least readiness of any of them, 0 where they would
// not compute the parts of one batch, which eager steps find. A replay has no other exchange over the host.
int TrainStep::agree(int readiness, const BatchRows& part) {
  const Generator::State random = default_generator().state();
  const std::vector<double> mine{double(readiness), double(part.rows), double(part.total), double(notice_), double(random.offset)};
  double least = readiness, samples = 0, position = 0;
  bool one_batch = true;
  notices_ = 0;
  for (const std::vector<double>& of : options_.group->gather(mine)) {
    least = std::min(least, of[0]);
    samples += of[1];
    one_batch = one_batch && of[2] == double(part.total);
    notices_ |= uint32_t(of[3]);
    position = std::max(position, of[4]);
  }
  default_generator().set_state({random.seed, uint64_t(position)});
  // All ranks come to the same answer, since all see the same numbers.
  return one_batch && samples == double(part.total) ? int(least) : 0;
}

// What the ranks must know of each other at the end of a window; its loss.
Tensor TrainStep::exchange() {
  ProcessGroup& group = *options_.group;
  if (!reducer_->armed()) reducer_->arm();
  reducer_->send_rest();
  const Generator::State random = default_generator().state();
  const std::vector<double> mine{loss_sum_, double(mine_), double(notice_), double(random.offset)};
  double loss = 0, samples = 0, position = 0;
  notices_ = 0;
  // After the gradients, which this therefore waits for too.
  for (const std::vector<double>& of : group.gather(mine)) {
    loss += of[0];
    samples += of[1];
    notices_ |= uint32_t(of[2]);
    position = std::max(position, of[3]);  // a rank without samples has drawn nothing
  }
  notice_ = 0;
  check<ValueError>(int64_t(samples) == samples_, "TrainStep", "the ranks computed ", samples, " samples of a window of ", samples_,
                    Help{"every rank must get its part of one and the same batch"});
  default_generator().set_state({random.seed, uint64_t(position)});
  reducer_->take();
  const Tensor out = Tensor::empty({}, {.dtype = DType::f32, .device = Device::cpu});
  *out.data<float>() = float(loss / samples);
  return out;
}

// The same on the device alone. The ranks have agreed on the rest before (agree).
Tensor TrainStep::exchange_recorded(const Tensor& loss) {
  const NoGrad off;
  reducer_->send_rest();
  const Tensor sum = loss.to(DType::f64) * double(mine_);
  const Ticket summed = options_.group->all_reduce({sum});
  reducer_->take_recorded();
  options_.group->wait(summed);
  return (sum / double(samples_)).to(DType::f32);
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

StepResult TrainStep::finish_window(math::ResultRing* ring, const Tensor& loss) {
  const LedgerPassScope pass(LedgerPass::update);
  StepResult result;
  const int64_t expected = options_.accumulate_steps * (options_.group ? options_.group->size() : 1) * first_;
  pending_ = 0;
  result.loss = !options_.group ? loss : ring ? exchange_recorded(loss) : exchange();
  math::StepTail tail;
  if (ring) {
    tail.ring = ring;
    tail.loss = result.loss.data();
    tail.loss_bytes = int32_t(size_of(result.loss.dtype()));
  }
  if (samples_ != expected) {
    NoGrad off;
    for (const Tensor& g : gradients_of(optimizer_.parameters())) g.mul_(double(expected) / double(samples_));
  }
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
