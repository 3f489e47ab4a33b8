// SPDX-License-Identifier: Apache-2.0
// Optimizer: parameter groups, named states, and one fused pass over all parameters in each step.
//
// The pass updates the float32 master, the moments and (under autocast) the 16-bit shadow together. With a GradScaler it also
// unscales and clips, and does nothing if found_inf is set on the device: the host reads nothing. It skips parameters without a
// gradient.
#pragma once

#include <any>
#include <concepts>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "framework/backend/backend.h"
#include "framework/base/lifetime.h"
#include "framework/math/update_rules.h"
#include "framework/tensor/tensor.h"
#include "optim/gradients.h"
#include "optim/shards.h"

namespace halfstep {

struct ParamGroup {
  std::vector<Tensor> params;
  std::optional<double> lr = {};  // unset: the lr of the options
  std::optional<double> weight_decay = {};
  std::any options = {};  // of the optimizer's type, e.g. SGDOptions; replaces the shared options

  // Returns the options: group.as<AdamOptions>().betas[0] = 0.8. Throws ValueError if they have another type.
  template <class O>
  O& as() {
    O* const own = std::any_cast<O>(&options);
    check<ValueError>(own, "optimizer", "the options of the group are not of this kind");
    return *own;
  }
};

// A group's options by PyTorch's names: numbers (a flag is 0 or 1) or text.
using OptionValues = std::map<std::string, std::variant<std::vector<double>, std::string>>;

// Device scalars that the scaler passes to a step; undefined if absent.
struct AmpStep {
  Tensor found_inf;    // 0-dim f32: the step is skipped if it is not 0
  Tensor grad_scale;   // 0-dim f32: gradients are divided by it
  NormClip clip = {};  // of the gradients, which are clipped after that
};

// Neither copied nor moved, since schedules, averages and steps refer to it: several are in a std::deque or behind pointers.
class Optimizer {
 public:
  using Closure = std::function<Tensor()>;
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Makes one update. Calls the closure first, if there is one, with recording on, and returns its loss.
  virtual std::optional<Tensor> step(const Closure& closure = nullptr) = 0;
  // Returns whether step() reads checked_amp(); then a GradScaler does not read found_inf back. A user-written optimizer may return
  // false.
  virtual bool handles_amp() const { return false; }
  // Returns whether step() itself evaluates the loss, more than once: LBFGS.
  virtual bool needs_closure() const { return false; }
  virtual std::string describe() const = 0;  // "SGD(lr=0.1, momentum=0.9)"
  uint64_t id() const { return id_; }        // unique, even if an optimizer is constructed at this one's address

  void zero_grad();  // makes gradients undefined
  // Adds parameters, also between steps. Construct a TrainStep on a GPU afterwards.
  virtual void add_param_group(ParamGroup group);
  // Returns the groups, with all their values set. As in PyTorch, values written into one take effect with the next step, on a GPU
  // and in recorded steps too:
  //   for (ParamGroup& group : opt.param_groups()) group.lr = 0.01;
  // The learning rate and the weight decay are also in `options`; the one that was written counts. The next step throws ValueError
  // for a value that a constructor would refuse, and for changed `params` (use add_param_group). A schedule continues from a rate
  // that was written (Schedule::initial_for). Call this again after a step: while a schedule moves the rates on a GPU, a kept
  // reference shows the rates of the earlier call.
  std::span<ParamGroup> param_groups();
  std::span<const ParamGroup> param_groups() const;
  double lr(size_t group = 0) const;           // the current learning rate
  void set_lr(double lr);                      // of all groups
  void set_lr(double lr, size_t group);
  template <std::floating_point Group>
  void set_lr(double lr, Group) = delete;  // the arguments are in the wrong order
  // Returns the rate with which the group was constructed, or which was set before its first schedule: schedules are relative to
  // it.
  double initial_lr(size_t group) const;
  std::vector<Tensor> parameters() const;  // of all groups
  // Return the momentum, or beta1, that a schedule may move. Throw ValueError if the optimizer has none.
  double momentum(size_t group = 0) const;
  void set_momentum(double momentum, size_t group);
  template <std::floating_point Group>
  void set_momentum(double momentum, Group) = delete;
  bool has_momentum() const { return momentum_of(0) != nullptr; }

