// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tables/time_series.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>

#include "framework/base/check.h"
#include "framework/data/transforms/data_form.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("TimeSeries: windows, the values after them, and the part with the targets") {
  const TempDir dir;
  write_bytes(dir / "s", "t,v\n1,10\n2,20\n3,30\n4,40\n5,50\n6,60\n7,70\n8,80\n9,90\n10,100\n");
  const TimeSeriesDataset train(dir / "s", {.time = {"t"}, .window = 2, .horizon = 1, .end = 0.6, .standardize = false});
  CHECK(train.size() == 4);  // 30 to 60 are predicted
  const Batch batch = train.batch(std::vector<int64_t>{3, 0});
  CHECK(batch.input.shape() == Shape{2, 2, 1});
  CHECK(batch.input.to_vector<int>() == std::vector<int>{40, 50, 10, 20});
  CHECK(batch.target.shape() == Shape{2, 1});
  CHECK(batch.target.to_vector<int>() == std::vector<int>{60, 30});
  // The rest is predicted from everything before it.
  const TimeSeriesDataset val(dir / "s", {.window = 2, .begin = 0.6, .standardize = false});
  CHECK(val.size() == 4);
  CHECK(val.batch(std::vector<int64_t>{0}).input.to_vector<int>() == std::vector<int>{50, 60});
  const TimeSeriesDataset wide(dir / "s", {.window = 3, .horizon = 2, .stride = 2, .standardize = false});
  CHECK(wide.size() == 3);
  CHECK(wide.batch(std::vector<int64_t>{2}).input.to_vector<int>() == std::vector<int>{50, 60, 70});
  CHECK(wide.batch(std::vector<int64_t>{2}).target.to_vector<int>() == std::vector<int>{80, 90});
}

TEST_CASE("TimeSeries: a part is scaled by its own mean and deviation, or by another's") {
  const TempDir dir;
  write_bytes(dir / "s", "1\n3\n5\n100\n");
  const TimeSeriesDataset train(dir / "s", {.end = 0.75});
  CHECK(train.target_scale().mean == doctest::Approx(3));
  CHECK(train.target_scale().std == doctest::Approx(std::sqrt(8.0 / 3)));
  CHECK(train.batch(std::vector<int64_t>{0}).target.item<double>() == doctest::Approx(0));
  const TimeSeriesDataset val(dir / "s", {.begin = 0.75, .scaling = train.scaling()});
  CHECK(val.batch(std::vector<int64_t>{0}).target.item<double>() == doctest::Approx(97 / std::sqrt(8.0 / 3)));
}

namespace {

// A file with a row for each time and the values 1, 2, 3 and so on.
std::string table_of(const std::vector<std::string>& times) {
  std::string out = "t,v\n";
  for (size_t i = 0; i < times.size(); ++i) out += times[i] + ',' + std::to_string(i + 1) + '\n';
  return out;
}

// Every step-th day of the calendar, from a Monday on, but those that `without` names.
std::vector<std::string> days(int count, const std::function<bool(int)>& without, int step = 1) {
  std::vector<std::string> out;
  for (int i = 0; i < count; ++i) {
    const std::chrono::year_month_day day{std::chrono::sys_days{std::chrono::year{2024} / 1 / 1} + std::chrono::days{i * step}};
    char text[32];
    std::snprintf(text, sizeof text, "%04d-%02u-%02u", int(day.year()), unsigned(day.month()), unsigned(day.day()));
    if (!without(i)) out.emplace_back(text);
  }
  return out;
}

const auto none = [](int) { return false; };

}  // namespace

