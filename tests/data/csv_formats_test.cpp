// SPDX-License-Identifier: Apache-2.0
// Tables as they come from spreadsheets and other countries.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/check.h"
#include "framework/data/tables/csv.h"
#include "framework/data/tables/time_series.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

struct Sheet {
  TempDir dir;
  std::filesystem::path path = dir / "s.csv";
  explicit Sheet(std::string_view text) { write_bytes(path, text); }
  CsvDataset read(const CsvOptions& options = {}) const { return CsvDataset(path, options); }
  std::string fault(const CsvOptions& options = {}) const {
    return message_of<DataError>([&] { read(options); });
  }
};

std::optional<double> number_in(std::string_view cell, char decimal, char thousands) {
  double value = 0;
  return parse_number(cell, {0, decimal, thousands}, value) ? std::optional(value) : std::nullopt;
}

std::optional<CsvDate> date_in(std::string_view cell, CsvDateOrder order = CsvDateOrder::ymd) {
  CsvDate date;
  return parse_date(cell, order, date) ? std::optional(date) : std::nullopt;
}

std::vector<float> values_of(const CsvDataset& data) { return data.input().to_vector<float>(); }

}  // namespace

TEST_CASE("csv: numbers with a decimal comma and separators of thousands") {
  CHECK(number_in("1,5", ',', 0) == 1.5);
  CHECK(number_in("-,5", ',', 0) == -0.5);
  CHECK(number_in("+2,5e3", ',', 0) == 2500);
  CHECK(number_in("1.234.567,89", ',', '.') == 1234567.89);
  CHECK(number_in("1,234", '.', ',') == 1234);
  CHECK(number_in("1\xc2\xa0"
                  "234,5",
                  ',', ' ') == 1234.5);
  CHECK(number_in("1\xe2\x80\x99"
                  "234.5",
                  '.', '\'') == 1234.5);
  CHECK(number_in("1234,5", ',', '.') == 1234.5);
  for (const char* wrong : {"1.5", "12.34,5", "1.2345,6", "1234.567,8", ".123,5", "1,5,2", "1.", "+-5", "1.234.56"})
    CHECK_MESSAGE(!number_in(wrong, ',', '.'), wrong);
  CHECK(!number_in("1.5", ',', 0));
  CHECK(!number_in("1,5", '.', 0));
}

TEST_CASE("csv: numbers in other signs, where they mean one thing alone") {
  const auto is = [](std::string_view cell, double value, char decimal = '.') {
    CHECK_MESSAGE(number_in(cell, decimal, 0) == value, std::string(cell));
  };
  is("\xe2\x88\x92"
     "5.5",
     -5.5);  // the minus sign
  is("\xe2\x80\x93"
     "5",
     -5);  // an en dash
  is("1\xc2\xa0"
     "234,5",
     1234.5, ',');  // a no-break blank
  is("1\xe2\x80\xaf"
     "234\xe2\x80\xaf"
     "567",
     1234567);  // a narrow one
  is("1'234.5", 1234.5);
  is("-1\xe2\x80\x99"
     "234",
     -1234);                                                     // a typographic apostrophe
  is("\xef\xbc\x91\xef\xbc\x92\xef\xbc\x8e\xef\xbc\x95", 12.5);  // full-width
  is("\xd9\xa1\xd9\xa2\xd9\xab\xd9\xa5", 12.5);                  // Arabic
  for (const char* wrong : {"5\xe2\x88\x92", "1'23", "12'34'567",
                            "1'234\xc2\xa0"
                            "567",
                            "\xe2\x88\x92",
                            "1\xe2\x80\x93"
                            "2",
                            "(1.2)", "1.2-", "$5", "1 234", "\xe2\x88\x92-5"})
    CHECK_MESSAGE(!number_in(wrong, '.', 0), wrong);
  CHECK(!number_in("1'234", '.', ','));  // another separator was said
  const Sheet sheet(
      "a,y\n\xe2\x88\x92"
      "1,5\n2'000,7\n3,8\n");
  const CsvDataset data = sheet.read({.classification = false});
  CHECK(values_of(data) == std::vector<float>{-1, 2000, 3});
  CHECK(contains(data.notes().summary,
                 "1 number with another minus sign, such as \"\xe2\x88\x92"
                 "1\", which is -1"));
  CHECK(contains(data.notes().summary, "1 number with apostrophes between thousands, such as \"2'000\", which is 2000"));
}