  // Returns a copy of all that a step depends on besides the parameters, with PyTorch's names. States are by parameter position:
  // "0.exp_avg", "0.step", "3.momentum_buffer". Options are by group: "param_groups.0.lr", ".betas", ".initial_lr" ..., and
  // ".size", the number of its parameters. "followers.average" has the kind of an average. Throws ValueError for a sharded
  // optimizer, which has only a part of it.
  std::map<std::string, Tensor> state_dict() const;
  // Returns the same, sharing the memory of the states, which the next step changes.
  std::map<std::string, Tensor> state_tensors() const;
  // Throws ValueError listing what does not fit; then nothing has changed. A state without options, as of an older halfstep,
  // leaves those of the groups unchanged.
  void load_state_dict(const std::map<std::string, Tensor>& state);

  // ---- sharding the states over ranks (optim/shards.h; ZeRO, stage 1)
  // Keeps from now on only this rank's part of the states; step() updates that part of the parameters, and all ranks then gather
  // the parameters. Call step() on all ranks together, with equal gradients on all of them, such as those of TrainStep and
  // DistributedDataParallel. Parameters, step counts and the followers' states stay whole on every rank; results equal those
  // without sharding bit for bit. Existing states are cut. `group` must outlive the steps. Does nothing for a group of one rank.
  // Throws ValueError for an optimizer that does not declare how its states are shared, such as LBFGS, and for one that is sharded
  // already.
  void shard(ProcessGroup& group, const ShardOptions& options = {});
  bool is_sharded() const { return shards_ != nullptr; }
  // Returns what state_tensors() would return without sharding: on rank `root`, with the shared states on the host; empty on the
  // others. All ranks call it together. It gathers one state at a time. An optimizer that is not sharded returns state_tensors()
  // on every rank. load_state_dict takes whole states, on every rank.
  std::map<std::string, Tensor> gathered_state_dict(int root = 0) const;

  // Returns how often load_state_dict has freed states, whose memory is then elsewhere.
  int64_t states_dropped() const { return states_dropped_; }

  // Checks and adopts what was written into the groups since the last call, and throws AmpError for gradients that a loss scale
  // multiplies, unless a GradScaler makes the step. Every step() begins with it, after its closure.
  void adopt_changes();
  const Lifetime& lifetime() const { return lifetime_; }
  // Returns the numbers that a recorded step has in its kernels: all options except those that it reads from device rates.
  virtual std::vector<double> recorded_options();

  // Returns the scalars that GradScaler has set for this step, after it has tested the gradients if nothing has yet. Gradients that
  // are to be clipped are then unscaled and clipped in memory, and no scalars for that are left.
  AmpStep& checked_amp();
  // Sets the result of checked_amp() until end_amp; for GradScaler. `test_gradients` writes amp.found_inf: checked_amp() calls it,
  // unless one pass updates all parameters, whose kernel then does this, and the work of `tail`.
  void begin_amp(AmpStep amp, std::function<void()> test_gradients, const math::StepTail& tail);
  struct RemainingWork {
    std::function<void()> test_gradients;  // null: done
    bool tail = false;
  };
  RemainingWork end_amp();  // returns the parts of the step that are still to be done
  // false: a step with a scaler leaves gradients multiplied by the scale, and so need not write them.
  void keep_unscaled_gradients(bool keep) { keeps_unscaled_ = keep; }
  bool keeps_unscaled_gradients() const { return keeps_unscaled_; }
  // An object that follows the parameters, such as an average of them: it is updated after each step, on the device. Its tensors
  // are states of the optimizer, so that checkpoints contain them. An optimizer that overrides step() calls run_followers() at its
  // end. Once the optimizer has been destroyed, it throws ValueError.
  class Follower {
   public:
    explicit Follower(Optimizer& optimizer) : optimizer_(optimizer) { optimizer.followers_.push_back(this); }
    virtual ~Follower() {
      if (Optimizer* const optimizer = optimizer_.find()) std::erase(optimizer->followers_, this);
    }
    Follower(const Follower&) = delete;
    Follower& operator=(const Follower&) = delete;
    virtual void stepped(const AmpStep& amp) = 0;  // follows a step, which may have been skipped: amp.found_inf
    virtual std::vector<std::string> state_names() const = 0;
    virtual std::string describe() const = 0;
    // Names the kind, for checks of loaded states: "EMA".
    virtual std::string kind() const { return describe(); }
    // While it holds other values in the parameters, steps and loading throw. own_value returns the value of parameter i then.
    virtual bool holds_parameters() const { return false; }
    virtual Tensor own_value(size_t) const { return {}; }
    virtual void group_added() {}  // called for the last group