TEST_CASE("TimeSeries: steps that are larger than the others are gaps, and no window crosses one") {
  const TempDir dir;
  const auto data = [&](const std::vector<std::string>& times, int64_t window = 2) {
    write_bytes(dir / "s", table_of(times));
    return TimeSeriesDataset(dir / "s", {.time = {"t"}, .window = window, .standardize = false});
  };
  const auto made = [&](const std::vector<std::string>& times) { return data(times).notes().summary; };
  const TimeSeriesDataset cut = data(days(60, [](int i) { return i >= 30 && i < 50; }));
  CHECK(cut.notes().summary ==
        "left out: 2 windows across a place where rows are lacking; t: 1 step of 21 days where 38 have 1 (line 32)");
  CHECK(cut.size() == 40 - 2 - 2);
  const Batch at = cut.batch(std::vector<int64_t>{27, 28});  // the last before the gap, the first after it
  CHECK(at.target.to_vector<int>() == std::vector<int>{30, 33});
  CHECK(at.input.to_vector<int>() == std::vector<int>{28, 29, 31, 32});
  // The longest window that is left, and none.
  CHECK(data(days(60, [](int i) { return i >= 30 && i < 50; }), 29).size() == 1);
  CHECK(contains(
      message_of<DataError>([&] { data(days(60, [](int i) { return i >= 30 && i < 50; }), 30); }),
      "no window of 30 rows and 1 after it is whole: left out are 10 windows across a place where rows are lacking; t: 1 step"));
  // What the calendar varies is no gap: months, quarters, years, months' ends, business days with holidays, days without Fridays.
  std::vector<std::string> months, quarters, years, ends;
  for (int i = 0; i < 40; ++i) {
    months.push_back(std::to_string(2001 + i / 12) + '-' + std::to_string(1 + i % 12) + "-15");
    quarters.push_back(std::to_string(2001 + i / 4) + 'Q' + std::to_string(1 + i % 4));
    years.push_back(std::to_string(1700 + i));
    const std::chrono::year_month_day_last last{std::chrono::year{2001 + i / 12},
                                                std::chrono::month_day_last{std::chrono::month(1 + i % 12)}};
    ends.push_back(std::to_string(int(last.year())) + '-' + std::to_string(unsigned(last.month())) + '-' +
                   std::to_string(unsigned(last.day())));
  }
  for (const auto& times :
       {months, quarters, years, ends, days(60, [](int i) { return i % 7 > 4; }), days(60, none, 7),
        days(90, [](int i) { return i % 7 > 4 || i == 16 || i == 39 || i == 42; }), days(60, [](int i) { return i % 7 == 4; })})
    CHECK_MESSAGE(made(times) == "", times[0], ' ', times[1]);
  // And a gap is found in each, in its own unit.
  const auto without = [](std::vector<std::string> times, size_t from, size_t to) {
    times.erase(times.begin() + std::ptrdiff_t(from), times.begin() + std::ptrdiff_t(to));
    return times;
  };
  CHECK(contains(made(without(months, 10, 11)), "t: 1 step of 2 months where 37 have 1 (line 12)"));
  CHECK(contains(made(without(ends, 10, 34)), "t: 1 step of 25 months where 14 have 1 (line 12)"));
  CHECK(contains(made(without(quarters, 10, 12)), "t: 1 step of 9 months where 36 have 3 (line 12)"));
  CHECK(contains(made(without(years, 10, 20)), "t: 1 step of 11 where 28 have 1 (line 12)"));
  CHECK(contains(made(days(90, [](int i) { return i % 7 > 4 || (i > 20 && i < 28); })), "t: 1 step of 6 business days where"));
  CHECK(contains(made(without(days(40, none, 7), 8, 9)), "t: 1 step of 14 days where 37 have 7 (line 10)"));
  CHECK(contains(made(without(days(40, none), 8, 9)), "t: 1 step of 2 days where 37 have 1 (line 10)"));
  std::vector<std::string> hours;
  for (int i = 0; i < 40; ++i) hours.push_back("2024-01-0" + std::to_string(1 + i / 24) + ' ' + std::to_string(i % 24) + ":30");
  CHECK(
      contains(made(without(without(hours, 30, 33), 10, 12)), "t: 2 steps of 3 to 4 hours where 32 have 1 (the first in line 12)"));
  // Times without a rhythm have no gaps, and a warning says so.
  std::vector<std::string> odd;
  for (int i = 0, at = 0; i < 40; ++i) odd.push_back(std::to_string(at += 1 + (i % 4 == 3 ? i : 0)));
  const TimeSeriesDataset irregular = data(odd);
  CHECK((irregular.size() == 38 && irregular.notes().warnings.size() == 1));
  CHECK(contains(irregular.notes().warnings[0], "these are too many for gaps, so windows take rows as they follow each other"));
}

