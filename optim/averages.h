// SPDX-License-Identifier: Apache-2.0
// Weights that go along with those that are trained: averages, which are often better than the last weights, and Lookahead.
//
//   WeightAverage ema(opt, {.decay = 0.999});
//   for (...) opt.step();                     // and the average follows, on the device, steps that were applied only
//   {
//     const WeightAverage::Scope averaged(ema);   // the parameters hold the average
//     evaluate(net);
//   }
//
// They belong to an optimizer, which must outlive them; its state_dict holds theirs, in the order in which they were made, and
// takes only averages of the same kinds. Buffers, such as running statistics, are not averaged: after SWA recompute those of batch
// norms (update_bn, layers/feedforward/running_statistics.h). A batch norm that evaluates by those of the trained weights meanwhile
// warns.
#pragma once

#include <string>
#include <vector>

#include "framework/ops/reduce/averaged_weights.h"
#include "optim/optimizer.h"

namespace halfstep {

struct WeightAverageOptions {
  double decay = 0.999;   // average += (1 - decay) (parameter - average), beginning with the parameter: an exponential average
  bool warm_up = false;   // the decay of update t (from 0) is at most (1 + t) / (10 + t), so that early weights are soon forgotten
  bool equal = false;     // the mean of all instead (SWA, Izmailov et al. 2018; PyTorch's AveragedModel)
  int64_t start = 0;      // steps before the first update
  int64_t every = 1;      // steps from one update to the next
};
class WeightAverage : public Optimizer::Follower {
 public:
  // Throws ValueError for options out of range.
  [[nodiscard]] explicit WeightAverage(Optimizer& optimizer, const WeightAverageOptions& options = {});
  void stepped(const AmpStep& amp) override;
  std::vector<std::string> state_names() const override { return {name_, name_ + "_step", name_ + "_count"}; }
  std::string describe() const override;
  std::string kind() const override { return options_.equal ? "SWA" : "EMA"; }
  bool holds_parameters() const override { return !own_.empty(); }
  Tensor own_value(size_t i) const override { return i < own_.size() ? own_[i] : Tensor(); }

  // The average of each parameter of the optimizer; undefined where there is none yet. Waits for the device.
  Tensors averages() const;
  // Puts the averages into the parameters for good.
  void copy_to_parameters();

  // While it lives, the parameters hold the averages, rounded to their dtypes, where there are any; then they have their own values
  // again. Neither the average nor what save_run writes of the run changes. Throws ValueError within another scope of the
  // optimizer; so do a step and load_state_dict within this one.
  class Scope {
   public:
    [[nodiscard]] explicit Scope(WeightAverage& average)
        : average_(average), averaged_(average.put_in() && average.options_.equal) {}
    ~Scope() { average_.take_out(); }
    Scope(const Scope&) = delete;

   private:
    WeightAverage& average_;
    AveragedWeights averaged_;
  };

 private:
  bool put_in();  // was there any?
  void take_out();
  WeightAverageOptions options_;
  std::string name_ = free_name("average");
  Tensors own_;  // the parameters' own values, where an average is in their place
};

// Every k steps the slow weights move by alpha of the difference towards the fast weights, which then continue from them (Zhang et
// al. 2019).
struct LookaheadOptions {
  int64_t k = 5;
  double alpha = 0.5;
};
class Lookahead : public Optimizer::Follower {
 public:
  // The parameters of now are the first slow weights; of a group that is added later, those that it has then. Throws ValueError for
  // options out of range.
  [[nodiscard]] explicit Lookahead(Optimizer& optimizer, const LookaheadOptions& options = {});
  void stepped(const AmpStep& amp) override;
  void group_added() override { begin(); }
  std::vector<std::string> state_names() const override { return {name_, name_ + "_step"}; }
  std::string describe() const override;
  std::string kind() const override { return "Lookahead"; }

 private:
  void begin();
  LookaheadOptions options_;
  std::string name_ = free_name("slow");
};

}  // namespace halfstep