   protected:
    Optimizer& optimizer() const { return optimizer_.get("average", "optimizer"); }
    // Returns a name that no other follower's state has: "average", "average_2".
    std::string free_name(const std::string& name) const;
    // Drops states of that name that a former follower left.
    void begin_states(const std::string& name);
    // Works as Optimizer::state. The names of numbers, which are [] f32, end in "step" or "count".
    Tensor& state(size_t param, const std::string& name, const Shape& shape, DType dtype) {
      return optimizer().state(param, name, shape, dtype);
    }
    const Tensor* find_state(size_t param, const std::string& name) const { return optimizer().find_state(param, name); }
    std::span<const ParamGroup> groups() const { return optimizer().groups(); }

   private:
    Watched<Optimizer> optimizer_;
  };

  // Returns the value of a parameter: its own if a follower temporarily holds another in it (WeightAverage::Scope).
  Tensor own_value(const Tensor& param) const;
  // Throws ValueError naming `where` while a follower holds other values in the parameters.
  void check_own_values(const char* where) const;

  // Makes kernels read rates from the device (optim/device_rates.h): f64 [groups], or [2 groups] with the momenta after the rates.
  // `sync_host` updates the host's rates before they are read or set. end_device_rates ends that, unless others are used by then.
  void use_device_rates(Tensor rates, std::function<void()> sync_host) {
    rates_ = std::move(rates);
    sync_host_ = std::move(sync_host);
  }
  void end_device_rates(const Tensor& rates) {
    if (rates_.defined() && rates_.same(rates)) use_device_rates(Tensor(), nullptr);
  }

 protected:
  Optimizer(std::vector<ParamGroup> groups, double lr);
  // Returns the groups without waiting for the device: their rates may be out of date.
  std::span<const ParamGroup> groups() const { return groups_; }
  ParamGroup& group(size_t i) { return groups_[i]; }
  // As adopt_changes(), whatever the gradients are.
  void adopt_options();
  // Throws AmpError for gradients that a loss scale multiplies, unless a GradScaler makes the step and gave the scale.
  void check_unscaled() const;
  // Adopts a group's options, after its rate.
  virtual void adopt(size_t) {}
  // Return and set all options of a group except its rates, for storing. set_option_values throws ValueError, before it changes
  // any, for a value that a constructor would refuse and for an unknown name.
  virtual OptionValues option_values(size_t group) const;
  virtual void set_option_values(size_t group, const OptionValues& values);
  // Points to the group's learning rate within its options; null if they have none.
  virtual double* lr_option(size_t) { return nullptr; }
  bool device_has_momentum() const { return rates_.defined() && rates_.numel() > int64_t(groups_.size()); }
  // Returns the named state of a parameter, made as zeros of `shape` on first use: then a skipped first step changes nothing.
  Tensor& state(size_t param, const std::string& name, const Shape& shape, DType dtype);
  const Tensor* find_state(size_t param, const std::string& name) const;  // null: there is none
  // Returns the parameters of `group` that have a gradient, as kernel views, with the named states, which it makes if they are
  // missing. number: name of the state for ParamUpdate::number; null: none. Appends the viewed tensors to `keep`, which must live
  // as long as the views.
  std::vector<ParamUpdate> updates(size_t group, const std::vector<std::string>& states, Tensors& keep,
                                   const char* number = nullptr);
  // Returns the settings for the kernel that updates `group`. Call it once for each group, after updates(). whole = false: the
  // step has several passes, and the caller checks gradients and finishes the step. clips = true: the kernel takes the gradients
  // themselves, and clips them too; else they are clipped in memory before, if the step clips.
  StepControl control(size_t group, bool whole = true, bool clips = false);
  Tensor device_lr(size_t group) const;      // 0-dim f32, for optimizers made of ops
  double last_known_lr(size_t group) const;  // for kernels; control(group).lr overrides it
  // Ends the step of a group: advances versions, declares shadows current, and unscales gradients that the kernels of a sharded
  // step have left scaled.
  void finish(size_t group);
  void run_followers();                      // runs the followers; call at the end of each step
  size_t first_param(size_t group) const { return first_param_[group]; }
  virtual const double* momentum_of(size_t) const { return nullptr; }
  static std::optional<Tensor> evaluate(const Closure& closure);  // computes its loss, with recording on; none without one
  // Returns the names of states that a stepped parameter of a group has; load_state_dict checks them. Empty: no check.
  virtual std::vector<std::string> state_names(size_t, const Tensor&) const { return {}; }
  // Returns the names of states that a parameter may have or lack, because the options that need them have changed meanwhile.
  virtual std::vector<std::string> late_state_names(size_t) const { return {}; }
  // Returns the name of a state that follows from the step count: state_dict() contains it for PyTorch, and loading ignores it.
  virtual const char* derived_name() const { return nullptr; }
  // Returns whether load_state_dict accepts a state without it, because a step computes it. A missing number, except the count,
  // becomes NaN.
  virtual bool may_lack(const std::string& name) const { return name == "step"; }
  virtual Tensor derived(size_t, const Tensor&) const { return {}; }
  // Returns whether a state is one number for a whole parameter, [] f32. All ranks keep those.
  virtual bool is_number(const std::string& name) const { return name.ends_with("step") || name.ends_with("count"); }
  // What ranks can share: nothing, single elements, or whole tensors.
  enum class Sharing : uint8_t { nothing, elements, tensors };
  virtual Sharing sharing() const { return Sharing::nothing; }
  // Returns whether this rank updates any element of a parameter; true without sharding.
  bool has_part(size_t param) const { return !shards_ || shards_->has(param); }
  // The form of a state: a number [] f32, or a tensor like the parameter, in f32 or, for an f64 parameter, in f64. Unset: unknown.
  struct StateLayout {
    Shape shape;
    DType dtype;
  };
  virtual std::optional<StateLayout> state_layout(const std::string& name, const Tensor& param) const;