TEST_CASE("TimeSeries: missing values are left out or filled in, and no window sees what comes after it") {
  const TempDir dir;
  write_bytes(dir / "s", "t,v\n1,10\n2,20\n3,\n4,?\n5,50\n6,60\n9,90\n10,\n");
  const auto data = [&](SeriesMissing missing, int64_t window) {
    return TimeSeriesDataset(dir / "s",
                             {.time = {"t"}, .window = window, .standardize = false, .missing = missing, .missing_words = {"?"}});
  };
  const auto sample = [](const TimeSeriesDataset& d, int64_t i) {
    const Batch b = d.batch(std::vector<int64_t>{i});
    std::vector<int> out = b.input.to_vector<int>();
    out.push_back(b.target.item<int>());
    return out;
  };
  const TimeSeriesDataset dropped = data(SeriesMissing::drop, 1);  // 10 20 | 50 60 | 90
  CHECK((dropped.size() == 2 && sample(dropped, 1) == std::vector<int>{50, 60}));
  CHECK(contains(dropped.notes().summary, "3 rows with missing cells left out"));
  const TimeSeriesDataset line = data(SeriesMissing::interpolate, 3);
  CHECK(contains(line.notes().summary, "2 lacking rows and 3 missing cells are filled in by interpolation"));
  CHECK(contains(line.notes().summary, "windows before values that are missing"));
  // 10 20 (30) (40) 50 60 (70) (80) 90 (90): what is predicted is in the file, and open ends are the last value.
  REQUIRE(line.size() == 3);
  CHECK(sample(line, 0) == std::vector<int>{20, 20, 20, 50});
  CHECK(sample(line, 1) == std::vector<int>{30, 40, 50, 60});
  CHECK(sample(line, 2) == std::vector<int>{60, 60, 60, 90});
  const TimeSeriesDataset last = data(SeriesMissing::last, 3);
  REQUIRE(last.size() == 3);
  CHECK(sample(last, 1) == std::vector<int>{20, 20, 50, 60});
  // Without the value before, rows at the start are left out; the scale is that of the file's own values.
  write_bytes(dir / "s", "t,v\n1,\n2,1\n3,\n4,3\n5,5\n");
  const TimeSeriesDataset start(dir / "s", {.missing = SeriesMissing::interpolate});
  CHECK(start.target_scale().mean == doctest::Approx(3));
  CHECK(contains(start.notes().summary, "1 row at the start left out"));
  // Many single rows are filled in, and pauses with a rhythm, such as nights, are not.
  std::vector<std::string> hours;
  for (int i = 0; i < 140; ++i) hours.push_back(std::to_string(i / 7 * 24 + i % 7));
  write_bytes(dir / "s", table_of(hours));
  const TimeSeriesOptions fills{.time = {"t"}, .missing = SeriesMissing::interpolate};
  CHECK((TimeSeriesDataset(dir / "s", fills).size() == 139 && TimeSeriesDataset(dir / "s", fills).notes().warnings.size() == 1));
  write_bytes(dir / "s", table_of(days(70, [](int i) { return i % 5 == 3; })));
  CHECK(contains(TimeSeriesDataset(dir / "s", fills).notes().summary, "14 lacking rows are filled in by interpolation"));
  // A time that is wrong does not fill the memory.
  write_bytes(dir / "s", table_of({"2024-01-01", "2024-01-02", "2024-01-03", "2204-01-04"}));
  CHECK(contains(message_of<DataError>([&] { TimeSeriesDataset(dir / "s", {.time = {"t"}, .missing = SeriesMissing::last}); }),
                 "rows filled in up to here, and the file has 4\nhelp: is \"2204-01-04\" right?"));
}

