// SPDX-License-Identifier: Apache-2.0
// Data-parallel training in a loop that you write yourself:
//
//   const std::unique_ptr<ProcessGroup> group = open_process_group();
//   DistributedDataParallel net(model, *group);        // rank 0's weights, on every rank
//   ...
//   loss(net(input), target).backward();               // gradients are the mean over ranks when it returns
//   optimizer.step();
//
// Differences from TrainStep (amp/step/train_step.h), which needs none of this: every rank must give as many samples, since
// gradients are averaged with equal weights as in PyTorch; and every rank runs as many backwards as the others.
#pragma once

#include <memory>

#include "framework/parallel/gradient_reducer.h"
#include "layers/module/module.h"

namespace halfstep {

class DistributedDataParallel : public Module {
 public:
  // Takes over weights and buffers of rank 0, in place. `group` must outlive it. state_dict has the keys of `module` below
  // "module.".
  DistributedDataParallel(std::shared_ptr<Module> module, ProcessGroup& group, const ReducerOptions& options = {});

  // Forward of this rank's rows: the random numbers are those of the ranks' batches as one. The next backward that reaches a
  // parameter exchanges the gradients, also of an accumulated sum.
  Tensor forward(const Tensor& x) override;
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  std::string describe() const override { return "DistributedDataParallel"; }

  // While it lives, backward sums up on this rank alone: around all but the last micro-batch of a step.
  class NoSync {
   public:
    [[nodiscard]] explicit NoSync(DistributedDataParallel& of) : of_(of), saved_(of.sync_) { of_.sync_ = false; }
    ~NoSync() { of_.sync_ = saved_; }
    NoSync(const NoSync&) = delete;

   private:
    DistributedDataParallel& of_;
    bool saved_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

 private:
  class Exchange;
  Part<Module> module_;
  ProcessGroup& group_;
  bool sync_ = true;
  std::shared_ptr<Exchange> exchange_;
};

// Floating buffers of all ranks, such as running statistics, become their mean, others their maximum: ranks do this before one
// of them saves or evaluates for all. samples: how many this rank's buffers are made of, its weight in the mean, as parts of a
// batch may be of several sizes; where all give 0, ranks count alike.
void average_buffers(Module& module, ProcessGroup& group, double samples = 1);

// Weights and buffers of one rank on all of them.
void broadcast_state(Module& module, ProcessGroup& group, int root = 0);

}  // namespace halfstep
