// SPDX-License-Identifier: Apache-2.0
#include "amp/step/step_recorder.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "amp/autocast/autocast.h"
#include "amp/step/module_settings.h"
#include "framework/autograd/grad_mode.h"
#include "framework/autograd/scaled_backward.h"
#include "framework/backend/dnn.h"
#include "framework/backend/observe.h"
#include "framework/base/log.h"

namespace halfstep {
namespace {

using Clock = std::chrono::steady_clock;

bool alike(const Tensor& a, const Tensor& b) { return a.defined() && a.shape() == b.shape() && a.dtype() == b.dtype(); }

void* shadow_data(const Tensor& p) {
  const Tensor shadow = autocast::shadow_of(p);
  return shadow.defined() ? shadow.view().data : nullptr;
}

// Returns whether a hook waits for the tensor's gradient.
bool has_hooks(const Tensor& t) {
  const auto& meta = t.impl()->autograd;
  return meta && meta->hooks && !meta->hooks->empty();
}
bool any_hooks(const std::vector<Tensor>& tensors) { return std::any_of(tensors.begin(), tensors.end(), has_hooks); }

// A recorded step, and what the module was when it was recorded.
class StepRecording final : public Recording {
 public:
  StepRecording(std::unique_ptr<Recording> work, const Module& module) : work_(std::move(work)) { settings_.note(module); }
  void replay() override { work_->replay(); }
  bool read_input(size_t i, const void* data) override { return work_->read_input(i, data); }
  bool is_of(const Module& module) { return !settings_.have_changed(module); }