TEST_CASE("TimeSeries: several columns, all or some of them to be predicted, each on its own scale") {
  const TempDir dir;
  write_bytes(dir / "s",
              "day,a,b,text,c\n2024-01-01,1,100,x,7\n2024-01-02,2,300,y,7\n2024-01-03,3,500,x,7\n2024-01-04,6,500,x,7\n");
  const TimeSeriesDataset all(dir / "s", {.all_columns = true, .time = {"day"}, .window = 2, .standardize = false});
  CHECK((all.input_shape() == Shape{2, 3} && all.target_shape() == Shape{3}));
  CHECK(contains(all.notes().summary, "columns that are no numbers are left out: text"));
  const Batch b = all.batch(std::vector<int64_t>{1});
  CHECK(b.input.to_vector<int>() == std::vector<int>{2, 300, 7, 3, 500, 7});
  CHECK(b.target.to_vector<int>() == std::vector<int>{6, 500, 7});
  const TimeSeriesDataset one(dir / "s", {.columns = {"a", "b"}, .target = {"b"}, .window = 1, .horizon = 2});
  CHECK((one.target_shape() == Shape{2} && one.target_scale().mean == 350 && one.target_scale().each.empty()));
  const TimeSeriesDataset two(dir / "s", {.columns = {"a", "b"}, .window = 1, .horizon = 2});
  CHECK(two.target_shape() == Shape{4});
  const Batch scaled = two.batch(std::vector<int64_t>{0});
  const std::vector<float> back = two.target_scale().in_units(scaled.target).to_vector<float>();
  for (size_t i = 0; i < 4; ++i) CHECK(back[i] == doctest::Approx(std::vector<double>{2, 300, 3, 500}[i]));
  // The prediction of no change repeats the last row of each window.
  const TimeSeriesOptions o = std::get<SeriesForm>(two.form().source).options;
  const std::vector<float> same = two.target_scale().in_units(last_values(scaled.input, o)).to_vector<float>();
  for (size_t i = 0; i < 4; ++i) CHECK(same[i] == doctest::Approx(i % 2 ? 100 : 1));
  const TimeSeriesOptions of_one = std::get<SeriesForm>(one.form().source).options;
  const Tensor of_b = last_values(one.batch(std::vector<int64_t>{1}).input, of_one);
  CHECK(of_b.shape() == Shape{1, 2});
  for (const float v : one.target_scale().in_units(of_b).to_vector<float>()) CHECK(v == doctest::Approx(300));
  const auto error = [&](const TimeSeriesOptions& wrong) {
    return message_of<ConfigError>([&] { TimeSeriesDataset(dir / "s", wrong); });
  };
  CHECK(contains(error({.columns = {"a"}, .target = {"b"}}), "the target \"b\" must be one of the columns"));
  CHECK(contains(error({.columns = {"a", "1"}}), "column \"a\" is among the columns twice"));
  CHECK(contains(error({.columns = {"a", "day"}, .time = {"day"}}), "column \"day\" is the time, and no input"));
  CHECK(contains(error({.columns = {"a", "d"}}), "has no column \"d\"; its 5 columns are day, a, b, text, c"));
}

