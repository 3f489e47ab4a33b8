#include "amp/step_recorder.h"

#include <chrono>

#include "amp/autocast.h"
#include "framework/autograd/grad_mode.h"
#include "framework/base/log.h"

namespace halfstep {
namespace {

using Clock = std::chrono::steady_clock;

bool alike(const Tensor& a, const Tensor& b) { return a.defined() && a.shape() == b.shape() && a.dtype() == b.dtype(); }

void append_training(const Module& m, std::vector<double>& out) {
  out.push_back(m.training());
  for (const auto& [name, child] : m.children()) append_training(*child, out);
}

void* shadow_data(const Tensor& p) {
  const Tensor shadow = autocast::shadow_of(p);
  return shadow.defined() ? shadow.data() : nullptr;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

StepRecorder::StepRecorder(Step step, Module& module, Optimizer& optimizer, GradScaler& scaler, DeviceRates& rates, Device device,
                           GraphMode mode)
    : step_(std::move(step)),
      module_(module),
      optimizer_(optimizer),
      scaler_(scaler),
      rates_(rates),
      backend_(backend_for(device)),
      device_(device),
      mode_(mode) {}

StepRecorder::~StepRecorder() { forget(); }

StepResult StepRecorder::operator()(const Tensor& input, const Tensor& target) {
  if (given_up_) return step_(input, target);
  if (recording_ && !still_true()) forget();
  if (!fits(input, target)) {
    if (recording_) {
      StepResult result = step_(input, target);
      for (Watched& w : watched_) w.version = w.tensor.version();  // which this step moved on, copies included
      return result;
    }
    warm_ = 0;
    input_ = input;
    target_ = target;
  }
  if (!recording_) {
    if (warm_ < kWarmup) return warm_up(input, target);
    if (!record(input, target)) return step_(input, target);
  }
  try {
    return replay(input, target);
  } catch (const RecordingError&) {  // the generator was seeded anew
    forget();
    return step_(input, target);
  }
}

bool StepRecorder::fits(const Tensor& input, const Tensor& target) const { return alike(input_, input) && alike(target_, target); }

StepResult StepRecorder::warm_up(const Tensor& input, const Tensor& target) {
  if (++warm_ < kWarmup || mode_ != GraphMode::automatic) return step_(input, target);
  backend_.synchronize();
  const auto begin = Clock::now();
  StepResult result = step_(input, target);
  const auto queued = Clock::now();
  backend_.synchronize();
  given_up_ = Clock::now() - begin > 3 * (queued - begin);
  if (given_up_) forget();
  return result;
}

bool StepRecorder::record(const Tensor& input, const Tensor& target) {
  const NoGrad off;
  {
    const MemoryScope memory(MemoryTag::data);
    input_ = Tensor::empty(input.shape(), {.dtype = input.dtype(), .device = device_});
    target_ = Tensor::empty(target.shape(), {.dtype = target.dtype(), .device = device_});
  }
  optimizer_.zero_grad();
  rates_.prepare();
  bool begun = false;
  try {
    backend_.begin_recording(default_generator());
    begun = true;
    const EnableGrad on;
    recorded_ = step_(input_, target_);
    recording_ = backend_.end_recording();
  } catch (const RecordingError& e) {
    abandon(begun);
    logging::info("training steps run eagerly: " + first_line(e.what()));
    given_up_ = true;
    return false;
  } catch (...) {
    abandon(begun);
    throw;
  }
  for (const auto& [name, buffer] : module_.named_buffers())
    watched_.push_back({buffer, {}, buffer.data(), nullptr, 0, false, false});
  for (const Tensor& p : module_.parameters()) {
    watched_.push_back({p, p.raw_grad(), p.data(), shadow_data(p), p.version(), p.requires_grad(), p.raw_grad().defined()});
  }
  settings_ = settings();
  return true;
}

std::vector<double> StepRecorder::settings() const {
  std::vector<double> out{scaler_.get_growth_factor(),        scaler_.get_backoff_factor(), double(scaler_.get_growth_interval()),
                          double(scaler_.is_enabled()),       double(deterministic()),      double(allow_tf32()),
                          double(optimizer_.states_dropped())};
  for (const ParamGroup& group : optimizer_.groups()) out.push_back(group.weight_decay.value_or(-1));
  append_training(module_, out);
  return out;
}

bool StepRecorder::still_true() const {
  for (const Watched& w : watched_) {
    if (w.tensor.data() != w.data) return false;
    if (w.stepped && w.shadow != shadow_data(w.tensor)) return false;
    if (w.tensor.requires_grad() != w.requires_grad || (w.stepped && w.tensor.version() != w.version)) return false;
  }
  return settings() == settings_;
}

StepResult StepRecorder::replay(const Tensor& input, const Tensor& target) {
  const NoGrad off;
  const auto place = [&](const Tensor& from, const Tensor& to) {
    if (from.device().is_cpu() && from.is_contiguous()) {
      backend_.copy_from_host(from.data(), to.data(), from.nbytes());
    } else {
      to.copy_(from);
    }
  };
  place(input, input_);
  place(target, target_);
  rates_.prepare();
  recording_->replay();
  rates_.advanced();
  for (Watched& w : watched_) {
    if (!w.stepped) continue;
    w.tensor.bump_version();
    if (w.shadow) autocast::shadow_is_current(w.tensor);
    w.version = w.tensor.version();
    if (!w.tensor.raw_grad().defined() || !w.tensor.raw_grad().same(w.grad)) w.tensor.set_grad(w.grad);
  }
  StepResult result = recorded_;
  const MemoryScope memory(MemoryTag::workspace);
  result.loss = recorded_.loss.clone();
  const Tensor& found = recorded_.outcome.found_inf();
  if (found.defined()) result.outcome = StepOutcome(found.clone());
  return result;
}

// What the recording would have written was not: gradients, and 16-bit copies that were cast in it.
void StepRecorder::abandon(bool begun) {
  if (begun) backend_.abandon_recording();
  optimizer_.zero_grad();
  scaler_.abandon();
  for (const Tensor& p : module_.parameters()) autocast::drop_shadow(p);
  forget();
}

void StepRecorder::forget() {
  recording_.reset();
  recorded_ = {};
  watched_.clear();
  input_ = target_ = Tensor();
  warm_ = 0;
}

}  // namespace halfstep
