// SPDX-License-Identifier: Apache-2.0
#include "amp/step/accumulation_window.h"

#include <algorithm>

namespace halfstep {

void AccumulationWindow::open(const BatchRows& first) {
  first_rows_ = (first.total + ranks_ - 1) / ranks_;
  first_total_ = first.total;
  samples_ = own_samples_ = 0;
  random_ = default_generator().state();
}

void AccumulationWindow::count(const BatchRows& part) {
  ++pending_;
  samples_ += part.total;
  own_samples_ += part.rows;
}

// A window whose micro-batches grow needs more numbers than it has reserved.
std::optional<BatchRows> AccumulationWindow::rows_of(const BatchRows& part) const {
  if (ranks_ == 1 && micro_batches_ == 1) return {};
  const int64_t first = samples_ + part.first;
  return BatchRows{first, part.rows, std::max(micro_batches_ * first_total_, first + part.rows)};
}

AccumulationWindow::Draws::Draws(const AccumulationWindow& window, const BatchRows& part)
    : rows_(window.rows_of(part)), later_(window.pending_ > 0), before_(default_generator().state()) {
  if (later_) default_generator().set_state(window.random_);
}
AccumulationWindow::Draws::~Draws() {
  if (!later_) return;
  Generator::State now = default_generator().state();
  now.offset = std::max(now.offset, before_.offset);
  default_generator().set_state({before_.seed, now.offset});
}

}  // namespace halfstep