TEST_CASE("csv: accounting's marks") {
  const CsvFormat books{.thousands = ',', .accounting = true};
  const auto is = [&](std::string_view cell, double value) {
    double read = 0;
    CHECK_MESSAGE((parse_number(cell, books, read) && read == value), std::string(cell));
  };
  is("(1.5)", -1.5);
  is("($1,234.50)", -1234.5);
  is("$ 5", 5);
  is("-$5", -5);
  is("$-5", -5);
  is("5 \xe2\x82\xac", 5);
  is("5.25-", -5.25);
  is("\xc2\xa3"
     "5-",
     -5);
  is("-5", -5);
  double ignored = 0;
  for (const char* wrong : {"(-5)", "-5-", "()", "$", "(a)", "5%", "--5", "$$", "(5", "5)"})
    CHECK_MESSAGE(!parse_number(wrong, books, ignored), wrong);
  const Sheet sheet("a,y\n(1),5\n$2,7\n3-,8\n");
  const CsvDataset data = sheet.read({.format = {.accounting = true}, .classification = false});
  CHECK(values_of(data) == std::vector<float>{-1, 2, -3});
  CHECK(contains(data.notes().summary, "1 number with parentheses for negative ones, such as \"(1)\", which is -1"));
  CHECK(contains(Sheet("a,y\n$1,5\n\xe2\x82\xac"
                       "2,7\n")
                     .fault({.format = {.accounting = true}, .classification = false}),
                 ":3:1: column \"a\" must have one currency, got \"\xe2\x82\xac"
                 "2\" after numbers in $"));
  CHECK(contains(Sheet("a,y\n1,5\n(2),7\n").fault({.classification = false}),
                 "must be a number, got \"(2)\"\nhelp: \"accounting\": true"));
}

