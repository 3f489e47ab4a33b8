// SPDX-License-Identifier: Apache-2.0
// What the ranks of a training step exchange: gradients, the loss, the number of samples, random states and notices.
//
// Every rank computes its part of each batch, and the step is that of the whole batch: gradients are summed over the ranks in a
// window's last backward, before clipping and the scaler's test, which then find the same on every rank. N ranks give the very bits
// of one process that accumulates N micro-batches, each of which is what one rank had. A rank whose part is empty takes part in the
// exchange without computing.
//
// Steps can be recorded where the group can record (over NCCL). An eager step of ranks waits for the device, a replayed one does
// not.
#pragma once

#include <cstdint>
#include <vector>

#include "amp/step/accumulation_window.h"
#include "framework/parallel/gradient_reducer.h"

namespace halfstep {

class RankExchange {
 public:
  // planned: on Device::meta, where the loss has no value.
  RankExchange(const std::vector<Tensor>& parameters, ProcessGroup& group, const ReducerOptions& options, bool planned)
      : group_(group), reducer_(parameters, group, options), planned_(planned) {}

  void open() { loss_sum_ = 0, reducer_.open(); }  // a window begins
  void arm() { reducer_.arm(); }     // before its last backward, whose gradients are summed
  void add_loss(double loss, const Denominator& over) {  // of a micro-batch
    if (over.value() != 0) loss_sum_ += loss * over.value();
  }
  // Ends a window; its loss on all ranks, whose denominator goes into the window. Throws ValueError where the ranks do not
  // agree about its samples, or about the size of one.
  Tensor finish(AccumulationWindow& window);

  // ---- for a step that may be replayed, which has no other exchange over the host.
  // Before it: the least readiness of any rank; 0 where the ranks would not compute the parts of one batch, which eager steps
  // report.
  int agree(int readiness, const BatchRows& part);
  // In place of finish(), on the device alone. `loss`: of this rank's samples.
  Tensor finish_recorded(AccumulationWindow& window, const Tensor& loss);

  // Bits for the other ranks, sent at the end of the window, and those that any rank sent with the last one.
  void notify(uint32_t bits) { notice_ = bits; }
  uint32_t notices() const { return notices_; }

 private:
  ProcessGroup& group_;
  GradientReducer reducer_;
  bool planned_;
  double loss_sum_ = 0;  // of this rank's micro-batches in the window, each loss times its denominator
  uint32_t notice_ = 0, notices_ = 0;
};

}  // namespace halfstep
