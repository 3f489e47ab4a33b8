// SPDX-License-Identifier: Apache-2.0
// Rows to be predicted from files that are not as the training data's: in other forms, with other columns, in other time zones.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/data/tables/csv.h"
#include "framework/data/transforms/data_form.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

// A file of training data, and others that are read as it was.
class Trained {
 public:
  Trained(const std::string& text, const CsvOptions& options)
      : data(file("train.csv", text), options), form(*to_json(data.form())) {}
  CsvRows rows(const std::string& text) const {
    return read_csv_rows(file("new.csv", text), std::get<TableForm>(read_form(form).source).options);
  }
  std::string fault(const std::string& text) const {
    return message_of<DataError>([&] { rows(text); });
  }
  static std::vector<float> values(const CsvRows& rows) { return rows.input.to_vector<float>(); }

 private:
  std::filesystem::path file(const std::string& name, const std::string& text) const {
    write_bytes(dir_ / name, text);
    return dir_ / name;
  }
  TempDir dir_;

 public:
  CsvDataset data;
  nlohmann::json form;
};

bool warns(const CsvRows& rows, const std::string& text) {
  for (const std::string& warning : rows.notes.warnings)
    if (contains(warning, text)) return true;
  return false;
}

CsvOptions regression(CsvOptions o = {}) {
  o.classification = false;
  return o;
}

}  // namespace

TEST_CASE("rows: a number that is one in another form alone refuses those that have two meanings") {
  // Trained on decimal commas, and predicted for a file in English.
  const Trained german("size;kind;y\n1.234,5;a;1\n2.000;b;2\n12;a;3\n", regression({.format = {.decimal = ',', .thousands = '.'}}));
  const CsvRows english = german.rows("size;kind\n1.234;a\n1,234.5;a\n12;b\n2.500;b\n");
  CHECK(english.rows == std::vector<size_t>{2});
  CHECK(Trained::values(english) == std::vector<float>{12, 0, 1});
  CHECK_MESSAGE(
      contains(english.faults[0], "\"1.234\" is 1234, but this file has \"1,234.5\" in line 3, in whose form it is 1.234"),
      english.faults[0]);
  CHECK_MESSAGE(contains(english.faults[0], "\"decimal\": \".\""), english.faults[0]);
  CHECK(contains(english.faults[3], "2500"));
  CHECK(english.notes.warnings.empty());

  // Its own form is there, too: one cell is wrong, and the others have a warning.
  const CsvRows mixed = german.rows("size;kind\n1.234;a\n1,234.5;a\n0,5;b\n2.500;b\n");
  CHECK(mixed.rows == std::vector<size_t>{0, 2, 3});
  CHECK(warns(mixed,
              "column \"size\" has two forms: \"1,234.5\" in line 3 is not in the run's, and \"1.234\" in line 2 is read as "
              "1234, but might be 1.234; the same holds for 1 more"));
  // A text that is a number in no form says nothing of the others.
  const CsvRows typo = german.rows("size;kind\n1.234;a\nmany;a\n2.500;b\n");
  CHECK(typo.rows == std::vector<size_t>{0, 2});
  CHECK(typo.notes.warnings.empty());
}

TEST_CASE("rows: the form of one column is that of others without a form of their own") {
  const Trained plain("a,b,y\n1.5,1.25,1\n2,3,2\n", regression());
  const CsvRows all = plain.rows("a;b\n1,5;1.250\n2;3.125\n");
  CHECK(all.rows.empty());
  const CsvRows own = plain.rows("a;b\n1,5;1.250\n2;3.25\n");
  CHECK(own.rows == std::vector<size_t>{1});
  CHECK(Trained::values(own) == std::vector<float>{2, 3.25});
  // A 0 before the point is no group of thousands.
  CHECK(plain.rows("a;b\n1,5;1.250\n2;0.125\n").rows == std::vector<size_t>{1});
}

TEST_CASE("rows: a date that is one in another order alone refuses those that have two meanings") {
  const Trained american("sold,y\n01/13/2024,1\n02/01/2024,2\n", regression({.dates = {"sold"}, .date_order = CsvDateOrder::mdy}));
  const CsvRows rows = american.rows("sold\n03/04/2024\n13/01/2024\n05/05/2024\n2024-03-04\n");
  CHECK(rows.rows == std::vector<size_t>{2, 3});
  CHECK_MESSAGE(contains(rows.faults[0], "\"03/04/2024\" is 2024-03-04, but this file has \"13/01/2024\" in line 3"),
                rows.faults[0]);
  CHECK(contains(rows.faults[0], "in whose form it is 2024-04-03"));
  CHECK(contains(rows.faults[0], "\"date_order\": \"dmy\" reads it"));
  const CsvRows mixed = american.rows("sold\n03/04/2024\n13/01/2024\n01/31/2024\n");
  CHECK(mixed.rows == std::vector<size_t>{0, 2});
  CHECK(warns(mixed, "column \"sold\" has two forms"));
}