TEST_CASE("csv: dates in three orders, with times and zones") {
  const auto day = date_in("2024-03-18");
  REQUIRE(day);
  CHECK(day->days == 19800);
  CHECK((day->year == 2024 && day->month == 3 && day->day == 18 && day->weekday == 0 && day->hour == 0 && !day->timed));
  CHECK(date_in("18.3.2024", CsvDateOrder::dmy)->days == 19800);
  CHECK(date_in("03/18/2024", CsvDateOrder::mdy)->days == 19800);
  CHECK(date_in("20240318")->days == 19800);
  CHECK(date_in("2024/03")->days == 19783);
  CHECK(date_in("1969-12-31")->days == -1);
  CHECK(date_in("2024-03-18 18:00")->days == 19800.75);
  CHECK(date_in("2024-03-18T06:30:36.5")->hour == doctest::Approx(6.51013888889));
  CHECK(date_in("3/18/2024 12:15 AM", CsvDateOrder::mdy)->hour == 0.25);
  CHECK(date_in("3/18/2024 2:30 PM", CsvDateOrder::mdy)->hour == 14.5);
  const auto utc = date_in("2024-03-18T00:30:00+01:00");
  REQUIRE(utc);
  CHECK((utc->day == 17 && utc->hour == 23.5 && utc->timed));
  CHECK(date_in("2024-03-18T00:30Z")->hour == 0.5);
  for (const char* wrong : {"2023-02-29", "2024-13-01", "24-03-18", "2024-03/18", "2024-03-18 25:00", "2024-03-18 12:60", "2024",
                            "x", "2024-03-18 1", "2024-03-18T12:00+1", "2024-03-18x", ""})
    CHECK_MESSAGE(!date_in(wrong), wrong);
  // Years of two digits, behind the day and the month; "1.2.24" may be a version.
  CHECK(date_in("18.03.24", CsvDateOrder::dmy)->days == 19800);
  CHECK((date_in("3/18/24 06:00", CsvDateOrder::mdy)->days == 19800.25 && date_in("3/18/24", CsvDateOrder::mdy)->short_year));
  CHECK((date_in("1/1/68", CsvDateOrder::dmy)->year == 2068 && date_in("1/1/69", CsvDateOrder::dmy)->year == 1969));
  CHECK((date_in("18-Mar-24")->days == 19800 && date_in("Mar-24")->days == 19783 && date_in("18 Mar 24 06:00")->days == 19800.25));
  for (const char* wrong : {"1.2.24", "18.03.241", "18.03.2", "2024-3-181", "18/03/24a", "Mar-2", "Mar-241"})
    CHECK_MESSAGE((!date_in(wrong, CsvDateOrder::dmy) && !date_in(wrong)), wrong);
  CHECK((text_of(date_of_days(19800)) == "2024-03-18" && text_of(date_of_days(-0.25)) == "1969-12-31 18:00"));
  for (int minute = 1; minute < 24 * 60; ++minute) {  // seconds are left out, not rounded to another minute or day
    char text[24];
    std::snprintf(text, sizeof text, "2024-03-18 %02d:%02d", minute / 60, minute % 60);
    for (const char* seconds : {"", ":31", ":59"})
      CHECK(text_of(date_of_days(date_in(text + std::string(seconds)).value_or(CsvDate()).days)) == text);
  }
  // Names of months and quarters say the order themselves.
  for (const auto order : {CsvDateOrder::ymd, CsvDateOrder::dmy, CsvDateOrder::mdy}) {
    for (const char* same : {"18-Mar-2024", "18 March 2024", "Mar 18, 2024", "march 18 2024", "2024-Mar-18", "18MAR2024",
                             "18. Mar. 2024", "2024 March 18"})
      CHECK_MESSAGE((date_in(same, order) && date_in(same, order)->days == 19800), same);
    CHECK(date_in("18-Mar-2024 18:00", order)->days == 19800.75);
    CHECK(date_in("2024 Mar 06:00", order)->days == 19783.25);
    for (const char* same : {"Mar-2024", "March 2024", "2024-Mar", "2024 March"})
      CHECK_MESSAGE((date_in(same, order) && date_in(same, order)->days == 19783), same);
    for (const char* same : {"2024Q3", "2024-Q3", "2024 q3", "Q3 2024"})
      CHECK_MESSAGE((date_in(same, order) && date_in(same, order)->days == 19905), same);
    for (const char* wrong : {"Mar", "Mar 18", "Mar 18 24", "31-Feb-2024", "2024Q5", "18 Q3 2024", "Marble 2024", "18-Mar-2024x",
                              "Q3", "Mar 2024 Mar", "18-Mai-2024"})
      CHECK_MESSAGE(!date_in(wrong, order), wrong);
  }
  CHECK(!date_in("13/18/2024", CsvDateOrder::mdy));
}

TEST_CASE("csv: dates that mean one day in any order") {
  for (const auto order : {CsvDateOrder::ymd, CsvDateOrder::dmy, CsvDateOrder::mdy}) {
    for (const char* month : {"04/2015", "04-2015", "04.2015", "2015-04-01", "2015.04.01"})
      CHECK_MESSAGE(date_in(month, order).value_or(CsvDate()).days == 16526, month);
    for (const char* none : {"13/2015", "4.2015", "04.1815", "04.20155", "2015-04/01", "2015-13-01"})
      CHECK_MESSAGE(!date_in(none, order), none);
  }
  for (const char* week : {"2024-W12", "2024W12", "2024-w12-1"})
    CHECK_MESSAGE(date_in(week).value_or(CsvDate()).days == 19800, week);
  CHECK(
      (date_in("2020-W53-7")->days == 18630 && date_in("2021-W01")->days == 18631 && date_in("2024-W12 06:00")->days == 19800.25));
  for (const char* none : {"2021-W53", "2024-W00", "2024-W1", "2024-W12-8", "2024-W12-", "W12-2024"})
    CHECK_MESSAGE(!date_in(none), none);
  CHECK(date_in("2015-04-01 06:00", CsvDateOrder::dmy).value_or(CsvDate()).days == 16526.25);
}

