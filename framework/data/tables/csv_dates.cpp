// SPDX-License-Identifier: Apache-2.0
// Parses dates in cells.
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>

#include "framework/base/list_text.h"
#include "framework/base/number_text.h"
#include "framework/data/tables/csv_cells.h"

namespace halfstep {
namespace {

// Reads a cell from the front.
class CellReader {
 public:
  explicit CellReader(std::string_view text) : text_(text) {}
  bool done() const { return text_.empty(); }
  char peek() const { return text_.empty() ? '\0' : text_[0]; }
  bool take(char c) {
    if (peek() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool take(std::string_view word) {
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  // Reads an integer of least..most digits.
  std::optional<int> digits(size_t least, size_t most) {
    size_t n = 0;
    int value = 0;
    while (n < most && n < text_.size() && is_digit(text_[n])) value = 10 * value + (text_[n++] - '0');
    if (n < least) return {};
    text_.remove_prefix(n);
    return value;
  }
  // Reads the digits after the point.
  double fraction() {
    double value = 0, unit = 0.1;
    for (; is_digit(peek()); text_.remove_prefix(1), unit /= 10) value += unit * (peek() - '0');
    return value;
  }

 private:
  std::string_view text_;
};

struct Day {
  int year = 0, month = 0, day = 1;
  bool short_year = false;
};

// Reads a year of four digits, or of two, which mean 1969 to 2068 as in POSIX.
std::optional<int> read_year(CellReader& in, bool& is_short) {
  if (const auto whole = in.digits(4, 4)) return whole;
  const auto two = in.digits(2, 2);
  if (!two || is_digit(in.peek())) return {};
  is_short = true;
  return *two + (*two < 69 ? 2000 : 1900);
}

// Reads the month and the year of "01/2015", "01-2015" or "01.2015".
std::optional<Day> read_month_of_year(CellReader& in) {
  const auto month = in.digits(2, 2);
  const char between = in.peek();
  if (!month || (between != '-' && between != '/' && between != '.') || !in.take(between)) return {};
  const auto year = in.digits(4, 4);
  if (!year || *year < 1900 || *year >= 2100 || !in.done()) return {};
  return Day{*year, *month};
}

// Returns whether the cell begins with a year and has two separators, as in "2024-03-18", which has the same meaning in any order.
bool begins_with_year(CellReader in) {
  if (!in.digits(4, 4)) return false;
  const char between = in.peek();
  return (between == '-' || between == '/' || between == '.') && in.take(between) && in.digits(1, 2) && in.take(between);
}

// Reads a day of numbers: "2024-03-18", "20240318", "18.3.2024", "3/18/24", "2024-03", "03/2024".
std::optional<Day> read_day(CellReader& in, CsvDateOrder order) {
  CellReader whole = in;
  if (const auto month = read_month_of_year(whole)) return in = whole, month;
  const bool year_first = order == CsvDateOrder::ymd || begins_with_year(in);
  const CellReader begin = in;
  const auto first = in.digits(year_first ? 4 : 1, year_first ? 4 : 2);
  if (!first) return {};
  const char between = in.peek();
  if (year_first && is_digit(between)) {  // 20240318
    const auto month = in.digits(2, 2), day = in.digits(2, 2);
    if (!month || !day) return {};
    return Day{*first, *month, *day};
  }
  if ((between != '-' && between != '/' && between != '.') || !in.take(between)) return {};
  const auto second = in.digits(1, 2);
  if (!second) return {};
  if (year_first && !in.take(between)) return Day{*first, *second, 1};
  if (!year_first && !in.take(between)) return {};
  bool is_short = false;
  const auto third = year_first ? in.digits(1, 2) : read_year(in, is_short);
  if (!third) return {};
  if (year_first) return Day{*first, *second, *third};
  CellReader again = begin;  // "1.2.24" may be a version
  if (is_short && between != '/' && !(again.digits(2, 2) && again.take(between) && again.digits(2, 2))) return {};
  return order == CsvDateOrder::dmy ? Day{*third, *second, *first, is_short} : Day{*third, *first, *second, is_short};
}

// Reads an English month name, whole or its first three letters (and "Sept"); returns 1 to 12.
std::optional<int> read_month(CellReader& in) {
  constexpr std::string_view kMonths[] = {"january", "february", "march",     "april",   "may",      "june",
                                          "july",    "august",   "september", "october", "november", "december"};
  std::string name;
  for (char c = in.peek(); std::isalpha(static_cast<unsigned char>(c)) && name.size() < 10; in.take(c), c = in.peek())
    name += lower_case(c);
  for (int m = 0; m < 12; ++m)
    if (name == kMonths[m] || name == kMonths[m].substr(0, 3) || (m == 8 && name == "sept")) return m + 1;
  return {};
}

// Reads a quarter, "Q3"; returns 1, 4, 7 or 10.
std::optional<int> read_quarter(CellReader& in) {
  const auto q = in.take('Q') || in.take('q') ? in.digits(1, 1) : std::nullopt;
  return q && *q >= 1 && *q <= 4 ? std::optional(3 * *q - 2) : std::nullopt;
}

// Skips blanks and the separators of dates.
void skip_separators(CellReader& in) {
  while (in.take(' ') || in.take('-') || in.take('/') || in.take('.') || in.take(',')) {}
}

// Reads "2023-W05", "2023W05" or "2023-W05-3"; a week begins on Monday.
std::optional<Day> read_week(CellReader& in) {
  using namespace std::chrono;
  const auto of_year = in.digits(4, 4);
  in.take('-');
  if (!of_year || !(in.take('W') || in.take('w'))) return {};
  const auto week = in.digits(2, 2);
  const auto weekday_number = week && in.take('-') ? in.digits(1, 1) : std::optional(1);
  if (!week || !weekday_number || *week < 1 || *week > 53 || *weekday_number < 1 || *weekday_number > 7) return {};
  const sys_days fourth = year(*of_year) / January / 4;  // is in the first week
  const sys_days monday = fourth - days(weekday(fourth).iso_encoding() - 1) + days(7 * (*week - 1));
  if (year_month_day(monday + days(3)).year() != year(*of_year)) return {};
  const year_month_day at(monday + days(*weekday_number - 1));
  return Day{int(at.year()), int(unsigned(at.month())), int(unsigned(at.day()))};
}

// Reads "9-Jan-2023", "9-Jan-23", "Jan 9, 2023", "2023 January", "Jan-23", "09JAN2023", "2023Q1", "Q1 2023": the name identifies
// the parts.
std::optional<Day> read_named_day(CellReader& in) {
  std::optional<int> year = in.digits(4, 4), day = year ? std::nullopt : in.digits(1, 2);
  skip_separators(in);
  const bool quarter = in.peek() == 'Q' || in.peek() == 'q';
  const std::optional<int> month = quarter ? read_quarter(in) : read_month(in);
  if (!month || (quarter && day)) return {};
  const bool no_day_follows = day || quarter;
  CellReader further = in;
  const bool dashed = in.peek() == '-';
  skip_separators(further);
  if (year) {
    const auto number = no_day_follows ? std::nullopt : further.digits(1, 2);
    if (number && further.peek() != ':') day = number, in = further;  // otherwise the time of day follows, if anything
    return Day{*year, *month, day.value_or(1)};
  }
  const CellReader behind = further;
  bool is_short = false;
  year = further.digits(4, 4);
  if (!year && !no_day_follows) {
    day = further.digits(1, 2);
    skip_separators(further);
    year = day ? further.digits(4, 4) : std::nullopt;
    if (!year) day.reset();
  }
  if (!year && (day || dashed)) {  // "9-Jan-23" and "Jan-23", as spreadsheets write them
    further = behind;
    year = read_year(further, is_short);
    if (!further.done() && further.peek() != ' ') year.reset();
  }
  if (!year) return {};
  in = further;
  return Day{*year, *month, day.value_or(1), is_short};
}

// Reads the seconds of the day; with a zone, in UTC, which may be outside the day. zone: its seconds east of UTC; empty: none.
std::optional<double> read_time(CellReader& in, std::optional<double>& zone) {
  while (in.take(' ')) {}
  const auto hours = in.digits(1, 2);
  if (!hours || !in.take(':')) return {};
  const auto minutes = in.digits(2, 2);
  if (!minutes) return {};
  double seconds = 0;
  if (in.take(':')) {
    const auto whole = in.digits(2, 2);
    if (!whole) return {};
    seconds = *whole + (in.take('.') ? in.fraction() : 0);
  }
  while (in.take(' ')) {}
  int hour = *hours;
  const bool morning = in.take("AM") || in.take("am"), evening = !morning && (in.take("PM") || in.take("pm"));
  if ((morning || evening) && (hour < 1 || hour > 12)) return {};
  if (morning || evening) hour = hour % 12 + (evening ? 12 : 0);
  if (hour > 23 || *minutes > 59 || seconds >= 60) return {};
  double out = hour * 3600.0 + *minutes * 60.0 + seconds;
  const char sign = in.peek();
  if (in.done()) return out;
  if (in.take('Z')) {
    zone = 0;
    return in.done() ? std::optional(out) : std::nullopt;
  }
  if ((sign != '+' && sign != '-') || !in.take(sign)) return {};
  const auto zone_hours = in.digits(2, 2);
  in.take(':');
  const auto zone_minutes = in.done() ? std::optional(0) : in.digits(2, 2);
  if (!zone_hours || !zone_minutes || !in.done() || *zone_hours > 14 || *zone_minutes > 59) return {};
  zone = (sign == '+' ? 1 : -1) * (*zone_hours * 3600.0 + *zone_minutes * 60.0);
  return out - *zone;
}

}  // namespace

bool parse_date(std::string_view cell, CsvDateOrder order, CsvDate& out) {
  using namespace std::chrono;
  CellReader in(cell);
  auto day = read_day(in, order);
  if (!day) in = CellReader(cell), day = read_week(in);
  if (!day) in = CellReader(cell), day = read_named_day(in);
  if (!day) return false;
  const year_month_day civil{year(day->year), month(unsigned(day->month)), std::chrono::day(unsigned(day->day))};
  if (!civil.ok()) return false;
  const bool timed = !in.done();
  std::optional<double> seconds = 0.0, zone;
  if (timed) seconds = in.take('T') || in.peek() == ' ' ? read_time(in, zone) : std::nullopt;
  if (!seconds) return false;
  sys_days at{civil};
  for (; *seconds < 0; *seconds += 86400) at -= days(1);
  for (; *seconds >= 86400; *seconds -= 86400) at += days(1);
  const year_month_day utc{at};
  out = {.days = double(at.time_since_epoch().count()) + *seconds / 86400,
         .year = int(utc.year()),
         .month = int(unsigned(utc.month())),
         .day = int(unsigned(utc.day())),
         .weekday = int(weekday(at).iso_encoding()) - 1,
         .hour = *seconds / 3600,
         .timed = timed,
         .short_year = day->short_year,
         .zoned = zone.has_value(),
         .zone = zone.value_or(0) / 3600};
  return true;
}

CsvDate date_of_days(double days) {
  using namespace std::chrono;
  const double whole = std::floor(days);
  const sys_days at{std::chrono::days(int64_t(whole))};
  const year_month_day civil{at};
  return {.days = days,
          .year = int(civil.year()),
          .month = int(unsigned(civil.month())),
          .day = int(unsigned(civil.day())),
          .weekday = int(weekday(at).iso_encoding()) - 1,
          .hour = 24 * (days - whole),
          .timed = days != whole};
}

CsvDate in_own_zone(const CsvDate& date) {
  if (!date.zoned) return date;
  constexpr double kSteps = 86400e5;  // of a day: without rounding, midnight may lie before its day
  CsvDate out = date_of_days(std::round((date.days + date.zone / 24) * kSteps) / kSteps);
  out.hour = std::round(out.hour * kSteps / 24) / (kSteps / 24);
  out.timed = date.timed, out.short_year = date.short_year, out.zoned = true, out.zone = date.zone;
  return out;
}

std::string text_of(const CsvDate& d) {
  char text[64];
  constexpr double kRounding = 1e-3;  // minutes by which a fraction of a day may lie below the minute that it was read from
  const int minutes = int(60 * d.hour + kRounding);
  if (minutes == 0)
    std::snprintf(text, sizeof text, "%04d-%02d-%02d", d.year, d.month, d.day);
  else
    std::snprintf(text, sizeof text, "%04d-%02d-%02d %02d:%02d", d.year, d.month, d.day, minutes / 60, minutes % 60);
  return text;
}

}  // namespace halfstep