TEST_CASE("rows: without a header a file with other columns is refused, or its places are named") {
  const Trained last("9,1,10,5\n8,2,20,6\n7,3,30,7\n", regression({.exclude = {"0"}}));  // the target is 3
  CHECK(Trained::values(last.rows("0,1,10,5\n")) == std::vector<float>{1, 10});
  const std::string wider = last.fault("0,9,1,10,5\n");  // an index in front
  CHECK_MESSAGE(contains(wider, "has 5 columns, but the model takes 2 of a file with 4"), wider);
  CHECK(contains(wider, "columns 1, 2 of the training data"));
  const CsvRows guess = last.rows("0,1,10\n");
  CHECK(Trained::values(guess) == std::vector<float>{1, 10});
  CHECK(warns(guess, "the file has 3 columns, and the training data had 4: without a header its columns 1, 2"));
  const CsvRows alone = last.rows("1,10\n");
  CHECK(Trained::values(alone) == std::vector<float>{1, 10});
  CHECK(alone.notes.warnings.empty());

  const Trained first("5,1,10,100\n6,2,20,200\n7,3,30,300\n", regression({.target = "0"}));
  CHECK(Trained::values(first.rows("1,10,100\n")) == std::vector<float>{1, 10, 100});
  CHECK(contains(first.fault("1,10,100,5,6\n"), "has 5 columns, but the model takes 3 of a file with 4"));
  const Trained both("5,1,10,x\n6,2,20,y\n7,3,30,z\n", regression({.target = "0", .exclude = {"3"}}));
  CHECK(contains(both.fault("1,10,x\n"), "has 3 columns, but the model takes 2 of a file with 4"));  // which of the two is missing?

  // A run from before the number of columns was stored.
  Trained older("9,1,10,5\n8,2,20,6\n7,3,30,7\n", regression({.exclude = {"0"}}));
  older.form["source"].erase("width");
  CHECK(older.rows("0,1,10,5\n").notes.warnings.empty());
  CHECK(warns(older.rows("0,9,1,10,5\n"), "the training data had at least 4"));
}

TEST_CASE("rows: the parts of times with a zone are those of the zone, and their numbers are in UTC") {
  const std::string midnights = "at,y\n2024-01-01 00:00:00+05:30,1\n2024-01-02 00:00:00+05:30,2\n2024-07-01T00:00:00+05:30,3\n";
  const Trained parts(midnights, regression({.dates = {"at"}, .date_parts = true}));
  CHECK(parts.data.input().to_vector<float>() == std::vector<float>{2024, 1, 1, 0, 0, 2024, 1, 2, 1, 0, 2024, 7, 1, 0, 0});
  const std::string notes = parts.data.notes().summary;
  CHECK_MESSAGE(contains(notes, "column at: times have a zone, +05:30, and are read as the day and the hour there"), notes);
  for (int hour = 0; hour < 24; ++hour) {
    const std::string at = joined("2023-12-31T", hour < 10 ? "0" : "", hour, ":00:00+05:30");
    const CsvRows rows = parts.rows("at\n" + at + "\n");
    CHECK(Trained::values(rows) == std::vector<float>{2023, 12, 31, 6, float(hour)});
    CHECK(!warns(rows, "another zone"));
  }
  const CsvRows utc = parts.rows("at\n2023-12-31T18:30:00Z\n");  // the first midnight, by another clock
  CHECK(Trained::values(utc) == std::vector<float>{2023, 12, 31, 6, 18.5});
  CHECK(warns(utc,
              "1 date may be of another zone than the training data's: the first, \"2023-12-31T18:30:00Z\" in column at, "
              "is read as the day and the hour that it names, and the training data has times in +05:30"));

  const Trained numbers(midnights, regression({.dates = {"at"}}));
  CHECK(numbers.data.input().to_vector<float>()[0] == doctest::Approx(19723 - 5.5 / 24));
  CHECK(contains(numbers.data.notes().summary, "+05:30, and are read in UTC"));
  CHECK(numbers.rows("at\n2023-12-31T18:30:00Z\n").notes.warnings.empty());
  CHECK(warns(numbers.rows("at\n2024-01-01 00:00\n"), "is read as if it were in UTC"));
}

TEST_CASE("rows: zones where the training data has none, or only in some cells") {
  const Trained days("at,y\n2021-01-01,1\n2021-01-02,2\n", regression({.dates = {"at"}, .date_parts = true}));
  const CsvRows zoned = days.rows("at\n2021-01-01 00:00:00+02:00\n2021-01-02\n");
  CHECK(Trained::values(zoned) == std::vector<float>{2021, 1, 1, 4, 2021, 1, 2, 5});
  CHECK(warns(zoned, "1 date may be of another zone"));
  CHECK(warns(zoned, "the training data's dates have no zone"));
  // A held-out file has the same warning.
  TempDir dir;
  write_bytes(dir / "val.csv", "at,y\n2021-01-01 00:00:00-03:00,1\n");
  CsvOptions alike = regression({.dates = {"at"}, .date_parts = true});
  alike.encoding = days.data.encoding();
  const CsvDataset held_out(dir / "val.csv", alike);
  REQUIRE(held_out.notes().warnings.size() == 1);
  CHECK(contains(held_out.notes().warnings[0], "the training data's dates have no zone"));

  const Trained mixed("at,y\n2021-01-01T12:00:00Z,1\n2021-01-02 12:00,2\n", regression({.dates = {"at"}}));
  REQUIRE(mixed.data.notes().warnings.size() == 1);
  CHECK(contains(mixed.data.notes().warnings[0], "1 of 2 dates have a zone, +00:00, and the others have none"));

  // A run from before zones were stored reads parts as it was trained.
  Trained older("at,y\n2021-01-01T00:00:00+02:00,1\n2021-01-02T00:00:00+02:00,2\n",
                regression({.dates = {"at"}, .date_parts = true}));
  older.form["source"]["columns"][0].erase("zones");
  const CsvRows as_before = older.rows("at\n2021-01-01T00:00:00+02:00\n");
  CHECK(Trained::values(as_before) == std::vector<float>{2020, 12, 31, 3, 22});
  CHECK(warns(as_before, "read in UTC, and the run does not say which zones the training data has"));
}
