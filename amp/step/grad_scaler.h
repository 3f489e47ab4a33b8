// SPDX-License-Identifier: Apache-2.0
// GradScaler: keeps float16 gradients in range by scaling the loss, and skips steps whose gradients overflow.
//
//   scaler.scale(loss).backward();
//   clip_grad_norm_(scaler.unscale_(opt), 1.0);  // unscale_ only to clip or inspect
//   StepOutcome outcome = scaler.step(opt);     // skips parameters and states if a gradient is not finite
//   scaler.update();                            // once an iteration, last
//   schedule.step(outcome.applied());           // moves only with applied steps
//
// The scale, the growth tracker and found_inf live on the device; update never reads them back, and step only if the optimizer does
// not handle them itself (Optimizer::handles_amp). outcome.applied() and get_scale() do. One scaler serves
// any number of losses and optimizers.
// State machine per optimizer: READY -unscale_-> UNSCALED -step-> STEPPED, READY -step-> STEPPED; update makes all READY.
// Anything else throws AmpError. Semantics: PyTorch's torch.amp.GradScaler; differences in docs/amp.md.
#pragma once

#include <concepts>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "framework/base/lifetime.h"
#include "framework/base/options.h"
#include "framework/math/training.h"
#include "framework/tensor/tensor.h"
#include "optim/gradients.h"

namespace halfstep {

class Optimizer;

// The outcome of a step. Cheap to copy; reading it waits for the device.
class StepOutcome {
 public:
  StepOutcome() = default;                                   // applied, without a scaler
  explicit StepOutcome(Tensor found_inf) : found_inf_(std::move(found_inf)) {}
  bool applied() const;                                      // false: a gradient was not finite; on meta always true
  bool overflow() const { return !applied(); }
  const std::optional<Tensor>& value() const;             // result of the optimizer's step; nothing if skipped
  const Tensor& found_inf() const { return found_inf_; }  // 0-dim f32 on the device; undefined without a scaler

 private:
  friend class GradScaler;
  Tensor found_inf_;
  std::optional<Tensor> value_;
};

struct GradScalerOptions {
  double init_scale = 65536.0;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;  // clean updates before the scale grows; below 2^31
  bool enabled = true;             // false: scale() returns its argument, step() is opt.step(), update() does nothing
  double min_scale = 0;            // lower bound of the scale
  double max_scale = std::numeric_limits<float>::max();  // upper bound, except for a larger init_scale
  bool fixed = false;  // the scale never moves; with init_scale 1 the scaler only skips steps whose gradients are not finite
  static const OptionList<GradScalerOptions>& list();  // of the growth; a config has other bounds and defaults for the rest
};

class GradScaler {
 public:
  using StateDict = std::map<std::string, double>;  // scale, growth_factor, backoff_factor, growth_interval, _growth_tracker
  using Closure = std::function<Tensor()>;

  explicit GradScaler(const GradScalerOptions& options = {});
  // Takes a device as torch.amp.GradScaler("cuda") does, and ignores it: the state is on the losses' device.
  explicit GradScaler(Device, const GradScalerOptions& options = {}) : GradScaler(options) {}
  ~GradScaler();
  GradScaler(GradScaler&&) noexcept;
  GradScaler& operator=(GradScaler&&) noexcept;
  const Lifetime& lifetime() const { return lifetime_; }

  Tensor scale(const Tensor& loss);            // differentiable; the first call places the state on loss.device()
  Tensors scale(const Tensors& losses);
  void backward(const Tensor& loss, double weight = 1);     // scale(loss * weight).backward(), without computing that product
  void backward(const Tensor& loss, const Tensor& weight);  // 0-dim, on the loss's device
  // Returns the first gradient of backward: weight * scale, or weight if disabled; 0-dim.
  Tensor seed(Device device, double weight = 1);
  Gradients unscale_(Optimizer& optimizer);                                  // throws for float16 gradients (keep f32 weights)
  StepOutcome step(Optimizer& optimizer, const Closure& closure = nullptr);  // if enabled, throws for float16 gradients, a closure
  // Returns the norm of the gradients as unscale_ would leave them, 0-dim f32 on the device, and changes none. The same read finds
  // whether they are finite, so step() does not check them again: change no gradient in between.
  Tensor grad_norm(Optimizer& optimizer);
  // Runs step() and update(), and then `tail`, whose part for the scale must be empty. If the optimizer is one pass over all
  // parameters, that pass's kernel does all of it. If other optimizers were stepped since the last update, it calls step() and
  // then update(). `skip`, for a disabled scaler: 0-dim f32 on the device; the step is skipped if it is not 0. `clip`, for an
  // optimizer that handles_amp(), with the norm of grad_norm(): the update takes clipped gradients, and need not store them.
  StepOutcome finish(Optimizer& optimizer, math::StepTail tail = {}, const Tensor& skip = {}, const NormClip& clip = {});
  void update(std::optional<double> new_scale = {});
  template <std::same_as<bool> Scale>
  void update(Scale) = delete;           // a bool would become a scale of 1 or 0
  void update(const Tensor& new_scale);  // one element, without grad; copied

  void abandon();  // after a failed iteration: forgets unscale_ and step since the last update

  double get_scale() const;                    // waits for the device; 1 when disabled
  int64_t get_growth_tracker() const;
  double get_growth_factor() const;
  void set_growth_factor(double v);
  double get_backoff_factor() const;
  void set_backoff_factor(double v);
  int64_t get_growth_interval() const;
  void set_growth_interval(int64_t v);
  template <std::floating_point Interval>
  void set_growth_interval(Interval) = delete;
  bool is_enabled() const;
  double get_min_scale() const;
  bool is_fixed() const;  // enabled, and the scale never moves

  StateDict state_dict() const;                  // empty if disabled or fixed; waits for the device
  void load_state_dict(const StateDict& state);  // does nothing if disabled or fixed

 private:
  struct Impl;
  Impl& impl() const;  // throws AmpError if this was moved from
  StepOutcome step_with_tail(Optimizer& optimizer, const math::StepTail& tail, const NormClip& clip, bool& tail_pending);
  std::unique_ptr<Impl> impl_;
  Lifetime lifetime_;  // last
};

}  // namespace halfstep