 private:
  std::unique_ptr<Recording> work_;
  ModuleSettings settings_;
};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

StepRecorder::StepRecorder(EagerStep step, Module& module, Optimizer& optimizer, GradScaler& scaler, DeviceRates& rates,
                           Device device, GraphMode mode, ProcessGroup* group, Agree agree)
    : step_(std::move(step)),
      module_(module),
      optimizer_(optimizer),
      scaler_(scaler),
      rates_(rates),
      backend_(backend_for(device)),
      device_(device),
      mode_(mode),
      group_(group),
      agree_(std::move(agree)),
      decided_(mode != GraphMode::automatic),
      times_{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()} {}

StepRecorder::~StepRecorder() { discard(); }

StepResult StepRecorder::operator()(const Tensor& input, const Tensor& target, const BatchRows& part) {
  const auto eager = [&] { return step_(input, target, part, nullptr); };
  if (given_up_) return eager();
  const int ready = group_ ? agree_(readiness(input, target, part), part) : readiness(input, target, part);
  if (ready == kEager) return eager();
  if (ready == kChanged) discard();
  if (ready != kReady) {
    if (recording_) {
      StepResult result = eager();
      for (WatchedTensor& w : watched_) w.version = w.tensor.version();  // which this step has advanced, copies included
      return result;
    }
    warm_up_steps_ = timed_eager_ = 0;
    input_ = input;
    target_ = target;
    part_ = part;
  }
  if (!recording_) {
    if (warm_up_steps_ < kWarmup) return ++warm_up_steps_, eager();
    if (!decided_ && timed_eager_ < kTimed) return time_step(timed_eager_, times_.eager, eager);
    if (!record(input, target, part)) return eager();
    replays_ = 0;
  }
  try {
    const auto replayed = [&] { return replay(input, target); };
    if (decided_) return replayed();
    if (replays_ == 0) return ++replays_, replayed();  // the first replay also brings the graph to the device
    StepResult result = time_step(replays_, times_.replayed, replayed);
    decided_ = replays_ > kTimed;
    if (decided_ && group_) {
      for (const std::vector<double>& of_rank : group_->gather(std::vector<double>{times_.eager, times_.replayed}))
        times_ = {std::max(times_.eager, of_rank[0]), std::max(times_.replayed, of_rank[1])};
    }
    given_up_ = decided_ && !times_.replaying_pays();
    if (given_up_) discard();
    return result;
  } catch (const RecordingError&) {  // the generator was seeded again
    discard();
    return eager();
  }
}

StepRecorder::Readiness StepRecorder::readiness(const Tensor& input, const Tensor& target, const BatchRows& part) const {
  const auto watches_hooks = [&] {
    if (!recording_) return any_hooks(module_.parameters());
    return std::any_of(watched_.begin(), watched_.end(), [](const WatchedTensor& w) { return has_hooks(w.tensor); });
  };
  if (module_.any_hooks() || watches_hooks()) return kEager;  // hooks read values on the host
  if (mode_ == GraphMode::automatic && !recording_ && (!module_.is_recordable() || module_.any_recomputes())) return kEager;
  if (recording_ && !is_valid()) return kChanged;
  if (Observing::any()) return kOther;  // a replay has no calls to observe
  const bool fits = part.rows > 0 && part == part_ && alike(input_, input) && alike(target_, target);
  return fits ? kReady : kOther;
}

// Runs a step from an idle device to an idle device, counts it in `steps`, and lowers `shortest` to its seconds.
StepResult StepRecorder::time_step(int& steps, double& shortest, const std::function<StepResult()>& step) {
  backend_.synchronize();
  const auto begin = Clock::now();
  StepResult result = step();
  backend_.synchronize();
  shortest = std::min(shortest, std::chrono::duration<double>(Clock::now() - begin).count());
  ++steps;
  return result;
}

// Records a step, and watches what must not change while it is replayed. Returns false if that failed: a step must run eagerly.
bool StepRecorder::record(const Tensor& input, const Tensor& target, const BatchRows& part) {
  const NoGrad off;
  {
    const MemoryScope memory(MemoryTag::data);
    input_ = Tensor::empty(input.shape(), {.dtype = input.dtype(), .device = device_});
    target_ = Tensor::empty(target.shape(), {.dtype = target.dtype(), .device = device_});
    ring_ = Tensor::empty({int64_t(sizeof(math::ResultRing) / sizeof(int64_t))}, {.dtype = DType::i64, .device = device_});
  }
  optimizer_.zero_grad();
  rates_.prepare();
  seed_ = default_generator().state().seed;
  bool begun = false;
  std::string problem;
  bool unprepared = false;  // an eager step prepares it
  try {
    const TensorView inputs[] = {input_.view(), target_.view()};
    backend_.begin_recording(default_generator(), inputs);
    begun = true;
    {
      const EnableGrad on;
      const auto alias = [](const Tensor& t) { return t.alias(t.shape(), t.strides()); };
      recorded_ = step_(alias(input_), alias(target_), part, static_cast<math::ResultRing*>(ring_.data_ptr()));
    }
    begun = false;
    recording_ = backend_.end_recording();
    for (size_t i = 0; i < 2; ++i) keeps_[i] = (i == 0 ? input_ : target_).storage().use_count() > 1;
  } catch (const NotPrepared& e) {
    unprepared = true;
    problem = first_line(e.what());
  } catch (const RecordingError& e) { problem = first_line(e.what()); } catch (...) {
    abandon(begun);
    throw;
  }
  if (!problem.empty()) abandon(begun);
  if (group_) {
    const bool own = !problem.empty();
    gather_problems(problem, unprepared);
    if (!problem.empty() && !own) abandon(false);
  }
  if (!problem.empty()) {
    given_up_ = !unprepared || ++unprepared_ == kPreparations;
    if (!unprepared && (!group_ || group_->rank() == 0)) logging::info("training steps run eagerly: " + problem);
    return false;
  }
  watch_tensors();
  settings_ = settings();
  recording_ = std::make_unique<StepRecording>(std::move(recording_), module_);
  return true;
}

// Exchanges the ranks' problems, so that all ranks do the same. A problem that no eager step solves wins over one that it does.
void StepRecorder::gather_problems(std::string& problem, bool& unprepared) const {
  const std::string later = "later ", never = "never ";  // of one length
  const std::vector<std::string> all = group_->gather((unprepared ? later : never) + problem);
  for (size_t r = 0; r < all.size(); ++r) {
    const std::string of_rank = all[r].substr(later.size());
    if (of_rank.empty() || (!problem.empty() && !unprepared)) continue;
    unprepared = all[r].starts_with(later);
    problem = joined("rank ", r, ": ", of_rank);
  }
}

void StepRecorder::watch_tensors() {
  for (const auto& [name, buffer] : module_.named_buffers())
    watched_.push_back({buffer, {}, buffer.view().data, nullptr, 0, false, false});
  for (const Tensor& p : module_.parameters()) {
    watched_.push_back({p, p.raw_grad(), p.view().data, shadow_data(p), p.version(), p.requires_grad(), p.raw_grad().defined()});
  }
}

std::vector<double> StepRecorder::settings() const {
  std::vector<double> out{scaler_.get_growth_factor(),  scaler_.get_backoff_factor(), double(scaler_.get_growth_interval()),
                          double(scaler_.is_enabled()), double(allow_tf32()),         double(optimizer_.states_dropped())};
  const DnnOptions dnn = dnn_options();  // they choose the library's algorithms
  out.insert(out.end(), {double(dnn.benchmark), double(dnn.workspace)});
  const std::vector<double> options = optimizer_.recorded_options();
  out.insert(out.end(), options.begin(), options.end());
  return out;
}

bool StepRecorder::is_valid() const {
  if (group_ && default_generator().state().seed != seed_) return false;  // a single process notices it when it replays
  for (const WatchedTensor& w : watched_) {
    if (w.tensor.const_data_ptr() != w.data) return false;
    if (w.stepped && w.shadow != shadow_data(w.tensor)) return false;
    if (w.tensor.requires_grad() != w.requires_grad || (w.stepped && w.tensor.version() != w.version)) return false;
  }
  return settings() == settings_ && static_cast<StepRecording&>(*recording_).is_of(module_);
}

void StepRecorder::copy_input(size_t i, const Tensor& from, const Tensor& to) {
  if (from.device() == device_ && from.is_contiguous() && !keeps_[i] && recording_->read_input(i, from.data_ptr())) return;
  recording_->read_input(i, to.data_ptr());
  if (from.device().is_cpu() && from.is_contiguous())
    backend_.copy_from_host(from.data_ptr(), to.data_ptr(), from.nbytes());
  else
    to.copy_(from);
}

void StepRecorder::allocate_ring() {
  const MemoryScope memory(MemoryTag::workspace);
  losses_ = Tensor::empty({kRing}, {.dtype = recorded_.loss.dtype(), .device = device_});
  found_infs_ = Tensor::empty({kRing}, {.device = device_});
  const math::ResultRing ring{losses_.data_ptr(), found_infs_.data_ptr<float>(), 0};
  backend_.copy_from_host(&ring, ring_.data_ptr(), sizeof ring);
  used_slots_ = 0;
}

StepResult StepRecorder::replay(const Tensor& input, const Tensor& target) {
  const NoGrad off;
  copy_input(0, input, input_);
  copy_input(1, target, target_);
  if (!losses_.defined() || used_slots_ == kRing) allocate_ring();
  rates_.prepare();
  recording_->replay();
  if (group_) group_->replayed();
  rates_.note_step();
  for (WatchedTensor& w : watched_) {
    if (!w.stepped) continue;
    w.tensor.bump_version();
    if (w.shadow) autocast::mark_shadow_current(w.tensor);
    w.version = w.tensor.version();
    if (!w.tensor.raw_grad().defined() || !w.tensor.raw_grad().same(w.grad)) move_grad(w.tensor, w.grad);
  }
  StepResult result = recorded_;
  result.loss = losses_.alias({}, {}, used_slots_);
  result.denominator = recorded_.denominator.clone();
  if (recorded_.outcome.found_inf().defined()) result.outcome = StepOutcome(found_infs_.alias({}, {}, used_slots_));
  ++used_slots_;
  return result;
}

// Discards what the recording did not compute: gradients, and 16-bit copies that were cast in it.
void StepRecorder::abandon(bool begun) {
  if (begun) backend_.abandon_recording();
  optimizer_.zero_grad();
  scaler_.abandon();
  for (const Tensor& p : module_.parameters()) autocast::drop_shadow(p);
  discard();
}

void StepRecorder::discard() {
  recording_.reset();
  recorded_ = {};
  watched_.clear();
  input_ = target_ = ring_ = losses_ = found_infs_ = Tensor();
  warm_up_steps_ = timed_eager_ = 0;
}

}  // namespace halfstep
