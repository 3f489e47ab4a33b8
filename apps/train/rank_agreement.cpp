// SPDX-License-Identifier: Apache-2.0
#include "apps/train/rank_agreement.h"

#include <csignal>
#include <vector>

#include "apps/session/ranks.h"
#include "apps/terminal/signals.h"

namespace halfstep::app {
namespace {

constexpr uint32_t kInterrupt = 1, kStop = 2;  // beside the bits of Due

}  // namespace

int RankAgreement::stop_requested() const { return group_ ? stop_ : stop_signal(); }

void RankAgreement::adopt_early_signals() {
  if (!group_) return;
  for (const std::vector<double>& signal : group_->gather(std::vector<double>{double(stop_signal())}))
    if (signal[0] != 0 && stop_ != SIGINT) stop_ = int(signal[0]);
}

void RankAgreement::notify(TrainStep& step, uint32_t due) {
  if (!group_) return;
  const uint32_t signal = stop_signal() == 0 ? 0 : stop_signal() == SIGINT ? kInterrupt : kStop;
  step.notify(signal | (group_->rank() == 0 ? due : 0));
}

void RankAgreement::take_notices(const TrainStep& step) {
  if (!group_) return;
  agreed_ = step.notices();
  if (agreed_ & kStop) stop_ = SIGTERM;
  if (agreed_ & kInterrupt) stop_ = SIGINT;
}

}  // namespace halfstep::app
