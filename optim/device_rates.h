// SPDX-License-Identifier: Apache-2.0
// Learning rates and the schedule's count in device memory: the next step's rate is then known without the host, even if the step
// may be skipped, and a recorded step (Backend::begin_recording) follows the schedule.
//
// Several for one optimizer, such as those of two TrainSteps, take turns: the one that prepares a step takes over from the other.
//
// The device holds the rates of the next kWindow counts and picks one by its own count of applied steps. The host reads that count
// before a rate or a count of the schedule or the optimizer is read or set, and at least once in kWindow steps.
#pragma once

#include <optional>
#include <vector>

#include "optim/optimizer.h"
#include "optim/schedule.h"

namespace halfstep {

class DeviceRates {
 public:
  // Makes `optimizer` step with these rates until its destruction. `schedule` may be null. Throws ValueError once either has been
  // destroyed.
  [[nodiscard]] DeviceRates(Optimizer& optimizer, Schedule* schedule, Device device);
  ~DeviceRates();
  DeviceRates(const DeviceRates&) = delete;
  DeviceRates& operator=(const DeviceRates&) = delete;

  void prepare();                           // call before a step, outside a recording: sends the host's changes
  void add_to(math::StepTail& tail) const;  // adds the schedule's part of a step's end; may be recorded
  // Call after a step was queued, replayed or not: the device counts the step; the host notes that its count is out of date.
  void note_step();
  void sync_host();  // updates schedule and optimizer; reads from the device if steps are pending

 private:
  static constexpr int64_t kWindow = 1024;  // counts in the table: 8 KB a row
  void take_over();
  void send();
  std::vector<double> host_rates() const;
  bool user_wrote() const;

  Optimizer& optimizer() const { return optimizer_.get("schedule", "optimizer"); }
  Schedule& schedule() const { return schedule_->get("optimizer", "schedule"); }

  Watched<Optimizer> optimizer_;
  std::optional<Watched<Schedule>> schedule_;
  bool moves_momentum_;
  Tensor rates_, table_, count_;  // f64 [rows], f64 [rows, kWindow], i64 []; rows: the groups' rates, then any momenta
  std::vector<double> sent_;      // the device's rates at the last sync_host
  int64_t sent_count_ = -1;       // the count then
  int64_t sent_revision_ = 0;     // the schedule's revision then
  int64_t window_end_ = 0;        // end of the counts in the table
  int64_t last_ = 0;              // last count for which the schedule has a rate
  int64_t pending_ = 0;           // steps since sync_host, each of which may have moved the count
};

}  // namespace halfstep
