// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tables/series_times.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>

#include "framework/base/check.h"
#include "framework/base/list_text.h"
#include "framework/base/number_text.h"
#include "framework/data/tables/series_rows.h"

namespace halfstep {
namespace {

constexpr double kLongerStep = 1.5, kAlikeStep = 0.01;  // in usual steps: longer ones may be gaps; those within are equal
constexpr double kHolidays = 3;                         // business days between rows with holidays
constexpr size_t kFewGaps = 2;                          // accepted whatever their share
constexpr double kMostGaps = 0.1;                       // of all steps: more are a rhythm, such as nights, or irregular
constexpr double kUnixTimes[] = {86400, 86400e3, 86400e6, 86400e9};  // per day: in seconds, milliseconds, micro-, nanoseconds
constexpr double kFirstUnixDay = 1200, kLastUnixDay = 47482;         // April 1973; 2100-01-01
constexpr const char* kTimeForms =
    "times are dates (2024-03-18, 18.03.2024, 3/18/2024, 18-Mar-2024, 2024-03, 2024-W12, 2024Q1, with or without 14:30) or numbers "
    "that grow, such as years, 202403 and Unix times";

// The time of each row; a number is in CsvDate::days.
struct Times {
  std::vector<CsvDate> times;
  bool dates = true;
};

std::string quoted_time(std::string_view cell) { return joined('"', cell.substr(0, 60), '"'); }

// Returns the rows whose time is not after that of the row before.
std::vector<size_t> late_rows(const Times& t) {
  std::vector<size_t> out;
  for (size_t r = 1; r < t.times.size(); ++r)
    if (!(t.times[r - 1].days < t.times[r].days)) out.push_back(r);
  return out;
}

std::optional<Times> numbers_in(const CsvSheet& sheet, size_t column) {
  Times t;
  t.dates = false;
  for (size_t r = 0; r < sheet.rows(); ++r) {
    if (!sheet.is_number(r, column)) return {};
    t.times.push_back({.days = sheet.number(r, column)});
  }
  return t;
}

[[noreturn]] void refuse_cells(const CsvSheet& sheet, size_t column) {
  // Finds the faulty cell: the first one that differs from most cells, such as a date among numbers or a text among dates.
  size_t first = 0, readable = 0;
  for (const auto order : {CsvDateOrder::ymd, CsvDateOrder::dmy, CsvDateOrder::mdy}) {
    size_t bad = 0, count = 0;
    CsvDate ignored;
    for (size_t r = sheet.rows(); r-- > 0;)
      if (parse_date(sheet.cell(r, column), order, ignored))
        ++count;
      else
        bad = r;
    if (count > readable) readable = count, first = bad;
  }
  size_t bad = 0, numbers = 0;
  for (size_t r = sheet.rows(); r-- > 0;) sheet.is_number(r, column) ? void(++numbers) : void(bad = r);
  if (numbers > readable) first = bad;
  const std::string_view cell = sheet.cell(first, column);
  if (cell.empty()) sheet.fail_at(first, column, "must be a time, but the cell is empty", Help{kTimeForms});
  sheet.fail_at(first, column, "has ", quoted_time(cell), ", which is no time that is read", Help{kTimeForms});
}

// Reads a time that is spread over columns.
Times parts_in(const CsvSheet& sheet, const std::vector<size_t>& columns) {
  constexpr std::array<const char*, 6> kParts = {"year", "quarter", "month", "day", "hour", "minute"};
  std::array<const size_t*, 6> of{};
  for (const size_t& c : columns) {
    const std::string part = part_of_time(sheet.names()[c]);
    const auto place = size_t(std::find(kParts.begin(), kParts.end(), part) - kParts.begin());
    check<ConfigError>(place < of.size() && !of[place], kTimeSeries, "column \"", sheet.names()[c],
                       "\" is not known as a part of time",
                       Help{"several columns of time are named year, quarter or month, day, hour, minute"});
    of[place] = &c;
  }
  check<ConfigError>(of[0] != nullptr, kTimeSeries, "several columns of time need one that is named year");
  Times out;
  for (size_t r = 0; r < sheet.rows(); ++r) {
    std::array<double, 6> value = {0, 1, 1, 1, 0, 0};
    for (size_t p = 0; p < of.size(); ++p) {
      if (!of[p]) continue;
      const std::string_view cell = sheet.cell(r, *of[p]);
      CsvDate named;  // "March" without a year
      if (p == 2 && !sheet.is_number(r, *of[p]) && parse_date(joined(cell, " 2000"), CsvDateOrder::ymd, named))
        value[p] = named.month;
      else
        value[p] = sheet.number(r, *of[p]);
    }
    const int month = int(of[1] ? 3 * value[1] - 2 : value[2]);
    char text[64];
    std::snprintf(text, sizeof text, "%04d-%02d-%02d %02d:%02d", int(value[0]), month, int(value[3]), int(value[4]), int(value[5]));
    out.times.emplace_back();
    if (!parse_date(text, CsvDateOrder::ymd, out.times.back()))
      sheet.fail_at(r, *of[0], "and the columns with it are no time that is read: ", text);
  }
  return out;
}

// Throws if a row is not later than the one before.
void check_times(const CsvSheet& sheet, size_t column, const Times& t) {
  const std::vector<size_t> late = late_rows(t);
  if (late.empty()) return;
  const size_t r = late[0];
  std::vector<size_t> twice;
  for (const size_t row : late)
    if (t.times[row].days == t.times[row - 1].days) twice.push_back(row);
  const std::string cell = quoted_time(sheet.cell(r, column)), before = quoted_time(sheet.cell(r - 1, column));
  const std::string lines = joined("lines ", sheet.line(r - 1), " and ", sheet.line(r));
  if (twice.size() == late.size() && twice.size() <= 20) {
    std::string skip;
    for (const size_t row : twice) skip += joined(skip.empty() ? "" : ", ", sheet.line(row));
    sheet.fail_at(r, column, "must grow from row to row, but has ", cell, " in ", lines,
                  twice.size() > 1 ? joined(", and ", twice.size() - 1, " more twice") : "",
                  Help{joined("\"skip_rows\": [", skip, "] leaves out the later row", twice.size() > 1 ? "s" : "", " of a time")});
  }
  if (twice.size() == late.size())
    sheet.fail_at(r, column, "must grow from row to row, but has ", cell, " in ", lines, ", and ", twice.size() - 1, " more twice",
                  Help{"leave \"time\" out where several rows of a time follow each other; or keep one row of each in the file"});
  const bool reversed = late.size() > 1 && late.size() == t.times.size() - 1 && twice.empty();
  sheet.fail_at(
      r, column, "must grow from row to row, but ", before, " is followed by ", cell, " (", lines, ")",
      reversed ? ": the newest row is the first" : "",
      Help{reversed ? "turn the rows round, in Python: import pandas; pandas.read_csv(FILE)[::-1].to_csv(NEW, index=False)"
                    : "a file with several series, one below the other, must be a file for each; else sort the rows by time"});
}

// Returns the position of a date on the scale of a unit.
double time_position(const CsvDate& d, const SeriesStep& s) {
  if (s.unit == SeriesStep::Unit::month) return 12.0 * d.year + d.month;
  if (s.unit != SeriesStep::Unit::business_day) return d.days;
  const double day = std::floor(d.days), weeks = std::floor((day + 3) / 7);  // 1970-01-01 was a Thursday
  const auto passed = unsigned(s.week & ((1U << unsigned(d.weekday)) - 1));
  return weeks * std::popcount(unsigned(s.week)) + std::popcount(passed) + (d.days - day);
}

std::vector<double> steps_of(const Times& t, const SeriesStep& s) {
  std::vector<double> out;
  for (size_t r = 1; r < t.times.size(); ++r) out.push_back(time_position(t.times[r], s) - time_position(t.times[r - 1], s));
  return out;
}

double median_step(std::vector<double> all) {
  const auto middle = all.begin() + std::ptrdiff_t(all.size() / 2);
  std::nth_element(all.begin(), middle, all.end());
  return *middle;
}

bool is_alike(double step, double usual) { return std::abs(step - usual) <= kAlikeStep * usual; }

size_t unlike_steps(const Times& t, const SeriesStep& s) {
  const std::vector<double> steps = steps_of(t, s);
  return size_t(std::count_if(steps.begin(), steps.end(), [&](double d) { return !is_alike(d, s.size); }));
}

// Returns the unit in which most steps are equal: days, days of the week that occur, or calendar months.
SeriesStep usual_step(const Times& t) {
  using Unit = SeriesStep::Unit;
  SeriesStep best{.unit = t.dates ? Unit::day : Unit::number};
  best.size = median_step(steps_of(t, best));
  if (!t.dates) return best;
  const auto unlike = [&](const SeriesStep& s) { return unlike_steps(t, s); };
  auto least = unlike(best);
  unsigned week = 0;
  for (const CsvDate& d : t.times) week |= 1U << unsigned(d.weekday);
  const int days = std::popcount(week);
  if (days >= 2 && days < 7 && t.times.size() >= 2 * size_t(days)) {
    SeriesStep business{.unit = Unit::business_day, .size = 1, .week = uint8_t(week)};
    business.size = median_step(steps_of(t, business));
    if (const auto its = unlike(business); is_alike(business.size, 1) && its < least)
      business.size = 1, best = business, least = its;
  }
  SeriesStep months{.unit = Unit::month};
  const std::vector<double> steps = steps_of(t, months);
  months.size = median_step(steps);
  if (*std::min_element(steps.begin(), steps.end()) >= 1 && unlike(months) < least) best = months;
  return best;
}

Times from_unix(const Times& numbers, double of_day) {
  Times out;
  for (const CsvDate& d : numbers.times) out.times.push_back(date_of_days(d.days / of_day));
  return out;
}

// Dates that are written as numbers, and their digits.
enum class DigitForm : uint8_t { month, week, quarter, day_of_year, hour, minute, second };
struct DigitFormName {
  DigitForm form;
  int digits;
  const char* name;
};
constexpr DigitFormName kDigitForms[] = {{DigitForm::month, 6, "YYYYMM"},          {DigitForm::week, 6, "YYYYWW"},
                                         {DigitForm::quarter, 5, "YYYYQ"},         {DigitForm::day_of_year, 7, "YYYYDDD"},
                                         {DigitForm::hour, 10, "YYYYMMDDHH"},      {DigitForm::minute, 12, "YYYYMMDDhhmm"},
                                         {DigitForm::second, 14, "YYYYMMDDhhmmss"}};

// Returns the date of a number in this form; nothing if it is none.
std::optional<CsvDate> date_in_digits(double value, const DigitFormName& form) {
  constexpr int kFirstYear = 1700, kLastYear = 2200;
  if (!(value >= std::pow(10, form.digits - 1)) || !(value < std::pow(10, form.digits)) || value != std::floor(value)) return {};
  const std::string digits = std::to_string(int64_t(value)), year = digits.substr(0, 4), rest = digits.substr(4);
  if (std::stoi(year) < kFirstYear || std::stoi(year) > kLastYear) return {};
  std::string text = year + '-' + rest.substr(0, 2);
  if (form.form == DigitForm::week) text = year + "-W" + rest;
  if (form.form == DigitForm::quarter) text = year + 'Q' + rest;
  if (form.form == DigitForm::day_of_year) text = year + "-01-01";
  if (form.form >= DigitForm::hour) {
    text += '-' + rest.substr(2, 2) + ' ' + rest.substr(4, 2) + ':' + (rest.size() > 6 ? rest.substr(6, 2) : "00");
    if (rest.size() > 8) text += ':' + rest.substr(8, 2);
  }
  CsvDate out;
  if (!parse_date(text, CsvDateOrder::ymd, out)) return {};
  if (form.form != DigitForm::day_of_year) return out;
  out = date_of_days(out.days + std::stoi(rest) - 1);
  return out.year == std::stoi(year) ? std::optional(out) : std::nullopt;
}

const char* unix_unit(double of_day) {
  return of_day < 1e6 ? "seconds" : of_day < 1e9 ? "milliseconds" : of_day < 1e12 ? "microseconds" : "nanoseconds";
}

// The unit in which people read steps, and the factor to the own unit.
struct StepUnit {
  std::string name;
  double size;
};
StepUnit unit_to_read(const SeriesStep& s) {
  using Unit = SeriesStep::Unit;
  if (s.unit == Unit::number) return {"", 1};
  if (s.unit == Unit::business_day) return {"business day", 1};
  if (s.unit == Unit::month) return std::fmod(s.size, 12) == 0 ? StepUnit{"year", 12} : StepUnit{"month", 1};
  for (const auto& [name, size] : {std::pair("day", 1.0), {"hour", 1.0 / 24}, {"minute", 1.0 / 1440}})
    if (s.size >= size * (1 - kAlikeStep)) return {name, size};
  return {"second", 1.0 / 86400};
}

// Returns whether steps of this size match the training data's. A few rows decide little.
bool fits_known(const SeriesStep& step, const SeriesStep& known, size_t rows) {
  using Unit = SeriesStep::Unit;
  if ((known.unit == Unit::number) != (step.unit == Unit::number)) return false;
  const auto days = [](const SeriesStep& s) { return s.size * (s.unit == Unit::month ? 30.4 : 1); };
  const double ratio = days(step) / days(known);
  return rows < 4 || (ratio < kLongerStep && ratio > 1 / kLongerStep);
}

// Returns the dates of numbers that are dates in digits, with their form: if more steps are equal than between the numbers, or if
// they fit the training data's.
std::optional<Times> from_digits(const Times& numbers, const std::optional<SeriesStep>& known, const char** form_name = nullptr) {
  const bool has_known = known && known->size > 0;
  if (numbers.times.empty() || (!has_known && numbers.times.size() < 3)) return {};
  if (has_known && known->unit == SeriesStep::Unit::number) return {};
  std::optional<Times> best;
  size_t least = has_known ? numbers.times.size() : unlike_steps(numbers, usual_step(numbers));
  for (const DigitFormName& form : kDigitForms) {
    Times dates;
    for (const CsvDate& d : numbers.times) {
      const std::optional<CsvDate> date = date_in_digits(d.days, form);
      if (!date) break;
      dates.times.push_back(*date);
    }
    if (dates.times.size() < numbers.times.size() || !late_rows(dates).empty()) continue;
    const bool is_single = dates.times.size() == 1;
    const SeriesStep step = is_single ? *known : usual_step(dates);
    const size_t unlike = is_single ? 0 : unlike_steps(dates, step);
    if (unlike >= least || (has_known && !fits_known(step, *known, dates.times.size()))) continue;
    least = unlike, best = std::move(dates);
    if (form_name) *form_name = form.name;
  }
  return best;
}

// How badly an order of day, month and year fits; less is better.
struct Unfit {
  size_t late = 0, far = 0, unlike = 0;  // rows that are not later; steps unlike the training data's; steps unlike most others
  auto operator<=>(const Unfit&) const = default;
};
Unfit unfit(const Times& t, const std::optional<SeriesStep>& known) {
  Unfit out{.late = late_rows(t).size()};
  if (out.late > 0 || t.times.size() < 3) return out;
  const SeriesStep step = usual_step(t);
  if (known && known->size > 0) out.far = !fits_known(step, *known, t.times.size());
  out.unlike = unlike_steps(t, step);
  return out;
}

// Returns the dates of a column in this order; nothing if a cell is not a date.
std::optional<Times> dates_in(const CsvSheet& sheet, size_t column, CsvDateOrder order) {
  Times t;
  t.times.resize(sheet.rows());
  for (size_t r = 0; r < sheet.rows(); ++r)
    if (!parse_date(sheet.cell(r, column), order, t.times[r])) return {};
  return t;
}

// Returns the dates of one column, in the order of day, month and year that fits all; if two fit, in the better one.
std::optional<Times> dates_in(const CsvSheet& sheet, size_t column, const std::optional<SeriesStep>& known,
                              SeriesTimes& out_times) {
  const std::string& name = sheet.names()[column];
  const auto as_read = [&](const Times& t, size_t row) {
    return joined(quoted_time(sheet.cell(row, column)), " is ", text_of(t.times[row]));
  };
  std::optional<Times> out = dates_in(sheet, column, CsvDateOrder::ymd);
  if (!out) {
    std::optional<Times> day = dates_in(sheet, column, CsvDateOrder::dmy), month = dates_in(sheet, column, CsvDateOrder::mdy);
    if (!day && !month) return {};
    bool month_first = !day;
    if (day && month) {
      const Unfit of_day = unfit(*day, known), of_month = unfit(*month, known);
      month_first = of_month < of_day;
      size_t row = 0;  // a row that shows the difference
      while (row < sheet.rows() && day->times[row].days == month->times[row].days) ++row;
      const std::string first = joined(name, ": no day is above 12; dates are read ", month_first ? "month" : "day", " first, as ");
      if (row < sheet.rows() && of_day != of_month)
        out_times.read_text = first + as_read(month_first ? *month : *day, row) + ", since so they " +
                              (of_day.late != of_month.late ? "grow from row to row" : "are evenly apart");
      else if (row < sheet.rows())
        out_times.doubt_text = first + as_read(*day, row) + "; month first would fit as well: dates such as " +
                               text_of(month->times[row]) + " leave no choice";
    }
    out = month_first ? std::move(month) : std::move(day);
  }
  const auto is_short = [](const CsvDate& d) { return d.short_year; };
  if (const auto at = std::find_if(out->times.begin(), out->times.end(), is_short);
      at != out->times.end() && out_times.read_text.empty())
    out_times.read_text = joined(name, ": years have two digits, ", as_read(*out, size_t(at - out->times.begin())));
  return out;
}

std::string time_text(double v) { return general_text(v, 4); }

std::string length_text(double steps, const StepUnit& r) {
  const std::string count = time_text(steps / r.size);
  return count + (r.name.empty() ? "" : " " + r.name + (count == "1" ? "" : "s"));
}

}  // namespace

std::optional<CsvDateOrder> order_by_steps(const CsvSheet& sheet, size_t column) {
  const std::optional<Times> day = dates_in(sheet, column, CsvDateOrder::dmy), month = dates_in(sheet, column, CsvDateOrder::mdy);
  if (!day || !month) return {};
  const Unfit of_day = unfit(*day, {}), of_month = unfit(*month, {});
  if (of_day == of_month || std::min(of_day, of_month).late > 0) return {};
  return of_month < of_day ? CsvDateOrder::mdy : CsvDateOrder::dmy;
}

double unix_times_of_day(const CsvSheet& sheet, size_t column) {
  const std::optional<Times> t = numbers_in(sheet, column);
  if (!t || t->times.size() < 3 || !late_rows(*t).empty()) return 0;
  SeriesStep step{.unit = SeriesStep::Unit::number};
  step.size = median_step(steps_of(*t, step));
  if (step.size == 1) return 0;  // they count something
  for (const double of_day : kUnixTimes) {
    if (t->times.front().days < kFirstUnixDay * of_day || t->times.back().days >= kLastUnixDay * of_day) continue;
    const Times dates = from_unix(*t, of_day);
    if (double(unlike_steps(dates, usual_step(dates))) <= kMostGaps * double(t->times.size())) return of_day;
  }
  return 0;
}

bool are_dates_in_digits(const CsvSheet& sheet, size_t column) {
  const std::optional<Times> t = numbers_in(sheet, column);
  return t && late_rows(*t).empty() && from_digits(*t, {});
}

std::string text_of(const SeriesStep& step) { return length_text(step.size, unit_to_read(step)); }

std::string part_of_time(const std::string& name) {
  const std::string small = lower_case(name);
  constexpr std::pair<const char*, const char*> kNames[] = {{"yr", "year"},  {"qtr", "quarter"}, {"mon", "month"},
                                                            {"mo", "month"}, {"mnth", "month"},  {"hr", "hour"},
                                                            {"dom", "day"},  {"min", "minute"},  {"minutes", "minute"}};
  for (const auto& [given, part] : kNames)
    if (small == given) return part;
  for (const char* part : {"year", "quarter", "month", "day", "hour", "minute"})
    if (small == part) return part;
  return "";
}

namespace {

// Returns unix_times_of_day of a column of numbers if the training data's times were missing or dates, whose unit a few rows may
// not show.
double times_of_day(const CsvSheet& sheet, size_t column, const std::optional<SeriesStep>& known) {
  if (!known || known->size == 0) return unix_times_of_day(sheet, column);
  if (known->unit == SeriesStep::Unit::number) return 0;
  for (const double of_day : kUnixTimes)
    if (sheet.number(0, column) >= kFirstUnixDay * of_day && sheet.number(sheet.rows() - 1, column) < kLastUnixDay * of_day)
      return of_day;
  return 0;
}

// Reads the times as dates or numbers, and notes a choice.
Times read_cells(const CsvSheet& sheet, const std::vector<size_t>& columns, const std::optional<SeriesStep>& known,
                 SeriesTimes& out) {
  const size_t column = columns.at(0);
  std::optional<Times> read;
  if (columns.size() > 1) read = parts_in(sheet, columns);
  if (!read) read = dates_in(sheet, column, known, out);
  if (!read) read = numbers_in(sheet, column);
  if (!read) refuse_cells(sheet, column);
  check_times(sheet, column, *read);
  const char* form = "";
  if (auto dates = read->dates ? std::nullopt : from_digits(*read, known, &form)) {
    read = std::move(dates);
    out.read_text = joined(sheet.names()[column], ": numbers are read as ", form, ", ", quoted_time(sheet.cell(0, column)), " is ",
                           text_of(read->times[0]));
  }
  if (const double day = read->dates ? 0 : times_of_day(sheet, column, known); day > 0) {
    read = from_unix(*read, day);
    out.read_text = joined(sheet.names()[column], ": numbers are read as Unix times in ", unix_unit(day), ", ",
                           quoted_time(sheet.cell(0, column)), " is ", text_of(read->times[0]));
  }
  return *read;
}

}  // namespace

SeriesTimes read_times(const CsvSheet& sheet, const std::vector<size_t>& columns, const std::optional<SeriesStep>& known) {
  SeriesTimes out;
  const Times t = read_cells(sheet, columns, known, out);
  if (t.times.size() < 2) return out.step.size = 0, out;
  out.step = usual_step(t);
  const std::string& name = sheet.names()[columns[0]];
  if (known && known->size > 0) {
    const bool fits = fits_known(out.step, *known, t.times.size());
    check<DataError>(fits, kTimeSeries, "column \"", name, "\": rows must be ", text_of(*known),
                     " apart, as in the training data, but are ", text_of(out.step));
    out.step = *known;
  }
  const double usual = out.step.size;
  const bool business = out.step.unit == SeriesStep::Unit::business_day;
  const std::vector<double> steps = steps_of(t, out.step);
  size_t shorter = 0, holidays = 0;
  double least = INFINITY, most = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const double times = steps[i] / usual;
    shorter += times < 0.5;
    if (times <= kLongerStep) continue;
    if (business && times <= kHolidays + 0.5) {
      ++holidays;
      continue;
    }
    out.on_grid = out.on_grid && std::abs(times - std::round(times)) <= 0.1;
    least = std::min(least, steps[i]), most = std::max(most, steps[i]);
    out.gaps.push_back({i + 1, std::max<int64_t>(1, std::llround(times) - 1)});
  }
  if (out.gaps.empty()) return out;
  const StepUnit r = unit_to_read(out.step);
  const size_t gaps = out.gaps.size(), others = steps.size() - gaps - shorter - holidays;
  std::string size = length_text(most, r);
  if (time_text(least / r.size) != time_text(most / r.size)) size = time_text(least / r.size) + " to " + size;
  std::string text =
      joined(name, ": ", gaps, gaps == 1 ? " step of " : " steps of ", size, " where ", others, others == 1 ? " has " : " have ",
             time_text(usual / r.size), " (", gaps > 1 ? "the first in " : "", "line ", sheet.line(out.gaps[0].row), ')');
  if (holidays > 0) text += joined(", ", holidays, " of 2 or 3 count as holidays");
  if (shorter > 0) text += joined(", ", shorter, shorter == 1 ? " is shorter" : " are shorter");
  if (gaps > kFewGaps && double(gaps) > kMostGaps * double(steps.size()))
    out.irregular_text = text + ": these are too many for gaps, so windows take rows as they follow each other";
  else
    out.gaps_text = text;
  return out;
}

}  // namespace halfstep
