// SPDX-License-Identifier: Apache-2.0
// Agreement of a run's ranks: on signals, and on actions that are due by rank 0's clock. Each step carries the notices of all
// ranks.
#pragma once

#include <cstdint>

#include "amp/step/train_step.h"
#include "framework/comm/process_group.h"

namespace halfstep::app {

// Bits of notices for actions that are due by the clock.
enum class Due : uint32_t { log = 4, evaluation = 8, checkpoint = 16 };

class RankAgreement {
 public:
  explicit RankAgreement(ProcessGroup* group) : group_(group) {}  // null: one process

  bool has_ranks() const { return group_ != nullptr; }
  int stop_requested() const;  // the signal, once all ranks know it; 0: none
  void on_start();             // adopts a signal from before the first step
  void forget() { agreed_ = 0; }
  // Gives the step this rank's notices: its signal, and on rank 0 what is due, as bits of Due.
  void notify(TrainStep& step, uint32_t due);
  void take(const TrainStep& step);  // reads all ranks' notices from a step that ended a window
  bool are_agreed(Due what) const { return agreed_ & uint32_t(what); }

 private:
  ProcessGroup* group_;
  uint32_t agreed_ = 0;  // notices of all ranks at the last step
  int stop_ = 0;         // signal that any rank got
};

}  // namespace halfstep::app
