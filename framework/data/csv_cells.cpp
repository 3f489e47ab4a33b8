// SPDX-License-Identifier: Apache-2.0
#include "framework/data/csv_cells.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <clocale>
#include <cstdlib>
#include <optional>
#include <system_error>

#include "framework/base/check.h"
#include "framework/data/csv_signs.h"

namespace halfstep {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The length of a thousands separator at the beginning of `s`; 0: none.
size_t separator_length(std::string_view s, char thousands) {
  if (thousands == 0) return 0;
  if (!s.empty() && s[0] == thousands) return 1;
  constexpr std::string_view kSpaces[] = {"\xc2\xa0", "\xe2\x80\xaf", "\xe2\x80\x89"};  // no-break, narrow no-break, thin
  for (const std::string_view space : kSpaces)
    if (thousands == ' ' && s.starts_with(space)) return space.size();
  constexpr std::string_view kApostrophe = "\xe2\x80\x99";
  return thousands == '\'' && s.starts_with(kApostrophe) ? kApostrophe.size() : 0;
}

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
  // A whole number of least..most digits.
  std::optional<int> digits(size_t least, size_t most) {
    size_t n = 0;
    int value = 0;
    while (n < most && n < text_.size() && is_digit(text_[n])) value = 10 * value + (text_[n++] - '0');
    if (n < least) return {};
    text_.remove_prefix(n);
    return value;
  }
  double fraction() {  // digits behind a point
    double value = 0, unit = 0.1;
    for (; is_digit(peek()); text_.remove_prefix(1), unit /= 10) value += unit * (peek() - '0');
    return value;
  }

 private:
  std::string_view text_;
};

struct Day {
  int year = 0, month = 0, day = 1;
};

std::optional<Day> read_day(CellReader& in, CsvDateOrder order) {
  const bool year_first = order == CsvDateOrder::ymd;
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
  const auto third = in.digits(year_first ? 1 : 4, year_first ? 2 : 4);
  if (!third) return {};
  if (year_first) return Day{*first, *second, *third};
  return order == CsvDateOrder::dmy ? Day{*third, *second, *first} : Day{*third, *first, *second};
}

// 1 to 12 for a month's name in English, whole or its first three letters (and "Sept").
std::optional<int> read_month(CellReader& in) {
  constexpr std::string_view kMonths[] = {"january", "february", "march",     "april",   "may",      "june",
                                          "july",    "august",   "september", "october", "november", "december"};
  std::string name;
  for (char c = in.peek(); std::isalpha(static_cast<unsigned char>(c)) && name.size() < 10; in.take(c), c = in.peek())
    name += char(std::tolower(static_cast<unsigned char>(c)));
  for (int m = 0; m < 12; ++m)
    if (name == kMonths[m] || name == kMonths[m].substr(0, 3) || (m == 8 && name == "sept")) return m + 1;
  return {};
}

// 1, 4, 7 or 10 for a quarter, "Q3".
std::optional<int> read_quarter(CellReader& in) {
  const auto q = in.take('Q') || in.take('q') ? in.digits(1, 1) : std::nullopt;
  return q && *q >= 1 && *q <= 4 ? std::optional(3 * *q - 2) : std::nullopt;
}

void skip_separators(CellReader& in) {
  while (in.take(' ') || in.take('-') || in.take('/') || in.take('.') || in.take(',')) {}
}

// "9-Jan-2023", "Jan 9, 2023", "2023 January", "09JAN2023", "2023Q1", "Q1 2023": a name says by itself what it is.
std::optional<Day> read_named_day(CellReader& in) {
  std::optional<int> year = in.digits(4, 4), day = year ? std::nullopt : in.digits(1, 2);
  skip_separators(in);
  const bool quarter = in.peek() == 'Q' || in.peek() == 'q';
  const std::optional<int> month = quarter ? read_quarter(in) : read_month(in);
  if (!month || (quarter && day)) return {};
  const bool without_day = day || quarter;
  CellReader further = in;
  skip_separators(further);
  if (year) {
    const auto number = without_day ? std::nullopt : further.digits(1, 2);
    if (number && further.peek() != ':') day = number, in = further;  // else the time of day follows, if anything
    return Day{*year, *month, day.value_or(1)};
  }
  year = further.digits(4, 4);
  if (!year && !without_day) {
    day = further.digits(1, 2);
    skip_separators(further);
    year = day ? further.digits(4, 4) : std::nullopt;
  }
  if (!year) return {};
  in = further;
  return Day{*year, *month, day.value_or(1)};
}

