// SPDX-License-Identifier: Apache-2.0
// An optimizer's learning rates and its schedule's count in device memory: a step that may be skipped then needs no host to
// know what the next step's rate is, and a recorded step (Backend::begin_recording) follows the schedule.
//
// The device holds the rates of the next kWindow counts and picks one by its own count of applied steps. The host reads that
// count back when someone asks the schedule or the optimizer, and else once in kWindow steps.
#pragma once

#include <vector>

#include "optim/optimizer.h"
#include "optim/schedule.h"

namespace halfstep {

class DeviceRates {
 public:
  // From here to its destruction `optimizer` steps with these rates. `schedule` may be null. Both must outlive it.
  [[nodiscard]] DeviceRates(Optimizer& optimizer, Schedule* schedule, Device device);
  ~DeviceRates();
  DeviceRates(const DeviceRates&) = delete;

  void prepare();                         // before a step, and outside a recording: sends the host's changes
  void add_to(math::StepTail& tail) const;  // the schedule's part of a step's end; may be recorded
  // After a step was queued, replayed or not. The device counts it by itself; here the host notes that it may have.
  void advanced();
  void settle();                          // brings schedule and optimizer up to date; reads from the device if steps are pending

 private:
  static constexpr int64_t kWindow = 1024;
  void send();

  Optimizer& optimizer_;
  Schedule* schedule_;
  std::vector<double> host_rates() const;
  bool user_wrote() const;

  bool moves_momentum_;
  Tensor rates_, table_, count_;  // f64 [rows], f64 [rows, kWindow], i64 []; rows: the groups' rates, then any momenta
  std::vector<double> sent_;      // the rates the device had at the last settle
  int64_t sent_count_ = -1;       // ... and its count
  int64_t sent_revision_ = 0;     // ... and the schedule's revision
  int64_t window_end_ = 0;        // the table holds counts up to here
  int64_t last_ = 0;              // ... and the schedule has no rate after this one
  int64_t pending_ = 0;           // steps that may have moved the count since
};

}  // namespace halfstep
