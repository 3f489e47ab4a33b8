// SPDX-License-Identifier: Apache-2.0
// Compares the zones of times with those of the training data. Not a public header.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "framework/data/tables/csv.h"

namespace halfstep {

// Returns "+01:00 to +02:00" for hours east of UTC.
std::string zones_text(const std::vector<double>& zones);

// Counts the dates of a column that has times with a zone, and some without.
class CsvZones {
 public:
  void add(const CsvDate& date);
  const std::vector<double>& found() const { return found_; }  // different ones, sorted
  // Returns a note of how they are read, "" for none; and a warning, "" unless only some have a zone.
  std::string note(const CsvEncoding::Column& column) const;
  std::string warning(const CsvEncoding::Column& column) const;

 private:
  std::vector<double> found_;
  int64_t zoned_ = 0, others_ = 0;
};

// Counts dates whose numbers or parts may be those of another zone than the training data's.
class CsvZoneCheck {
 public:
  void add(const CsvEncoding::Column& column, const CsvDate& date, std::string_view cell);
  void add(const CsvZoneCheck& other);
  std::string text() const;  // a warning; "": none

 private:
  int64_t count_ = 0;
  std::string example_;
};

}  // namespace halfstep
