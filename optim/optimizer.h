// SPDX-License-Identifier: Apache-2.0
// Optimizer: parameter groups, named state, and one fused pass over all parameters per step.
//
// The pass updates the float32 master, the moments and (under autocast) the 16-bit shadow together. With a GradScaler it also
// unscales, and does nothing when found_inf is set on the device: no host read. Parameters without a gradient are left alone.
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
#include "framework/math/update_rules.h"
#include "framework/tensor/tensor.h"
#include "optim/shards.h"

namespace halfstep {

struct ParamGroup {
  std::vector<Tensor> params;
  std::optional<double> lr = {};            // unset: that of the options
  std::optional<double> weight_decay = {};
  std::any options = {};  // of the optimizer's own kind, e.g. SGDOptions, in place of those that all groups share

  // The options, as group.as<AdamOptions>().betas[0] = 0.8. Throws ValueError if they are of another kind.
  template <class O>
  O& as() {
    O* const own = std::any_cast<O>(&options);
    check<ValueError>(own, "optimizer", "the options of the group are not of this kind");
    return *own;
  }
};

// A group's options by PyTorch's names: numbers (a flag is 0 or 1) or a text.
using OptionValues = std::map<std::string, std::variant<std::vector<double>, std::string>>;

// What the scaler hands a step: device scalars, undefined when absent.
struct AmpStep {
  Tensor found_inf;   // 0-dim f32: nonzero skips
  Tensor grad_scale;  // 0-dim f32: gradients are divided by it
};

class Optimizer {
 public:
  using Closure = std::function<Tensor()>;
  virtual ~Optimizer() = default;

  // One update. With a closure: calls it (with recording on) for the loss first and returns the loss.
  virtual std::optional<Tensor> step(const Closure& closure = nullptr) = 0;
  // True when step honours amp(); then a GradScaler does not read found_inf back. User-written optimizers may leave it false.
  virtual bool handles_amp() const { return false; }
  // True when step() evaluates the loss itself, more than once: LBFGS.
  virtual bool needs_closure() const { return false; }
  virtual std::string describe() const = 0;   // "SGD(lr=0.1, momentum=0.9)"
  uint64_t id() const { return id_; }         // no other optimizer has it, also when one is made where this one was

  void zero_grad();  // sets gradients to undefined
  // More parameters, also between steps. A TrainStep on a GPU must be made afterwards.
  virtual void add_param_group(ParamGroup group);
  // The groups, with all their values set. As in PyTorch, what is written into one counts from the next step on, on a GPU and in
  // recorded steps too:
  //   for (ParamGroup& group : opt.param_groups()) group.lr = 0.01;
  // The learning rate and the weight decay are also in `options`; the one that was written counts. The next step throws ValueError
  // for a value that a constructor would refuse, and for other `params` (add_param_group adds some). A schedule continues from a
  // rate that was written (Schedule::initial_for). Ask for the groups again after a step: while a schedule moves the rates on a
  // GPU, a reference that was kept shows those of when it was taken.
  std::span<ParamGroup> param_groups();
  std::span<const ParamGroup> param_groups() const;
  double lr(size_t group = 0) const;           // the current learning rate
  void set_lr(double lr);                      // of all groups
  void set_lr(double lr, size_t group);
  template <std::floating_point Group>
  void set_lr(double lr, Group) = delete;  // the arguments are the other way round
  // The rate that the group was built with, or that was set before its first schedule was made: schedules are relative to it.
  double initial_lr(size_t group) const;
  std::vector<Tensor> parameters() const;      // of all groups
  // The momentum, or beta1, that a schedule may move. Throw ValueError where the optimizer has none.
  double momentum(size_t group = 0) const;
  void set_momentum(double momentum, size_t group);
  template <std::floating_point Group>
  void set_momentum(double momentum, Group) = delete;
  bool has_momentum() const { return momentum_of(0) != nullptr; }

