// SPDX-License-Identifier: Apache-2.0
// Data-parallel training in a loop that you write yourself:
//
//   const std::unique_ptr<ProcessGroup> group = open_process_group();
//   DistributedDataParallel net(model, *group);        // rank 0's weights, on every rank
//   ...
//   loss(net(input), target).backward();               // gradients are the mean over ranks when it returns
//   optimizer.step();
//
// All ranks must have the same number of samples, because gradients are averaged with equal weights as in PyTorch, and must run the
// same number of backwards. TrainStep (amp/step/train_step.h) has neither condition.
#pragma once

#include <memory>

#include "framework/base/guard.h"
#include "framework/parallel/gradient_reducer.h"
#include "layers/module/module.h"

namespace halfstep {

class DistributedDataParallel : public Module {
 public:
  // Copies rank 0's weights and buffers into the module, in place. `group` must outlive it. The state_dict prefixes the keys of
  // `module` with "module.".
  DistributedDataParallel(std::shared_ptr<Module> module, ProcessGroup& group, const ReducerOptions& options = {});

  // Runs forward on this rank's rows, with the random numbers of the ranks' batches as one. The next backward that reaches a
  // parameter exchanges the gradients, also accumulated ones.
  Tensor forward(const Tensor& x) override;
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  std::string describe() const override { return "DistributedDataParallel"; }

  // Keeps backward from exchanging gradients while it lives: around all but the last micro-batch of a step.
  class NoSync : LocalGuard {
   public:
    [[nodiscard]] explicit NoSync(DistributedDataParallel& model) : model_(model), saved_(model.sync_) { model_.sync_ = false; }
    ~NoSync() { model_.sync_ = saved_; }

   private:
    DistributedDataParallel& model_;
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

// Averages floating buffers, such as running statistics, over all ranks, and takes the maximum of others. Call it before one rank
// saves or evaluates for all. samples: the number of samples in this rank's buffers, which is its weight in the mean; if all ranks
// give 0, their weights are equal.
void average_buffers(Module& module, ProcessGroup& group, double samples = 1);

// Copies weights and buffers of one rank to all.
void broadcast_state(Module& module, ProcessGroup& group, int root = 0);

}  // namespace halfstep