TEST_CASE("TimeSeries: a time in several columns, and the last window of a file") {
  const TempDir dir;
  std::string text = "year,month,v\n";
  const auto month = [](int m) { return m == 0 ? std::string("Jan") : m == 1 ? "February" : std::to_string(m + 1); };
  for (int i = 0; i < 30; ++i)
    if (i != 20) text += std::to_string(2001 + i / 12) + ',' + month(i % 12) + ',' + std::to_string(i) + '\n';
  write_bytes(dir / "s", text);
  const TimeSeriesDataset months(dir / "s", {.time = {"month", "year"}, .window = 3, .standardize = false});
  CHECK(contains(months.notes().summary, "1 step of 2 months where 27 have 1 (line 22)"));
  const TimeSeriesOptions how = months.options();
  CHECK(read_last_window(dir / "s", how).input.to_vector<int>() == std::vector<int>{27, 28, 29});
  TimeSeriesOptions longer = how;
  longer.window = 12;
  CHECK(contains(message_of<DataError>([&] { read_last_window(dir / "s", longer); }),
                 "the last 12 rows must follow each other, but before line 22 rows are lacking"));
  longer.missing = SeriesMissing::interpolate;
  const LastWindow filled = read_last_window(dir / "s", longer);
  CHECK(filled.input.to_vector<int>() == std::vector<int>{18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29});
  CHECK(contains(filled.note, "1 lacking row is filled in by interpolation"));
  // Rows that are further apart than those of the training data are others.
  write_bytes(dir / "s", "year,month,v\n2001,1,1\n2002,1,2\n2003,1,3\n2004,1,4\n");
  CHECK(contains(message_of<DataError>([&] { read_last_window(dir / "s", how); }),
                 "rows must be 1 month apart, as in the training data, but"));
  write_bytes(dir / "s", "year,x,v\n2001,1,3\n2002,2,4\n");
  CHECK(contains(message_of<ConfigError>([&] {
                   TimeSeriesDataset(dir / "s", {.time = {"year", "x"}});
                 }),
                 "column \"x\" is not known as a part of time"));
}

TEST_CASE("TimeSeries: what is wrong with a file") {
  const TempDir dir;
  const auto error = [&](const char* text, const TimeSeriesOptions& options) {
    write_bytes(dir / "s", text);
    return message_of<DataError>([&] { TimeSeriesDataset(dir / "s", options); });
  };
  CHECK(contains(error("v,t\n1,1\n,2\n3,3\n", {.columns = {"v"}}), "s:3:1: column \"v\" has no value: the cell is empty"));
  CHECK(contains(error("v\n1\ntwo\n", {}), "s:3:1: column \"v\" must be a number, got \"two\""));
  CHECK(contains(error("t,v\n2,1\n10,2\n3,4\n", {.time = {"t"}}),
                 "s:4:1: column \"t\" must grow from row to row, but \"10\" is followed by \"3\" (lines 3 and 4)\n"));
  CHECK(contains(error("t,v\n3,2\n2,1\n1,4\n", {.time = {"t"}}), "(lines 2 and 3): the newest row is the first"));
  const std::string twice = error("t,v\n1949-01,1\n1949-01,2\n1949-02,3\n1949-02,4\n1949-03,5\n", {.time = {"t"}});
  CHECK(contains(twice, "but has \"1949-01\" in lines 2 and 3, and 1 more twice"));
  CHECK(contains(twice, "\"skip_rows\": [3, 5] leaves out the later rows of a time"));
  CHECK(TimeSeriesDataset(dir / "s", {.time = {"t"}, .format = {.skip_rows = {3, 5}}}).size() == 2);
  CHECK(
      contains(error("t,v\n9-Jam-2023,1\n10-Jan-2023,2\n", {.time = {"t"}}), "has \"9-Jam-2023\", which is no time that is read"));
  CHECK(contains(error("t,v\nMonday,1\nTuesday,2\n", {.time = {"t"}}), "s:2:1: column \"t\" has \"Monday\", which is no time"));
  CHECK(contains(error("t,v\n2024-01-01,1\n,2\n", {.time = {"t"}}), "s:3:1: column \"t\" must be a time, but the cell is empty"));
  CHECK(contains(error("v,w\n1,1\nNA,2\n3,\n4,\n", {.columns = {"v", "w"}, .missing_words = {"NA"}}),
                 "the cell is \"NA\", and 2 more have none\nhelp: \"missing\": \"interpolate\" or \"last\""));
  CHECK(contains(error("1\n2\n3\n", {.window = 3}), "has 3 of 3 rows, which is too few for a window of 3 and 1 after it"));
  CHECK(
      contains(message_of<ValueError>([&] { TimeSeriesDataset(dir / "s", {.window = 0}); }), "window must be >= 1, got 0"));
}