// Seconds of the day; with a zone in UTC, which may be outside of the day.
std::optional<double> read_time(CellReader& in) {
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
  if (in.take('Z') || in.done()) return in.done() ? std::optional(out) : std::nullopt;
  if ((sign != '+' && sign != '-') || !in.take(sign)) return {};
  const auto zone_hours = in.digits(2, 2);
  in.take(':');
  const auto zone_minutes = in.done() ? std::optional(0) : in.digits(2, 2);
  if (!zone_hours || !zone_minutes || !in.done() || *zone_hours > 14 || *zone_minutes > 59) return {};
  const double zone = *zone_hours * 3600.0 + *zone_minutes * 60.0;
  return out + (sign == '+' ? -zone : zone);
}

bool is_missing_word(std::string_view cell) {
  constexpr std::string_view kWords[] = {"NA",   "N/A", "n/a", "#N/A", "NaN", "nan",          "NULL",        "null",
                                         "None", "?",   "-",   "--",   ".",   "\xe2\x80\x93", "\xe2\x80\x94"};
  return std::find(std::begin(kWords), std::end(kWords), cell) != std::end(kWords);
}

// The cell without a percent sign and marks of accounting, which are described in `out`.
std::string_view without_marks(std::string_view cell, CsvHint& out) {
  if (cell.ends_with('%')) {
    out = {"a percent sign", "remove the sign from the file"};
    cell.remove_suffix(1);
    while (!cell.empty() && cell.back() == ' ') cell.remove_suffix(1);
    return cell;
  }
  bool negative = false;
  CsvNumberForm form;
  std::string_view bare = cell;
  if (!take_accounting_marks(bare, negative, form)) return cell;
  out = {form.what, "\"accounting\": true"};
  return bare;
}

#ifdef __cpp_lib_to_chars
std::from_chars_result read_double(std::string_view s, double& value) {
  return std::from_chars(s.data(), s.data() + s.size(), value);
}
#else  // libc++, whose from_chars reads integers only
std::from_chars_result read_double(std::string_view s, double& value) {
  static const locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr);
  const std::string text(s);
  // strtod takes more than from_chars does: blanks, a plus sign, hexadecimal digits.
  if (text.find_first_of("+xX \t\r\n\v\f") == 0 || text.find_first_of("xX") != std::string::npos)
    return {s.data(), std::errc::invalid_argument};
  char* end = nullptr;
  const double read = strtod_l(text.c_str(), &end, plain);
  if (end == text.c_str()) return {s.data(), std::errc::invalid_argument};
  const char* const stop = s.data() + (end - text.c_str());
  value = read;  // infinite where the number is too large, which the caller wants as well
  return {stop, std::errc()};
}
#endif

std::string option(const char* key, char c) { return joined('"', key, "\": \"", c, '"'); }

}  // namespace

bool parse_integer(std::string_view s, int64_t& value) {
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
  return error == std::errc() && end == s.data() + s.size();
}

bool parse_number(std::string_view cell, double& value) {
  if (cell.size() > 1 && cell[0] == '+' && cell[1] != '-') cell.remove_prefix(1);
  const auto [end, error] = read_double(cell, value);
  if (error == std::errc::result_out_of_range && end == cell.data() + cell.size()) {
    // from_chars leaves the value alone; too small is as good as zero, too large is not finite.
    value = std::strtod(std::string(cell).c_str(), nullptr);
    return true;
  }
  return error == std::errc() && end == cell.data() + cell.size();
}

namespace {

// A number in ASCII, without marks of accounting.
bool parse_plain(std::string_view cell, const CsvFormat& f, double& value) {
  if (f.decimal == '.' && f.thousands == 0) return parse_number(cell, value);
  std::string plain;
  if (!cell.empty() && (cell[0] == '+' || cell[0] == '-')) plain += cell[0], cell.remove_prefix(1);
  size_t group = 0;  // digits since the last separator
  bool grouped = false;
  while (!cell.empty()) {
    const size_t separator = separator_length(cell, f.thousands);
    if (is_digit(cell[0])) {
      plain += cell[0], cell.remove_prefix(1), ++group;
    } else if (separator > 0) {
      if (group == 0 || group > 3 || (grouped && group != 3)) return false;
      grouped = true, group = 0;
      cell.remove_prefix(separator);
    } else {
      break;
    }
  }
  if (grouped && group != 3) return false;
  if (!cell.empty() && cell[0] == f.decimal) {
    plain += '.', cell.remove_prefix(1);
  } else if (!cell.empty() && cell[0] == '.') {
    return false;
  }
  if (!plain.empty() && !cell.empty() && (cell[0] == '+' || cell[0] == '-')) return false;
  return parse_number(plain += cell, value);
}

bool parse_signed(std::string_view cell, const CsvFormat& f, double& value, CsvNumberForm& form) {
  CsvPlainCell plain = with_plain_signs(cell, f);
  if (!plain.form.what) return parse_plain(cell, f, value);
  CsvFormat grouped = f;
  if (plain.text.find(kCsvGroup) != std::string::npos) grouped.thousands = kCsvGroup;
  if (!parse_plain(plain.text, grouped, value)) return false;
  if (!form.what) form.what = plain.form.what;
  return true;
}

}  // namespace

