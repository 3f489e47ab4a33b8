// SPDX-License-Identifier: Apache-2.0
#include "optim/device_rates.h"

#include <utility>
#include <vector>

#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"

namespace halfstep {

DeviceRates::DeviceRates(Optimizer& optimizer, Schedule* schedule, Device device)
    : optimizer_(optimizer), moves_momentum_(schedule && schedule->moves_momentum()) {
  if (schedule) schedule_.emplace(*schedule);
  const MemoryScope memory(MemoryTag::optimizer);
  const int64_t rows = int64_t(host_rates().size());
  rates_ = zeros({rows}, {.dtype = DType::f64, .device = device});
  if (schedule) {
    table_ = zeros({rows, kWindow}, {.dtype = DType::f64, .device = device});
    count_ = zeros({}, {.dtype = DType::i64, .device = device});
  }
  take_over();
}

// Makes the optimizer and the schedule use these rates, after those that they used before have updated the host.
void DeviceRates::take_over() {
  Optimizer& o = optimizer();
  if (o.rates_.defined() && o.rates_.same(rates_)) return;
  if (o.sync_host_) o.sync_host_();
  if (schedule_) {
    schedule().count();
    schedule().use_device_count(this, [this] { sync_host(); });
  }
  o.use_device_rates(rates_, [this] { sync_host(); });
  sent_.clear();
  sent_count_ = -1;
}

DeviceRates::~DeviceRates() {
  try {
    sync_host();
  } catch (const Error&) {  // the device failed: its next use throws; or there is nothing to update any more
  }
  if (Schedule* const schedule = schedule_ ? schedule_->find() : nullptr) schedule->end_device_count(this);
  if (Optimizer* const optimizer = optimizer_.find()) optimizer->end_device_rates(rates_);
}

void DeviceRates::prepare() {
  take_over();
  optimizer().adopt_options();
  const int64_t highest_count = sent_count_ + pending_;
  if (schedule_ && (highest_count + 1 >= window_end_ || highest_count > last_ || (pending_ > 0 && user_wrote()))) sync_host();
  if (pending_ == 0) send();
}

// Returns whether the user wrote into the groups: while steps are pending, the host's rates and momenta are those that were sent.
bool DeviceRates::user_wrote() const {
  const size_t groups = optimizer().groups_.size();
  for (size_t g = 0; g < groups; ++g) {
    const bool rate = optimizer().was_written(g) || optimizer().last_known_lr(g) != sent_[g];
    if (rate || (moves_momentum_ && *optimizer().momentum_of(g) != sent_[groups + g])) return true;
  }
  return false;
}

// Copies the host's rates, and the count and the table if they are out of date, to the device.
void DeviceRates::send() {
  Backend& backend = backend_for(rates_.device());
  if (schedule_) schedule().follow();
  std::vector<double> rates = host_rates();
  if (rates != sent_) backend.copy_from_host(rates.data(), rates_.data_ptr(), rates_.nbytes());
  sent_ = std::move(rates);
  if (!schedule_) return;
  const int64_t count = schedule().count();
  const bool moved = count != sent_count_ || schedule().revision() != sent_revision_;  // changed by the host, or first use
  if (moved) backend.copy_from_host(&count, count_.data_ptr(), sizeof count);
  if (moved || window_end_ < count + kWindow / 2) {
    std::vector<double> table(size_t(table_.numel()));
    const size_t groups = optimizer().groups_.size();
    for (size_t row = 0; row < sent_.size(); ++row) {
      for (int64_t c = count; c < count + kWindow; ++c) {
        table[row * kWindow + size_t(c % kWindow)] = row < groups ? schedule().rate_of(row, c) : schedule().momentum(c).value();
      }
    }
    backend.copy_from_host(table.data(), table_.data_ptr(), table_.nbytes());
    window_end_ = last_ = count + kWindow;
    while (last_ > count && !schedule().covers(last_)) --last_;
  }
  sent_count_ = count;
  sent_revision_ = schedule().revision();
}

std::vector<double> DeviceRates::host_rates() const {
  std::vector<double> out;
  const size_t groups = optimizer().groups_.size();
  for (size_t g = 0; g < groups; ++g) out.push_back(optimizer().lr(g));
  for (size_t g = 0; moves_momentum_ && g < groups; ++g) out.push_back(optimizer().momentum(g));
  return out;
}

void DeviceRates::add_to(math::StepTail& tail) const {
  if (!schedule_) return;
  tail.count = count_.data_ptr<int64_t>();
  tail.table = table_.data_ptr<double>();
  tail.rates = rates_.data_ptr<double>();
  tail.width = kWindow;
  tail.groups = rates_.numel();
}

void DeviceRates::note_step() {
  if (schedule_) ++pending_;
}

void DeviceRates::sync_host() {
  if (pending_ == 0) return;
  const int64_t count = count_.item<int64_t>();
  pending_ = 0;
  if (count == sent_count_) return;  // all skipped: the rates are unchanged
  sent_count_ = count;
  // Send the user's writes since the last step with the next ones.
  const bool wrote = user_wrote();
  const size_t groups = optimizer().groups_.size();
  std::vector<std::pair<size_t, double>> momenta;
  for (size_t g = 0; moves_momentum_ && g < groups; ++g) {
    if (const double momentum = *optimizer().momentum_of(g); momentum != sent_[groups + g]) momenta.emplace_back(g, momentum);
  }
  schedule().apply_rates(count, /*keep_set=*/true);
  optimizer().stepped_by_ = schedule().id_;
  for (const auto& [g, momentum] : momenta) optimizer().set_momentum(momentum, g);
  sent_ = host_rates();
  if (wrote) sent_.clear();
}

}  // namespace halfstep
