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
  int stop_requested() const;  // the signal, once all ranks have it; 0: none
  void adopt_early_signals();  // call it on all ranks: adopts a signal that any got before the first step
  void forget_notices() { agreed_ = 0; }
  // Gives the step this rank's notices: its signal, and on rank 0 what is due, as bits of Due.
  void notify(TrainStep& step, uint32_t due);
  void take_notices(const TrainStep& step);  // reads those of all ranks from a step that ended a window
  bool is_agreed(Due what) const { return agreed_ & uint32_t(what); }

 private:
  ProcessGroup* group_;
  uint32_t agreed_ = 0;  // notices of all ranks at the last step
  int stop_ = 0;         // signal that any rank got
};

}  // namespace halfstep::app