TEST_CASE("csv: what a German spreadsheet saves") {
  const Sheet sheet(
      "\xef\xbb\xbf"
      "Datum;Ort;Preis;Fl\xc3\xa4"
      "che\r\n18.03.2024;K\xc3\xb6ln;1.234,50;80,5\r\n19.03.2024;Bonn;990,00;61\r\n");
  const CsvOptions options{.format = {.decimal = ',', .thousands = '.'},
                           .target = "Preis",
                           .classification = false,
                           .dates = {"Datum"},
                           .date_order = CsvDateOrder::dmy};
  const CsvDataset data = sheet.read(options);
  CHECK(data.feature_names() == std::vector<std::string>{"Datum", "Ort=Bonn", "Ort=K\xc3\xb6ln",
                                                         "Fl\xc3\xa4"
                                                         "che"});
  CHECK(values_of(data) == std::vector<float>{19800, 0, 1, 80.5, 19801, 1, 0, 61});
  CHECK(data.target().to_vector<float>() == std::vector<float>{1234.5, 990});
  CHECK(data.notes().summary ==
        "1 column of numbers; 1 text column became 2 inputs: Ort 2; 1 date column became 1 input: Datum 1; target Preis");
  CHECK(data.notes().warnings.empty());
  // With nothing said, it is named what there is.
  const DataNotes plain = sheet.read({.target = "Ort", .features = {"Datum", "Preis"}}).notes();
  REQUIRE(plain.warnings.size() == 2);
  CHECK(contains(plain.warnings[0],
                 "column \"Datum\" has dates (\"18.03.2024\"), read as 2 different texts; list the column in "
                 "\"dates\", \"date_order\": \"dmy\""));
  CHECK(contains(plain.warnings[1], "column \"Preis\" has numbers with a decimal comma (\"1.234,50\")"));
  CHECK(contains(sheet.fault({.target = "Ort"}),
                 "column \"Fl\xc3\xa4"
                 "che\" must be a number, got \"80,5\"\nhelp: \"decimal\": \",\""));
}

TEST_CASE("csv: the delimiter is found in the first line") {
  const auto columns = [](std::string_view text, CsvFormat format = {}) {
    return Sheet(text).read({.format = format, .classification = false}).feature_names().size() + 1;
  };
  CHECK(columns("a;b;c\n1;2;3\n") == 3);
  CHECK(columns("a\tb\n1\t2\n") == 2);
  CHECK(columns("a|b\n1|2\n") == 2);
  CHECK(columns("\"a;x\",b,\"c;y\"\n1,2,3\n") == 3);         // not within quotes
  CHECK(columns("1,5;2\n2,25;3\n", {.decimal = ','}) == 2);  // not the decimal comma
  CHECK(columns("a|b,c\n1,2\n") == 2);                       // the second line has none
  CHECK(columns("\"1,5\",\"2,5\"\n\"2,5\",\"3\"\n", {.decimal = ','}) == 2);
  CHECK(contains(Sheet("a,b;c\n1,2;3\n").fault(), "s.csv:1: the first line has more than one of"));
  const std::string one = message_of<ConfigError>([] { Sheet("a b\n1 2 3\n").read(); });
  CHECK(contains(one, "has only one column"));
  CHECK(contains(one, "\"delimiter\" sets another"));
}