bool parse_number(std::string_view cell, const CsvFormat& f, double& value, CsvNumberForm& form) {
  form = {};
  if (parse_signed(cell, f, value, form)) return true;
  bool negative = false;
  CsvNumberForm marks;
  if (!f.accounting || !take_accounting_marks(cell, negative, marks) || !parse_signed(cell, f, value, marks)) return false;
  if (negative) value = -value;
  form = std::move(marks);
  return true;
}

bool parse_number(std::string_view cell, const CsvFormat& f, double& value) {
  CsvNumberForm ignored;
  return parse_number(cell, f, value, ignored);
}

bool parse_date(std::string_view cell, CsvDateOrder order, CsvDate& out) {
  using namespace std::chrono;
  CellReader in(cell);
  auto day = read_day(in, order);
  if (!day) in = CellReader(cell), day = read_named_day(in);
  if (!day) return false;
  const year_month_day civil{year(day->year), month(unsigned(day->month)), std::chrono::day(unsigned(day->day))};
  if (!civil.ok()) return false;
  const bool timed = !in.done();
  std::optional<double> seconds = 0.0;
  if (timed) seconds = in.take('T') || in.peek() == ' ' ? read_time(in) : std::nullopt;
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
         .timed = timed};
  return true;
}

CsvHint number_hint(std::string_view cell, const CsvFormat& f) {
  if (is_missing_word(cell)) return {"a word for a missing value", joined("\"missing_words\": [\"", cell, "\"]"), true};
  double value = 0;
  CsvHint out;
  const std::string_view bare = without_marks(cell, out);
  if (bare.empty() || !std::any_of(bare.begin(), bare.end(), is_digit)) return {};
  if (parse_number(bare, f, value)) return out;
  const auto with = [&](const char* what, const std::string& remedy) {
    return CsvHint{out.what.empty() ? what : out.what + " and " + what,
                   out.remedy.empty() ? remedy : remedy + ", and " + out.remedy};
  };
  const char other = f.decimal == '.' ? ',' : '.';
  const auto reads = [&](char decimal, char thousands) {
    return decimal != thousands && parse_number(bare, {f.delimiter, decimal, thousands}, value);
  };
  const bool decimal = reads(other, f.thousands == other ? '\0' : f.thousands);
  for (const char t : {',', '.', ' ', '\'', '_'}) {
    if (t == f.decimal || !reads(f.decimal, t)) continue;
    const std::string groups = option("thousands", t);
    if (decimal && t == other)
      return with("commas or points", option("decimal", t) + " or " + groups + ", depending on the meaning");
    return with("thousands separators", groups);
  }
  if (decimal) return with(other == ',' ? "a decimal comma" : "a decimal point", option("decimal", other));
  for (const char t : {',', '.', ' ', '\'', '_'}) {
    if (t != other && reads(other, t))
      return with(other == ',' ? "a decimal comma" : "a decimal point", option("decimal", other) + ", " + option("thousands", t));
  }
  CsvDate date;
  constexpr const char* kOrders[] = {"ymd", "dmy", "mdy"};
  for (int order = 0; order < 3 && out.what.empty(); ++order) {
    if (!parse_date(cell, CsvDateOrder(order), date)) continue;
    CsvDate also;
    const std::string which = order == 0 ? ""
                                         : joined(", \"date_order\": \"", kOrders[order], '"',
                                                  order == 1 && parse_date(cell, CsvDateOrder::mdy, also) ? " or \"mdy\"" : "");
    return {"dates", "list the column in \"dates\"" + which};
  }
  return {};
}

}  // namespace halfstep