  // A copy of all that a step depends on besides the parameters, with PyTorch's names. States are by parameter position:
  // "0.exp_avg", "0.step", "3.momentum_buffer". Options are by group: "param_groups.0.lr", ".betas", ".initial_lr" ..., and
  // ".size", the number of its parameters. "followers.average" names the kind of an average. Throws ValueError for an optimizer
  // that is sharded, which has only a part of it.
  std::map<std::string, Tensor> state_dict() const;
  // The same, sharing the memory of the states, which the next step changes.
  std::map<std::string, Tensor> state_tensors() const;
  // Throws ValueError listing what does not fit, and then nothing has changed. A state without options, as of an older halfstep,
  // leaves those of the groups.
  void load_state_dict(const std::map<std::string, Tensor>& state);

  // ---- ranks that share the states (optim/shards.h; ZeRO, stage 1)
  // From now on this rank keeps the states of its part of the parameters only, and step() updates that part; at its end all ranks
  // gather the parameters. So step() is called on all ranks together, with gradients that are the same on all of them, as those of
  // TrainStep and DistributedDataParallel are. Parameters, counts of steps and what followers keep are whole on every rank; each
  // bit is that of an optimizer that is not sharded. States that are there are cut. `group` must outlive the steps. Does nothing
  // for a group of one rank. Throws ValueError for an optimizer that does not say how its states are shared, such as LBFGS, and
  // for one that is sharded already.
  void shard(ProcessGroup& group, const ShardOptions& options = {});
  bool is_sharded() const { return shards_ != nullptr; }
  // What state_tensors() would give without sharding: on rank `root`, with the shared states on the host; empty on the others. All
  // ranks call it together. It gathers one state at a time. An optimizer that is not sharded gives state_tensors() on every rank.
  // load_state_dict takes whole states, on every rank.
  std::map<std::string, Tensor> gathered_state_dict(int root = 0) const;

  // How often load_state_dict has freed state, so that its memory is not where it was.
  int64_t states_dropped() const { return states_dropped_; }

  // Checks what was written into the groups since the last call, and takes it over. Every step() begins with it.
  void adopt_changes();
  // The numbers that a recorded step has in its kernels: all options but those that it reads from device rates.
  virtual std::vector<double> recorded_options();

  AmpStep& amp();  // set by GradScaler around step
  // For GradScaler: sets the value that amp() returns until end_amp. `check` writes amp.found_inf; it is called when somebody asks
  // for amp(), or left to the kernel of the step, as `tail` is, where one pass takes all parameters.
  void begin_amp(AmpStep amp, std::function<void()> check, const math::StepTail& tail);
  struct Left {
    std::function<void()> check;  // null: done
    bool tail = false;
  };
  Left end_amp();  // the parts of the step that are still to be done
  // false: a step with a scaler leaves gradients multiplied by the scale, which saves writing them.
  void keep_unscaled_gradients(bool keep) { keeps_unscaled_ = keep; }
  bool keeps_unscaled_gradients() const { return keeps_unscaled_; }
  // What goes along with the parameters, such as an average of them: it has its turn after each step, on the device, and heeds
  // found_inf itself. Its tensors are states of the optimizer, so that checkpoints carry them. An optimizer that overrides step()
  // calls followed() at its end. The optimizer must outlive it.
  class Follower {
   public:
    explicit Follower(Optimizer& optimizer) : optimizer_(optimizer) { optimizer.followers_.push_back(this); }
    virtual ~Follower() { std::erase(optimizer_.followers_, this); }
    Follower(const Follower&) = delete;
    virtual void stepped(const AmpStep& amp) = 0;
    virtual std::vector<std::string> state_names() const = 0;
    virtual std::string describe() const = 0;
    // What a state of another kind must not be taken for: "EMA".
    virtual std::string kind() const { return describe(); }
    // While it has put something else into the parameters, no step is taken and no state loaded. The value of parameter i then.
    virtual bool holds_parameters() const { return false; }
    virtual Tensor own_value(size_t) const { return {}; }
    virtual void group_added() {}  // to the optimizer, as its last one

