// SPDX-License-Identifier: Apache-2.0
#include "amp/step/accumulation_window.h"

#include <algorithm>

#include "framework/autograd/grad_mode.h"

namespace halfstep {

void AccumulationWindow::open(const BatchRows& first) {
  first_rows_ = (first.total + ranks_ - 1) / ranks_;
  first_total_ = first.total;
  samples_ = own_samples_ = 0;
  unit_ = total_ = 0;
  total_on_device_ = Tensor();
  is_sum_ = false;
  random_ = default_generator().state();
}

void AccumulationWindow::begin(const BatchRows& part, const Denominator& denominator) {
  is_sum_ = is_sum_ || denominator.is_sum();
  // Divide first: the quotient is the same on ranks with other numbers of rows.
  if (unit_ == 0) unit_ = denominator.elements() / double(part.rows) * denominator.each();
  if (unit_ == 0) unit_ = 1;  // rows without an element
}

void AccumulationWindow::count(const BatchRows& part, const Denominator& denominator) {
  ++pending_;
  samples_ += part.total;
  own_samples_ += part.rows;
  if (part.rows == 0) return;
  const NoGrad off;
  if (denominator.on_device().defined())
    total_on_device_ = total_on_device_.defined() ? total_on_device_ + denominator.on_device() : denominator.on_device();
  else
    total_ += denominator.value();
}

double AccumulationWindow::loss_weight(const Denominator& denominator) const {
  return is_single() || is_sum_ ? 1 : denominator.value() / expected();
}

double AccumulationWindow::gradient_factor() const {
  return is_single() || is_sum_ || total_ == expected() || total_ == 0 ? 1 : expected() / total_;
}

Denominator AccumulationWindow::denominator() const {
  if (is_sum_) return Denominator::of_sum();
  return total_on_device_.defined() ? Denominator(1, 1, total_on_device_) : Denominator(total_);
}

void AccumulationWindow::set_total(double total, double unit) {
  total_ = total;
  if (unit_ == 0) unit_ = unit;
}

// Reserves more random numbers than `part` needs: micro-batches of a window may grow.
std::optional<BatchRows> AccumulationWindow::rows_of(const BatchRows& part) const {
  if (ranks_ == 1 && micro_batches_ == 1) return {};
  const int64_t first = samples_ + part.first;
  return BatchRows{first, part.rows, std::max(micro_batches_ * first_total_, first + part.rows)};
}

AccumulationWindow::Draws::Draws(const AccumulationWindow& window, const BatchRows& part)
    : rows_(window.rows_of(part)), is_later_(window.pending_ > 0), before_(default_generator().state()) {
  if (is_later_) default_generator().set_state(window.random_);
}
AccumulationWindow::Draws::~Draws() {
  if (!is_later_) return;
  const Generator::State now = default_generator().state();
  default_generator().set_state(now.offset < before_.offset ? before_ : now);
}

}  // namespace halfstep