TEST_CASE("csv: lines that end with CR, and a header alone") {
  CHECK(Sheet("a,b\r1,2\r3,4\r").read({.classification = false}).size() == 2);
  CHECK(contains(Sheet("width,kind\n").fault(), "the file has a header but no rows\nhelp: if its only row is a sample"));
  CHECK(contains(Sheet("width,kind\r").fault(), "the file has a header but no rows"));
  CHECK(Sheet("x,y\n").read({.header = false}).size() == 1);
  // A header is known also by numbers in another format below it, and not where there is none.
  CHECK(Sheet("name,share\nx,12%\n").read({.target = "0"}).size() == 1);
  CHECK(Sheet("12%,x\n13%,y\n").read().size() == 2);
  CHECK(Sheet("name,2024-01\nx,5\n").read({.target = "0"}).size() == 1);
  const DataNotes words = Sheet("x,y\nu,v\n").read().notes();
  REQUIRE(words.warnings.size() == 1);
  CHECK(contains(words.warnings[0], "the first row was read as a sample; if it is a header, set \"header\": true"));
  CHECK(Sheet("x,y\nu,v\n").read({.header = false}).notes().warnings.empty());
}

TEST_CASE("csv: texts that are numbers with a sign are warned of, and named where they are too many") {
  std::string some = "rate,pay,y\n", many = some;
  for (int i = 0; i < 70; ++i) {
    const std::string row = std::to_string(i) + ".5%,$" + std::to_string(i % 5) + ",1\n";
    if (i < 10) some += row;
    many += row;
  }
  const DataNotes notes = Sheet(some).read().notes();
  REQUIRE(notes.warnings.size() == 2);
  CHECK(notes.warnings[0] ==
        "column \"rate\" has numbers with a percent sign (\"0.5%\"), read as 10 different texts; remove the "
        "sign from the file");
  CHECK(contains(notes.warnings[1], "column \"pay\" has numbers with a currency sign (\"$0\")"));
  CHECK(contains(Sheet(many).fault(),
                 "more than 64 different texts, all of them numbers with a percent sign (\"0.5%\")\nhelp: remove the sign"));
  CHECK(contains(Sheet("a,b\n1,2\nNA,3\n").fault(), "got \"NA\"\nhelp: \"missing_words\": [\"NA\"]"));
  CHECK(contains(Sheet("a,b\n1,2\n\"1,234\",3\n").fault(),
                 "help: \"decimal\": \",\" or \"thousands\": \",\", depending on the meaning"));
  CHECK(contains(Sheet("a,b\n1,2\n\"1,234,567\",3\n").fault(), "help: \"thousands\": \",\""));
  CHECK(Sheet("a,y\nA1,1\nB2%,2\n").read().notes().warnings.empty());  // one that is none: they are texts
}