   protected:
    Optimizer& optimizer() const { return optimizer_; }
    // A name for a state that no other follower of the optimizer has: "average", "average_2".
    std::string free_name(const std::string& name) const;
    // Drops the states of that name that a follower before has left behind.
    void begin_states(const std::string& name);
    // As Optimizer::state. The names of numbers, which are [] f32, end in "step" or "count".
    Tensor& state(size_t param, const std::string& name, const Shape& shape, DType dtype) {
      return optimizer_.state(param, name, shape, dtype);
    }
    const Tensor* find_state(size_t param, const std::string& name) const { return optimizer_.find_state(param, name); }
    std::span<const ParamGroup> groups() const { return optimizer_.groups(); }

   private:
    Optimizer& optimizer_;
  };

  // The value of a parameter: its own where a follower has put another into it for the time being (WeightAverage::Scope).
  Tensor own_value(const Tensor& param) const;
  // Throws ValueError naming `where` while a follower has put other values into the parameters.
  void check_own_values(const char* where) const;

  // Rates that live on the device (optim/device_rates.h): kernels read rates[group] (f64), and the momentum behind them where there
  // is room for it; `settle` brings the host's up to date before they are read or set. Undefined and null end that.
  void use_device_rates(Tensor rates, std::function<void()> settle) {
    rates_ = std::move(rates);
    settle_ = std::move(settle);
  }

 protected:
  Optimizer(std::vector<ParamGroup> groups, double lr);
  // The groups without waiting for the device: their rates may be behind its own.
  std::span<const ParamGroup> groups() const { return groups_; }
  ParamGroup& group(size_t i) { return groups_[i]; }
  // A group's part of adopt_changes; its rate was taken over before.
  virtual void adopt(size_t) {}
  // All options of a group but its rates, to be stored, and back. set_option_values throws ValueError, before it changes any, for a
  // value that a constructor would refuse and for a name that it does not know.
  virtual OptionValues option_values(size_t group) const;
  virtual void set_option_values(size_t group, const OptionValues& values);
  // Where else a group has its learning rate.
  virtual double* lr_option(size_t) { return nullptr; }
  bool device_has_momentum() const { return rates_.defined() && rates_.numel() > int64_t(groups_.size()); }
  // The named state of a parameter, made as zeros of `shape` on first use. Zero-initialised so that a skipped first step leaves
  // it clean.
  Tensor& state(size_t param, const std::string& name, const Shape& shape, DType dtype);
  const Tensor* find_state(size_t param, const std::string& name) const;  // null: there is none
  // Parameters of `group` that have a gradient, as kernel views, with the named states. Keeps every tensor it views alive in
  // `keep`.
  std::vector<ParamUpdate> updates(size_t group, const std::vector<std::string>& states, Tensors& keep,
                                   const char* number = nullptr);
  // Settings for the kernel that updates `group`. Call it once for each group, after updates(). whole = false: for a step of
  // several passes, in which the caller checks gradients and finishes the step.
  StepControl control(size_t group, bool whole = true);
  Tensor device_lr(size_t group) const;  // 0-dim f32, for optimizers made of ops
  double last_known_lr(size_t group) const;  // for kernels, which control(group).lr overrides
  void finish(size_t group);  // bumps versions, declares shadows current
  void followed();            // once a step, at its end: runs the followers
  size_t first_param(size_t group) const { return first_param_[group]; }
  virtual const double* momentum_of(size_t) const { return nullptr; }
  static std::optional<Tensor> evaluate(const Closure& closure);  // the closure's loss, with recording on; nothing without one
  // The state that a parameter of a group holds once it was stepped; load_state_dict holds a state to it. Empty: anything goes.
  virtual std::vector<std::string> state_names(size_t, const Tensor&) const { return {}; }
  // States that a parameter may have besides, or lack, since the options that ask for them have changed on the way.
  virtual std::vector<std::string> late_state_names(size_t) const { return {}; }
  // A state of a parameter that follows from its count of steps: in state_dict() for PyTorch, and ignored when it is loaded.
  virtual const char* derived_name() const { return nullptr; }
  // A state that load_state_dict does not ask for: a step computes it where it is missing. A number, but the count, is NaN then.
  virtual bool may_lack(const std::string& name) const { return name == "step"; }
  virtual Tensor derived(size_t, const Tensor&) const { return {}; }
  // Is a state one number for a whole parameter, [] f32? Those are kept by all ranks.
  virtual bool is_number(const std::string& name) const { return name.ends_with("step") || name.ends_with("count"); }
  // What ranks can share (shard): states of single elements, or those of whole tensors.
  enum class Sharing : uint8_t { nothing, elements, tensors };
  virtual Sharing sharing() const { return Sharing::nothing; }
  // Does this rank update any element of a parameter? True without sharding.
  bool has_part(size_t param) const { return !shards_ || shards_->has(param); }
  // How a state of `param` looks: a number is [] f32, all else is as large as the parameter, in f32 or, of an f64 one, in f64.
  // Nothing: it is not known.
  struct StateLayout {
    Shape shape;
    DType dtype;
  };
  virtual std::optional<StateLayout> state_layout(const std::string& name, const Tensor& param) const;

