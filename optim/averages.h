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
// They belong to an optimizer, which must outlive them; its state_dict holds theirs. Buffers, such as running statistics, are not
// averaged: after SWA recompute those of batch norms (update_bn, layers/running_statistics.h).
#pragma once

#include <string>
#include <vector>

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
  std::vector<std::string> state_names() const override { return {"average", "average_step", "average_count"}; }
  std::string describe() const override;

  // The average of each parameter of the optimizer; undefined where there is none yet. Waits for the device.
  Tensors averages() const;
  // Puts the averages into the parameters for good.
  void copy_to_parameters();

  // While it lives, the parameters hold the averages, where there are any; then they have their own values again.
  class Scope {
   public:
    [[nodiscard]] explicit Scope(WeightAverage& average) : average_(average) { average.exchange(); }
    ~Scope() { average_.exchange(); }
    Scope(const Scope&) = delete;

   private:
    WeightAverage& average_;
  };

 private:
  void exchange();
  WeightAverageOptions options_;
};

// Every k steps the slow weights move by alpha of the difference towards the fast weights, which then continue from them (Zhang et
// al. 2019).
struct LookaheadOptions {
  int64_t k = 5;
  double alpha = 0.5;
};
class Lookahead : public Optimizer::Follower {
 public:
  // The parameters of now are the first slow weights. Throws ValueError for options out of range.
  [[nodiscard]] explicit Lookahead(Optimizer& optimizer, const LookaheadOptions& options = {});
  void stepped(const AmpStep& amp) override;
  std::vector<std::string> state_names() const override { return {"slow", "slow_step"}; }
  std::string describe() const override;

 private:
  LookaheadOptions options_;
};

}  // namespace halfstep