TEST_CASE("csv: columns that are left out, and dates as parts, which other files are read alike") {
  const Sheet sheet("id,sold,size,y\nx1,2024-03-18,3,0\nx2,2024-03-19 06:00,4,1\n");
  const CsvOptions options{.exclude = {"id"}, .dates = {"sold"}, .date_parts = true};
  const CsvDataset data = sheet.read(options);
  CHECK(data.feature_names() ==
        std::vector<std::string>{"sold.year", "sold.month", "sold.day", "sold.weekday", "sold.hour", "size"});
  CHECK(values_of(data) == std::vector<float>{2024, 3, 18, 0, 0, 3, 2024, 3, 19, 1, 6, 4});
  CHECK(data.notes().summary == "1 column of numbers; 1 date column became 5 inputs: sold 5; target y; left out: id");
  // A file without times, and without what was left out, has the same inputs.
  CsvOptions alike = options;
  alike.encoding = data.encoding();
  CHECK(values_of(Sheet("y,size,sold\n1,7,2024-03-20\n").read(alike)) == std::vector<float>{2024, 3, 20, 2, 0, 7});
  CHECK(contains(Sheet("y,size,sold\n1,7,20.3.2024\n").fault(alike),
                 "s.csv:2:3: column \"sold\" must be a date such as 2024-03-18 or 2024-03-18 14:30, got \"20.3.2024\""));
  CHECK(contains(Sheet("y,size,sold\n1,7,20.3.2024\n").fault(alike), R"("date_order": "dmy" reads it)"));
  const Sheet no_day("sold,y\n2023-02-28,0\n2023-02-29,1\n2023-03-01,0\n");
  CHECK(contains(no_day.fault({.dates = {"sold"}}),
                 R"(or "missing_words": ["2023-02-29"] with "missing": "drop_row" leaves the row out)"));
  CHECK(no_day.read({.dates = {"sold"}, .missing = CsvMissing::drop_row, .missing_words = {"2023-02-29"}}).size() == 2);
  const Sheet seconds("sold,y\n1710720000,0\n1710806400,1\n");
  CHECK(contains(seconds.fault({.dates = {"sold"}}), "leave the column out of \"dates\""));
  CHECK(values_of(seconds.read()).size() == 2);
  const auto refused = [&](const CsvOptions& o) { return message_of<ConfigError>([&] { sheet.read(o); }); };
  CHECK(contains(refused({.exclude = {"y"}}), "column \"y\" is the target, and excluded"));
  CHECK(contains(refused({.exclude = {"weight"}}), "has no column \"weight\""));
  CHECK(contains(refused({.dates = {"when"}}), "has no column \"when\""));
  CHECK(contains(refused({.target = "sold", .dates = {"sold"}}), "column \"sold\" is listed in dates, but is not a feature"));
  CHECK(contains(refused({.exclude = {"0", "1", "2"}}), "exclude leaves no column for the features"));
  CHECK(contains(refused({.features = {"size"}, .exclude = {"id"}}), "features or exclude, not both"));
  // Missing dates are filled in as numbers are.
  const Sheet gaps("sold,y\n2024-03-18,1\n,2\n2024-03-20,3\n");
  const CsvOptions filled{.classification = false, .dates = {"sold"}, .missing = CsvMissing::mean};
  CHECK(values_of(gaps.read(filled)) == std::vector<float>{19800, 19801, 19802});
  CHECK(contains(gaps.read(filled).notes().summary, "; 1 missing value filled in"));
  CHECK(contains(gaps.read({.classification = false, .dates = {"sold"}, .missing = CsvMissing::drop_row}).notes().summary,
                 "1 of 3 rows dropped for missing values"));
  CHECK(contains(gaps.fault({.classification = false, .dates = {"sold"}}), "must be a date, but the cell is empty"));
}

TEST_CASE("csv: a stratified part is scaled by its own rows") {
  std::string text = "x,y\n";
  for (int i = 0; i < 40; ++i) text += std::to_string(i) + (i % 4 == 0 ? ",rare\n" : ",usual\n");
  const Sheet sheet(text);
  const CsvDataset train = sheet.read({.standardize = true, .part = {.end = 0.6, .stratified = true, .seed = 3}});
  CHECK(train.size() == 24);
  int rare = 0;
  double sum = 0;
  for (const int64_t c : train.labels()) rare += c == 0;
  for (const float v : values_of(train)) sum += v;
  CHECK(rare == 6);
  CHECK(std::abs(sum) < 1e-4);
}

TEST_CASE("time series: a decimal comma, a delimiter that is found, and days before months") {
  const Sheet sheet("t;v\n1;1,5\n2;2,5\n3;3,5\n");
  const TimeSeriesDataset data(sheet.path, {.time = {"t"}, .window = 2, .standardize = false, .format = {.decimal = ','}});
  CHECK(data.batch(std::vector<int64_t>{0}).input.to_vector<float>() == std::vector<float>{1.5, 2.5});
  const auto days = [](const char* text) { return TimeSeriesDataset(Sheet(text).path, {.time = {"t"}}).size(); };
  CHECK(days("t;v\n30.01.2024;1\n01.02.2024;2\n02.02.2024;3\n") == 2);
  CHECK(contains(message_of<DataError>([&] { days("t;v\n30.01.2024;1\n01.02.2024;2\n31.01.2024;3\n"); }),
                 "must grow from row to row"));
}
