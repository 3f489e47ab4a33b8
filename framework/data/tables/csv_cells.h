// SPDX-License-Identifier: Apache-2.0
// Numbers and dates in the cells of a table, in the formats of different countries.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/options.h"
#include "framework/data/formats/text_file.h"

namespace halfstep {

inline constexpr char kCsvBlanks = '\n';  // delimiter: any number of blanks and tabs

// The format of a file. Delimiter 0: detect it.
struct CsvFormat {
  char delimiter = 0;
  char decimal = '.';  // or ','
  char thousands = 0;  // between groups of three digits: ',', '.', ' ', '\'' or '_'; 0: none
  TextEncoding encoding = TextEncoding::utf8;
  std::vector<int64_t> skip_rows{};  // lines of the file to skip, from 1
  bool accounting = false;           // "(1.2)" and "1.2-" are -1.2, and "$5" is 5
  static const OptionList<CsvFormat>& list();
};

// Returns whether `cell` is a decimal number, "inf" or "nan", and stores it in `value`.
bool parse_number(std::string_view cell, double& value);
// How a number is written, if that is unusual.
struct CsvNumberForm {
  const char* what = nullptr;  // "another minus sign"
  std::string currency{};      // its currency sign
};
// Returns the same for numbers in `format`: with decimal ',' and thousands '.', "1.234,5" is 1234.5, and "12.34,5" is not a number.
// The thousands separator ' ' includes no-break spaces, and '\'' the typographic apostrophe; without a separator both are accepted,
// because they have no other meaning. Also accepts other minus signs (U+2212, an en dash), and full-width and Arabic digits.
bool parse_number(std::string_view cell, const CsvFormat& format, double& value);
bool parse_number(std::string_view cell, const CsvFormat& format, double& value, CsvNumberForm& form);
// Returns whether `text` is an integer, and stores it in `value`.
bool parse_integer(std::string_view text, int64_t& value);

enum class CsvDateOrder : uint8_t { ymd, dmy, mdy };
HALFSTEP_OPTION_NAMES(CsvDateOrder, "ymd", "dmy", "mdy");

// A day, with a time of day if the cell has one. A time with a zone ("Z", "+01:00") is converted to UTC.
struct CsvDate {
  double days = 0;  // since 1970-01-01; the time is the fraction
  int year = 0, month = 0, day = 0;
  int weekday = 0;          // 0: Monday
  double hour = 0;          // with minutes and seconds as a fraction
  bool timed = false;       // whether it has a time of day
  bool short_year = false;  // whether it has two digits
  bool zoned = false;       // whether its time has a zone
  double zone = 0;          // hours east of UTC
};
// Parses a date: year, month and day in the given order, separated by '-', '/' or '.'; with ymd also "2024-03" and "20240318".
// Accepts dates with an English month name or a quarter in any order: "9-Jan-2023", "Jan 9, 2023", "January 2023", "09JAN2023",
// "2023Q1"; likewise "2023-W05", "01/2015" and "01.2015", which have no day, and with any order "2024-03-18". A year has four
// digits, or as the last part two, from 1969 to 2068: "3/18/24", "18.03.24", "Jan-23". A time may follow after a space or a T:
// "14:30", "14:30:59.5", "2:30 PM", then a zone.
bool parse_date(std::string_view cell, CsvDateOrder order, CsvDate& date);
// Returns the date that is `days` after 1970-01-01, with its time.
CsvDate date_of_days(double days);
// Returns the date with the day and the time that its zone has then; `days` are those of that time.
CsvDate in_own_zone(const CsvDate& date);
// Returns "2024-03-18", with the time unless that is midnight.
std::string text_of(const CsvDate& date);

// For a cell that looks like a number but is not one in `format`: the reason, such as "a decimal comma", and the remedy. Empty for
// other cells.
struct CsvHint {
  std::string what{}, remedy{};
  bool word = false;  // whether it is a word such as "NA": a missing value
};
CsvHint number_hint(std::string_view cell, const CsvFormat& format);
// Returns the same for a number with a unit, "50 kg", and for "12:30", which may also be names: if all cells of a column have one
// hint.
CsvHint quantity_hint(std::string_view cell, const CsvFormat& format);
inline constexpr size_t kFewQuantities = 10;  // number of different ones up to which they may be names: "8GB", "16GB"

}  // namespace halfstep