TEST_SUITE("data") {
  TEST_CASE("TimeSeries: the errors of predicting the value before") {
    const auto root = data_root();
    if (!root) return;
    const auto rmse = [&](const char* file, const char* time) {
      const TimeSeriesDataset val(*root / "timeseries" / file, {.time = {time}, .window = 1, .begin = 0.67});
      double squares = 0;
      for (int64_t i = 0; i < val.size(); ++i) {
        const Batch b = val.batch(std::vector<int64_t>{i});
        const double off = (b.input.item<double>() - b.target.item<double>()) * val.target_scale().std;
        squares += off * off;
      }
      return std::sqrt(squares / double(val.size()));
    };
    CHECK(rmse("airline-passengers.csv", "Month") == doctest::Approx(48.04).epsilon(1e-4));
    CHECK(rmse("daily-min-temperatures.csv", "Date") == doctest::Approx(2.624).epsilon(1e-3));
    CHECK(rmse("monthly-sunspots.csv", "Month") == doctest::Approx(18.40).epsilon(1e-3));
  }
}

TEST_CASE("TimeSeries: dates that can be read in two orders are read so that their steps are even") {
  const TempDir dir;
  const auto data = [&](const std::vector<std::string>& times, const std::optional<SeriesStep>& step = {}) {
    write_bytes(dir / "s", table_of(times));
    return TimeSeriesDataset(dir / "s", {.time = {"t"}, .window = 1, .standardize = false, .step = step});
  };
  const auto step = [&](const TimeSeriesDataset& d) {
    return *std::get<SeriesForm>(read_form(to_json(d.form())).source).options.step;
  };
  const auto first_days = [](int months, int digits) {
    std::vector<std::string> out;
    for (int i = 0; i < months; ++i) {
      char text[32];
      std::snprintf(text, sizeof text, "%02d/01/%0*d", 1 + i % 12, digits, (digits == 4 ? 2020 : 20) + i / 12);
      out.emplace_back(text);
    }
    return out;
  };
  const TimeSeriesDataset months = data(first_days(30, 4));
  CHECK(step(months) == SeriesStep{.unit = SeriesStep::Unit::month, .size = 1});
  CHECK(months.notes().summary ==
        "t: no day is above 12; dates are read month first, as \"02/01/2020\" is 2020-02-01, since so they are evenly apart");
  CHECK(months.notes().warnings.empty());
  // Fewer leave it open, unless the training data's step is known.
  const TimeSeriesDataset few = data(first_days(12, 4));
  CHECK(step(few).unit == SeriesStep::Unit::day);
  CHECK(few.notes().warnings ==
        std::vector<std::string>{
            "t: no day is above 12; dates are read day first, as \"02/01/2020\" is 2020-01-02; month first would "
            "fit as well: dates such as 2020-02-01 leave no choice"});
  CHECK(data(first_days(12, 4), step(months)).notes().warnings.empty());
  CHECK(contains(data(first_days(12, 4), step(months)).notes().summary, "read month first"));
  // Days of one month, day first; and rows that go back in one of the orders.
  CHECK(contains(data({"05.01.2020", "06.01.2020", "07.01.2020", "08.01.2020", "09.01.2020", "11.01.2020", "12.01.2020"})
                     .notes()
                     .warnings.at(0),
                 "t: no day is above 12; dates are read day first"));
  CHECK(contains(data({"11/01/2020", "12/01/2020", "01/02/2020", "02/02/2020", "03/02/2020"}).notes().summary,
                 "dates are read day first, as \"11/01/2020\" is 2020-01-11, since so they grow from row to row"));
  CHECK(data({"11/01/2020", "12/01/2020", "13/01/2020"}).notes().summary == "");
  // Years of two digits.
  const TimeSeriesDataset shorter = data(first_days(30, 2));
  CHECK(step(shorter).unit == SeriesStep::Unit::month);
  CHECK(contains(shorter.notes().summary, "month first, as \"02/01/20\" is 2020-02-01"));
  CHECK(data({"30/12/98", "31/12/98", "01/01/99"}).notes().summary == "t: years have two digits, \"30/12/98\" is 1998-12-30");
  CHECK(data({"30-Dec-70", "31-Dec-70", "1-Jan-71"}).size() == 2);
}