 private:
  friend class DeviceRates;
  friend class Schedule;
  std::vector<std::vector<std::string>> all_state_names() const;
  std::map<std::string, Tensor> own_states() const;  // this rank's: shared states have the shape of its part
  void add_options(std::map<std::string, Tensor>& out) const;
  void load_options(const std::map<std::string, Tensor>& given);
  void load_states(const std::map<std::string, Tensor>& given);
  std::vector<std::map<std::string, Tensor>> checked_states(const std::map<std::string, Tensor>& given) const;
  bool has_stepped(const std::map<std::string, Tensor>& states) const;  // of one parameter
  bool is_follower_state(const std::string& state) const;
  bool is_shared(const std::string& state) const { return shards_ && !is_number(state) && !is_follower_state(state); }
  void unscale_all(size_t group) const;
  const AmpStep& tested_amp();  // as checked_amp(), but clips nothing
  void clip_in_memory();
  std::vector<ParamGroup> groups_;
  void append_group(ParamGroup group, bool one_of_several);
  void check_params() const;
  void put_lr(double lr, size_t group);  // sets the rate in all places that have it
  // Sets a rate for a schedule; it does not count as written. The first begin_schedule makes written rates the initial ones.
  void schedule_lr(double lr, size_t group);
  void begin_schedule();
  bool was_written(size_t group) const { return written_[group] || last_known_lr(group) != lr_[group]; }
  std::vector<Tensor> params_;           // of all groups
  std::vector<double> lr_, initial_lr_;  // lr_: as last adopted from the group
  std::vector<bool> written_;            // the user wrote the rate, and no schedule has seen it
  bool scheduled_ = false;               // a schedule was made
  uint64_t stepped_by_ = 0;              // id of the schedule that moved rates last; 0: none since one was made
  bool rates_loaded_ = false;            // the rates are of a loaded state, and no schedule has moved them since
  std::vector<size_t> first_param_;      // position of each group's first parameter
  std::vector<std::map<std::string, Tensor>> state_;
  AmpStep amp_;
  std::function<void()> test_gradients_;  // writes amp_.found_inf; null if that is up to date
  std::optional<math::StepTail> tail_;    // of the step, until a kernel takes it
  bool keeps_unscaled_ = true;
  int64_t states_dropped_ = 0;
  Tensor rates_;
  std::function<void()> sync_host_;
  std::vector<Follower*> followers_;
  std::shared_ptr<Shards> shards_;  // null: not sharded
  double default_lr_;
  uint64_t id_;
  Lifetime lifetime_;  // last
};

// An optimizer whose step is one rule of framework/math/update_rules.h, in one pass over all parameters of a group.
class FusedOptimizer : public Optimizer {
 public:
  std::optional<Tensor> step(const Closure& closure = nullptr) override;
  bool handles_amp() const override { return true; }

 protected:
  using Optimizer::Optimizer;
  virtual UpdateRule rule(size_t group, double lr) const = 0;
  virtual std::vector<std::string> states(size_t group) const = 0;  // names of the rule's states, in its order
  virtual const char* number() const { return nullptr; }            // name of the number that it keeps for a parameter, if any
  std::vector<std::string> state_names(size_t group, const Tensor& param) const override;
  bool is_number(const std::string& name) const override;
  Sharing sharing() const override { return Sharing::elements; }
};

}  // namespace halfstep