 private:
  friend class DeviceRates;
  friend class Schedule;
  std::vector<std::vector<std::string>> all_state_names() const;
  std::map<std::string, Tensor> own_states() const;  // of this rank: states that are shared have the shape of its part
  void add_options(std::map<std::string, Tensor>& out) const;
  void load_options(const std::map<std::string, Tensor>& given);
  void load_states(const std::map<std::string, Tensor>& given);
  bool follows(const std::string& state) const;          // is it a follower's?
  bool is_shared(const std::string& state) const { return shards_ && !is_number(state) && !follows(state); }
  void unscale_all(size_t group) const;
  std::vector<ParamGroup> groups_;
  void place(ParamGroup group, bool one_of_several);
  void check_params() const;
  void put_lr(double lr, size_t group);
  // For schedules: a rate that the user did not write. begin_schedule makes initial rates of those that were.
  void schedule_lr(double lr, size_t group);
  void begin_schedule();
  bool was_written(size_t group) const { return written_[group] || last_known_lr(group) != lr_[group]; }
  std::vector<Tensor> params_;           // of all groups
  std::vector<double> lr_, initial_lr_;  // lr_: as last taken over from the group
  std::vector<bool> written_;            // the user wrote the rate, and no schedule has seen it
  bool scheduled_ = false;               // a schedule was made
  uint64_t stepped_by_ = 0;              // the schedule that moved rates last; 0: none since one was made
  std::vector<size_t> first_param_;  // position of each group's first parameter
  std::vector<std::map<std::string, Tensor>> state_;
  AmpStep amp_;
  std::function<void()> check_;           // writes amp_.found_inf; null when that is true already
  std::optional<math::StepTail> tail_;  // of the step, until a kernel takes it
  bool keeps_unscaled_ = true;
  int64_t states_dropped_ = 0;
  Tensor rates_;
  std::function<void()> settle_;
  std::vector<Follower*> followers_;
  std::shared_ptr<Shards> shards_;  // null: not sharded
  double default_lr_;
  uint64_t id_;
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
  virtual const char* number() const { return nullptr; }             // name of the number that it keeps of a parameter, if any
  std::vector<std::string> state_names(size_t group, const Tensor& param) const override;
  bool is_number(const std::string& name) const override;
  Sharing sharing() const override { return Sharing::elements; }
};

}  // namespace halfstep
