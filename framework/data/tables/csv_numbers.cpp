// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tables/csv_numbers.h"

#include <algorithm>
#include <cmath>

namespace halfstep {

const double CsvNumbers::kPowers[19] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8, 1e9,
                                        1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18};

CsvNumbers::CsvNumbers(size_t columns) : columns_(columns), open_places_(columns, 0), open_wide_(columns, nullptr) {
  constexpr size_t kNumbers = size_t(1) << 18;  // numbers in a block, roughly
  while (shift_ > 2 && columns << shift_ > kNumbers) --shift_;
  begin_block();
}

void CsvNumbers::begin_block() {
  Block& block = blocks_.emplace_back();
  block.narrow = std::make_unique_for_overwrite<int32_t[]>(columns_ << shift_);
  block.places.assign(columns_, 0);
  block.wide.resize(columns_);
  open_block_ = block.narrow.get();
  std::fill(open_wide_.begin(), open_wide_.end(), nullptr);
}

void CsvNumbers::end_row() {
  if (++open_row_ >> shift_ == 0) return;
  finish();
  open_row_ = 0;
  begin_block();
}

void CsvNumbers::finish() {
  for (size_t c = 0; c < columns_; ++c) blocks_.back().places[c] = uint8_t(open_places_[c]);
}

double* CsvNumbers::widen(size_t column) {
  if (open_wide_[column]) return open_wide_[column];
  Block& block = blocks_.back();
  block.wide[column] = std::make_unique_for_overwrite<double[]>(size_t(1) << shift_);
  double* const out = block.wide[column].get();
  for (size_t i = 0; i < open_row_; ++i) {
    const int32_t value = open_block_[(column << shift_) + i];
    out[i] = value >= -kMost ? double(value) / kPowers[open_places_[column]] : value == kMinusZero ? -0.0 : kNone;
  }
  return open_wide_[column] = out;
}

void CsvNumbers::add(size_t column, double number) {
  if (std::isnan(number) && !open_wide_[column])
    open_block_[(column << shift_) + open_row_] = kNoNumber;
  else
    widen(column)[open_row_] = number;
}

void CsvNumbers::add_other(size_t column, const CsvDecimal& number) {
  // Digits below 2^53 and powers of ten up to 10^22 are exact, so their quotient is rounded once.
  const auto wide = [&] { widen(column)[open_row_] = double(number.digits) / kPowers[number.places]; };
  int32_t* const values = open_block_ + (column << shift_);
  if (number.minus_zero)
    return open_wide_[column] ? void(open_wide_[column][open_row_] = -0.0) : void(values[open_row_] = kMinusZero);
  if (open_wide_[column]) return wide();
  int& places = open_places_[column];
  const auto power = [](int n) { return int64_t(kPowers[n]); };
  if (number.places > places) {  // gives the others as many
    constexpr int kMostPlaces = 9;
    if (number.places > kMostPlaces) return wide();
    const int64_t factor = power(number.places - places);
    const auto fits = [&](int32_t v) { return v < -kMost || std::abs(int64_t(v)) <= kMost / factor; };
    if (!std::all_of(values, values + open_row_, fits)) return wide();
    for (size_t i = 0; i < open_row_; ++i)
      if (values[i] >= -kMost) values[i] = int32_t(values[i] * factor);
    places = number.places;
  }
  const int64_t factor = power(places - number.places);
  if (std::abs(number.digits) > kMost / factor) return wide();
  values[open_row_] = int32_t(number.digits * factor);
}

}  // namespace halfstep