TEST_CASE("TimeSeries: Unix times that grow evenly are times, in seconds or parts of them") {
  const TempDir dir;
  const auto data = [&](const std::vector<std::string>& times, const std::optional<SeriesStep>& step = {}) {
    write_bytes(dir / "s", table_of(times));
    return TimeSeriesDataset(dir / "s", {.time = {"t"}, .window = 1, .standardize = false, .step = step});
  };
  const auto unix = [](int64_t from, int64_t step, int rows, int without = -1) {
    std::vector<std::string> out;
    for (int i = 0; i < rows; ++i)
      if (i != without) out.push_back(std::to_string(from + i * step));
    return out;
  };
  const auto step = [&](const TimeSeriesDataset& d) {
    return *std::get<SeriesForm>(read_form(to_json(d.form())).source).options.step;
  };
  const TimeSeriesDataset days = data(unix(1577836800, 86400, 40));
  CHECK(step(days) == SeriesStep{.unit = SeriesStep::Unit::day, .size = 1});
  CHECK(days.notes().summary == "t: numbers are read as Unix times in seconds, \"1577836800\" is 2020-01-01");
  const std::string gap = data(unix(1577836800000, 900000, 40, 20)).notes().summary;
  CHECK(contains(gap, "t: 1 step of 30 minutes where 37 have 15 (line 22)"));
  CHECK(contains(gap, "Unix times in milliseconds"));
  CHECK(contains(data(unix(1577840400000000, 3600000000, 10)).notes().summary,
                 "microseconds, \"1577840400000000\" is 2020-01-01 01:00"));
  // Months of the calendar, without a step that is always the same.
  const TimeSeriesDataset months = data({"1577836800", "1580515200", "1583020800", "1585699200", "1588291200", "1590969600"});
  CHECK(step(months) == SeriesStep{.unit = SeriesStep::Unit::month, .size = 1});
  // A few rows of new data are read as those of training were.
  CHECK(step(data({"1577836800", "1577923200"}, step(days))).unit == SeriesStep::Unit::day);
  CHECK(contains(data({"1577836800", "1577923200"}, step(days)).notes().summary, "Unix times"));
  // Numbers stay what they are that are no such times, or have no rhythm.
  const std::vector<std::string> irregular = {"1577836800", "1577836900", "1577999000", "1578000000", "1579000000"};
  for (const auto& times : {unix(1900, 1, 40), unix(200000000, 1, 40), unix(5000000, 3600, 40), irregular}) {
    CHECK_MESSAGE(step(data(times)).unit == SeriesStep::Unit::number, times[0]);
    CHECK_MESSAGE(!contains(data(times).notes().summary, "Unix"), times[0]);
  }
}

TEST_CASE("TimeSeries: months of years are times, and a column of one value is warned of") {
  const TempDir dir;
  write_bytes(dir / "m.csv", "Monat;a;b\n11.2015;1;7\n12.2015;2;7\n01.2016;4;7\n02.2016;8;7\n");
  const TimeSeriesDataset data(dir / "m.csv", {.columns = {"a", "b"}, .time = {"Monat"}, .window = 1});
  CHECK(data.options().step->unit == SeriesStep::Unit::month);
  CHECK(data.notes().warnings == std::vector<std::string>{"column \"b\" has one value alone, 7"});
}
