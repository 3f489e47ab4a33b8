// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tables/csv_numbers.h"

#include <algorithm>
#include <cmath>

namespace halfstep {

const double CsvNumbers::kPowers[19] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8, 1e9,
                                        1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18};

CsvNumbers::CsvNumbers(size_t columns) : columns_(columns), places_(columns, 0), wide_(columns, nullptr) {
  constexpr size_t kNumbers = size_t(1) << 18;  // numbers in a block, roughly
  while (shift_ > 2 && columns << shift_ > kNumbers) --shift_;
  begin_block();
}

void CsvNumbers::begin_block() {
  Block& b = blocks_.emplace_back();
  b.narrow = std::make_unique_for_overwrite<int32_t[]>(columns_ << shift_);
  b.places.assign(columns_, 0);
  b.wide.resize(columns_);
  open_ = b.narrow.get();
  std::fill(wide_.begin(), wide_.end(), nullptr);
}

void CsvNumbers::end_row() {
  if (++at_ >> shift_ == 0) return;
  finish();
  at_ = 0;
  begin_block();
}

void CsvNumbers::finish() {
  for (size_t c = 0; c < columns_; ++c) blocks_.back().places[c] = uint8_t(places_[c]);
}

double* CsvNumbers::widen(size_t column) {
  if (wide_[column]) return wide_[column];
  Block& b = blocks_.back();
  b.wide[column] = std::make_unique_for_overwrite<double[]>(size_t(1) << shift_);
  double* const out = b.wide[column].get();
  for (size_t i = 0; i < at_; ++i) {
    const int32_t value = open_[(column << shift_) + i];
    out[i] = value >= -kMost ? double(value) / kPowers[places_[column]] : value == kMinusZero ? -0.0 : kNone;
  }
  return wide_[column] = out;
}

void CsvNumbers::add(size_t column, double number) {
  if (std::isnan(number) && !wide_[column])
    open_[(column << shift_) + at_] = kNoNumber;
  else
    widen(column)[at_] = number;
}

void CsvNumbers::add_other(size_t column, const CsvDecimal& number) {
  // Digits below 2^53 and powers of ten up to 10^22 are exact, so their quotient is rounded once.
  const auto wide = [&] { widen(column)[at_] = double(number.digits) / kPowers[number.places]; };
  int32_t* const all = open_ + (column << shift_);
  if (number.minus_zero) return wide_[column] ? void(wide_[column][at_] = -0.0) : void(all[at_] = kMinusZero);
  if (wide_[column]) return wide();
  int& places = places_[column];
  const auto power = [](int n) { return int64_t(kPowers[n]); };
  if (number.places > places) {  // gives the others as many
    constexpr int kMostPlaces = 9;
    if (number.places > kMostPlaces) return wide();
    const int64_t by = power(number.places - places);
    const auto fits = [&](int32_t v) { return v < -kMost || std::abs(int64_t(v)) <= kMost / by; };
    if (!std::all_of(all, all + at_, fits)) return wide();
    for (size_t i = 0; i < at_; ++i)
      if (all[i] >= -kMost) all[i] = int32_t(all[i] * by);
    places = number.places;
  }
  const int64_t by = power(places - number.places);
  if (std::abs(number.digits) > kMost / by) return wide();
  all[at_] = int32_t(number.digits * by);
}

}  // namespace halfstep
