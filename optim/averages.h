// SPDX-License-Identifier: Apache-2.0
// Averages of the weights, which often generalise better than the last weights, and Lookahead.
//
//   WeightAverage ema(opt, {.decay = 0.999});
//   for (...) opt.step();                     // the average follows, on the device; skipped steps do not count
//   {
//     const WeightAverage::Scope averaged(ema);   // the parameters hold the average
//     evaluate(net);
//   }
//
// They belong to an optimizer, and throw ValueError once it has been destroyed; its state_dict contains theirs, in the order in
// which they were made, and accepts only averages of the same kinds. Buffers, such as running statistics, are not averaged: after
// SWA recompute those of batch norms (update_bn, layers/feedforward/running_statistics.h). A batch norm that evaluates with
// statistics of the trained weights instead warns.
#pragma once

#include <string>
#include <vector>

#include "framework/base/guard.h"
#include "framework/base/options.h"
#include "framework/ops/reduce/averaged_weights.h"
#include "optim/optimizer.h"

namespace halfstep {

struct WeightAverageOptions {
  double decay = 0.999;   // average += (1 - decay) (parameter - average), starting at the parameter: an exponential average
  bool warm_up = false;   // the decay of update t (from 0) is at most (1 + t) / (10 + t), so that early weights are soon forgotten
  bool equal = false;     // takes the mean of all instead (SWA, Izmailov et al. 2018; PyTorch's AveragedModel)
  int64_t start = 0;      // steps before averaging begins
  int64_t every = 1;      // updates come after start + every applied steps, after start + 2 every, ...
  bool by_hand = false;   // only update() updates it, as PyTorch's update_parameters at the end of an epoch
  static const OptionList<WeightAverageOptions>& list();
};
class WeightAverage : public Optimizer::Follower {
 public:
  // Throws ValueError for options out of range.
  [[nodiscard]] explicit WeightAverage(Optimizer& optimizer, const WeightAverageOptions& options = {});
  ~WeightAverage() override { swap_out(); }
  void stepped(const AmpStep& amp) override;
  // Takes the parameters into the average now, whatever `start` and `every` are. Throws ValueError within a Scope.
  void update();
  std::vector<std::string> state_names() const override { return {name_, name_ + "_step", name_ + "_count"}; }
  std::string describe() const override;
  std::string kind() const override { return options_.equal ? "SWA" : "EMA"; }
  bool holds_parameters() const override { return !own_.empty(); }
  Tensor own_value(size_t i) const override { return i < own_.size() ? own_[i] : Tensor(); }

  // Returns the average of each parameter of the optimizer; undefined if there is none yet. Waits for the device.
  Tensors averages() const;
  // Copies the averages into the parameters.
  void copy_to_parameters();
  const Lifetime& lifetime() const { return lifetime_; }

  // Puts the averages, rounded to the parameters' dtypes, into the parameters while it lives, and then restores their own values.
  // The average does not change, nor does what save_run writes. Nested scopes of one optimizer, steps and load_state_dict within
  // the scope throw ValueError.
  class Scope : LocalGuard {
   public:
    [[nodiscard]] explicit Scope(WeightAverage& average)
        : average_(average), averaged_(average.swap_in() && average.options_.equal) {}
    ~Scope() {
      if (WeightAverage* const average = average_.find()) average->swap_out();
    }

   private:
    Watched<WeightAverage> average_;
    AveragedWeights averaged_;  // on for SWA: batch norm then warns of statistics of other weights
  };

 private:
  void follow(const math::AverageRule& rule, const StepControl& control, float* step);
  bool swap_in();  // puts the averages into the parameters; returns whether there was one
  void swap_out();
  WeightAverageOptions options_;
  std::string name_ = free_name("average");
  Tensors own_;        // the parameters' own values, while they hold averages
  Tensors swapped_;    // these parameters
  Lifetime lifetime_;  // last
};

// Options of Lookahead (Zhang et al. 2019): every k steps the slow weights move by alpha of the difference towards the parameters,
// and the parameters continue from there.
struct LookaheadOptions {
  int64_t k = 5;
  double alpha = 0.5;
  static const OptionList<LookaheadOptions>& list();
};
class Lookahead : public Optimizer::Follower {
 public:
  // Takes the current parameters as slow weights; those of a group that is added later, as they are then. Throws ValueError for
  // options out of range.
  [[nodiscard]] explicit Lookahead(Optimizer& optimizer, const LookaheadOptions& options = {});
  void stepped(const AmpStep& amp) override;
  void group_added() override { add_slow_weights(); }
  std::vector<std::string> state_names() const override { return {name_, name_ + "_step"}; }
  std::string describe() const override;
  std::string kind() const override { return "Lookahead"; }

 private:
  void add_slow_weights();
  LookaheadOptions options_;
  std::string name_ = free_name("slow");
};

}  // namespace halfstep
