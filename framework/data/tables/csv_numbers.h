// SPDX-License-Identifier: Apache-2.0
// Stores the numbers of a table in little memory. Not a public header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

namespace halfstep {

// A decimal number: digits / 10^places. Digits up to 2^53 and places up to 18 give the nearest double, as from_chars does.
struct CsvDecimal {
  int64_t digits;
  int places;
  bool minus_zero = false;
};

// Reads digits with at most one point, and a minus sign before them. Returns their end; returns `text` if there is no number, or
// one that a CsvDecimal cannot hold. A character other than a digit must follow.
inline const char* read_decimal(const char* text, char point, CsvDecimal& out) {
  const auto digit = [](char c) { return uint8_t(c - '0') < 10; };
  const bool minus = *text == '-';
  const char* at = text + minus;
  const char* const begin = at;
  uint64_t digits = 0;
  for (; digit(*at); ++at) digits = 10 * digits + uint64_t(*at - '0');
  ptrdiff_t count = at - begin;
  out.places = 0;
  if (*at == point) {
    const char* const behind = ++at;
    for (; digit(*at); ++at) digits = 10 * digits + uint64_t(*at - '0');
    out.places = int(at - behind);
    count += at - behind;
  }
  if (count < 1 || count > 18 || digits > uint64_t(1) << 53) return text;
  out.digits = minus ? -int64_t(digits) : int64_t(digits);
  out.minus_zero = minus && digits == 0;
  return at;
}

// The numbers of some columns, row by row. A number of up to nine digits takes 4 bytes: it is stored as an integer whose number of
// decimal places is shared with its neighbours in the column, and gives the same double as its text. Neighbours of a number that
// does not fit take 8 bytes. An entry may hold no number; then the cell's text must be read.
class CsvNumbers {
 public:
  explicit CsvNumbers(size_t columns);

  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  // Adds a number to the open row.
  void add(size_t column, const CsvDecimal& number) {
    int32_t* const to = open_block_ + (column << shift_);
    if (number.places == open_places_[column] && uint64_t(number.digits + kMost) <= 2 * uint64_t(kMost) && !number.minus_zero &&
        !open_wide_[column]) [[likely]]
      to[open_row_] = int32_t(number.digits);
    else
      add_other(column, number);
  }
  void add(size_t column, double number);  // finite, or kNone
  void end_row();
  void finish();  // after the last row

  double at(size_t row, size_t column) const {
    const Block& block = blocks_[row >> shift_];
    const size_t place = row & ((size_t(1) << shift_) - 1);
    if (const double* const wide = block.wide[column].get()) return wide[place];
    const int32_t value = block.narrow[(column << shift_) + place];
    if (value < -kMost) [[unlikely]]
      return value == kMinusZero ? -0.0 : kNone;
    return double(value) / kPowers[block.places[column]];
  }

 private:
  static constexpr int32_t kMost = 2147483640, kMinusZero = -2147483645, kNoNumber = -2147483646;
  static const double kPowers[19];
  struct Block {
    std::unique_ptr<int32_t[]> narrow;  // [columns][rows of a block]
    std::vector<uint8_t> places;        // for each column
    std::vector<std::unique_ptr<double[]>> wide;
  };
  void begin_block();
  void add_other(size_t column, const CsvDecimal& number);
  double* widen(size_t column);

  size_t columns_;
  int shift_ = 12;       // rows of a block: 2^shift
  size_t open_row_ = 0;  // index of the open row in the last block
  std::vector<Block> blocks_;
  int32_t* open_block_ = nullptr;
  std::vector<int> open_places_;    // of the open block, by column
  std::vector<double*> open_wide_;  // the same; null: the column is narrow there
};

}  // namespace halfstep
