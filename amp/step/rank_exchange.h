// SPDX-License-Identifier: Apache-2.0
// Exchanges of the ranks in a training step: gradients, the loss, the number of samples, random states and notices.
//
// Every rank computes its part of each batch, and the step is that of the whole batch: gradients are summed over the ranks in a
// window's last backward, before clipping and the scaler's check, whose results are then the same on every rank. N ranks give bit
// for bit the results of one process that accumulates N micro-batches, one for each rank's part. A rank whose part is empty joins
// the exchange without computing.
//
// Steps can be recorded if the group can record (over NCCL). An eager step of ranks waits for the device; a replayed one does not.
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

  void open() { loss_sum_ = 0, reducer_.open(); }        // begins a window
  void arm() { reducer_.arm(); }                         // call before its last backward, whose gradients are summed
  void add_loss(double loss, const Denominator& denominator) {  // of a micro-batch
    if (denominator.value() != 0) loss_sum_ += loss * denominator.value();
  }
  // Ends a window: sums the gradients, passes the loss's denominator to the window, exchanges notices, and moves the default
  // generator to the furthest position of any rank. Returns the loss over all ranks. Throws ValueError if the ranks disagree about
  // its samples or their size.
  Tensor finish(AccumulationWindow& window);

  // ---- for a step that may be replayed, which otherwise exchanges nothing over the host
  // Call before the step. Returns the least readiness of all ranks; 0 if the ranks' parts are not parts of one batch, which eager
  // steps report. Exchanges notices and generator positions, as finish().
  int agree(int readiness, const BatchRows& part);
  // Replaces finish(), on the device alone. `loss`: of this rank's samples.
  Tensor finish_recorded(AccumulationWindow& window, const Tensor& loss);

  // Sends bits to the other ranks at the end of the window; notices() returns the bits that any rank sent with the last one.
  void notify(uint32_t bits) { notice_ = bits; }
  uint32_t notices() const { return notices_; }

 private:
  ProcessGroup& group_;
  GradientReducer reducer_;
  bool planned_;
  double loss_sum_ = 0;   // sum over this rank's micro-batches in the window of loss times denominator
  uint32_t notice_ = 0;   // bits to send
  uint32_t notices_ = 0;  // bits that any rank sent last
};

}  // namespace halfstep
