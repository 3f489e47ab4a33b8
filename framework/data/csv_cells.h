// SPDX-License-Identifier: Apache-2.0
// What the cells of a table hold: numbers as countries write them, and dates.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace halfstep {

// How a file is written. The delimiter 0 is found in the first line.
struct CsvFormat {
  char delimiter = 0;
  char decimal = '.';  // or ','
  char thousands = 0;  // between groups of three digits: ',', '.', ' ', '\'' or '_'; 0: none
};

// Whether `cell` is a decimal number, "inf" or "nan"; `value` then holds it.
bool parse_number(std::string_view cell, double& value);
// The same as `format` writes numbers: with decimal ',' and thousands '.' "1.234,5" is 1234.5, and "12.34,5" is no number. As
// thousands, ' ' is any kind of space and '\'' also the typographic one.
bool parse_number(std::string_view cell, const CsvFormat& format, double& value);
bool parse_integer(std::string_view s, int64_t& value);

enum class CsvDateOrder : uint8_t { ymd, dmy, mdy };

// A day, and the time of day where one is given. What has a zone ("Z", "+01:00") is in UTC.
struct CsvDate {
  double days = 0;  // since 1970-01-01, with the time as a fraction
  int year = 0, month = 0, day = 0;
  int weekday = 0;  // 0: Monday
  double hour = 0;  // with minutes and seconds as a fraction
  bool timed = false;
};
// A year of four digits, a month and a day with '-', '/' or '.' between, in that order; or, with ymd, "2024-03" and "20240318".
// Behind it there may be a time, after a space or T: "14:30", "14:30:59.5", "2:30 PM", and a zone.
bool parse_date(std::string_view cell, CsvDateOrder order, CsvDate& date);

// What keeps a cell from being a number, though it is meant as one, and the option or deed that helps. Both empty where `cell` is
// nothing known. word: it stands for a missing value.
struct CsvHint {
  std::string what{}, remedy{};
  bool word = false;
};
CsvHint number_hint(std::string_view cell, const CsvFormat& format);

}  // namespace halfstep
