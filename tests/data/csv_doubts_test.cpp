// SPDX-License-Identifier: Apache-2.0
// Numbers of training data that probably mean a missing value or a date: a warning names them, with the line of the config.
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "framework/base/check.h"
#include "framework/data/tables/csv.h"
#include "framework/data/tables/time_series.h"
#include "framework/data/transforms/data_form.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

const CsvOptions kNumberTargets{.classification = false};

// Warnings of a table whose rows are functions of their number.
struct MadeTable {
  TempDir dir;
  std::filesystem::path path = dir / "t.csv";
  MadeTable(const std::string& header, int rows, const std::function<std::string(int)>& row) {
    std::string text = header + '\n';
    for (int i = 0; i < rows; ++i) text += row(i) + '\n';
    write_bytes(path, text);
  }
  std::string warnings(const CsvOptions& o = kNumberTargets) const {
    std::string out;
    for (const std::string& w : CsvDataset(path, o).notes().warnings) out += w + '\n';
    return out;
  }
};

// Warnings of one column of inputs.
std::string of_column(const std::function<std::string(int)>& cell, int rows = 60) {
  return MadeTable("x,y", rows, [&](int i) { return joined(cell(i), ',', i % 11, ".5"); }).warnings();
}

}  // namespace

TEST_CASE("csv: a number that recurs far from the others asks for missing_words") {
  const MadeTable heights("height,y", 60, [](int i) { return joined(i % 7 == 3 ? "-99.90" : joined(150 + i % 40), ',', i, ".5"); });
  const std::string said = heights.warnings();
  CHECK_MESSAGE(
      contains(said, R"(-99.9 comes 9 times in column "height", far from its other numbers, 150 to 189; if such a number )"
                     R"(means that a value is missing: "missing_words": ["-99.90"], "missing": "median")"),
      said);
  CsvOptions read = kNumberTargets;  // as the warning says
  read.missing = CsvMissing::median, read.missing_words = {"-99.90"};
  CHECK(heights.warnings(read).empty());
  CHECK(contains(CsvDataset(heights.path, read).notes().summary, "9 missing values filled in"));
  // Other marks, among whole numbers, fractions and numbers of both signs.
  CHECK(contains(of_column([](int i) { return i % 9 == 1 ? "9999" : joined(i % 40, ".5"); }), R"(["9999"])"));
  CHECK(contains(of_column([](int i) { return i % 9 == 1 ? "-99999" : joined(i % 40 - 20); }), R"(["-99999"])"));
  CHECK(contains(of_column([](int i) { return i % 9 == 1 ? "-9" : joined(1000 * (i % 40)); }), R"(["-9"])"));
  CHECK(contains(of_column([](int i) { return i % 9 == 1 ? "999.9" : joined(i % 30); }), R"(["999.9"])"));
  CHECK(contains(of_column([](int i) { return i % 9 == 1 ? "99" : joined(i % 5); }), R"(["99"])"));
  CHECK(contains(of_column([](int i) { return i % 9 == 1 ? "-32768" : joined(i % 30 - 9); }), R"(["-32768"])"));
  // Several, in several spellings and columns; one that is ordinary elsewhere; beside words that are given.
  const MadeTable several("a,b,y", 60, [](int i) {
    return joined(i % 8 == 1   ? "-999"
                  : i % 8 == 2 ? "-999.0"
                  : i % 8 == 3 ? "9999"
                               : joined(i % 50),
                  ',', i % 6 == 1 ? "-999" : joined(100 * i - 3000 + i % 6), ',',
                  i % 9 == 1   ? "NA"
                  : i % 9 == 2 ? "-9999"
                               : joined(i, ".5"));
  });
  CsvOptions words = kNumberTargets;
  words.missing_words = {"NA"}, words.missing = CsvMissing::drop_row;
  const std::string all = several.warnings(words);
  CHECK_MESSAGE(contains(all, R"(9999 comes 7 times in column "a", far from its other numbers, 0 to 48; )"), all);
  CHECK_MESSAGE(contains(all, R"(-9999 comes 7 times in column "y")"), all);
  CHECK_MESSAGE(contains(all, R"("missing_words": ["NA", )"), all);
  CHECK_MESSAGE(contains(all, R"(, which would be missing in "b", too)"), all);
  CHECK(!contains(all, "\"missing\": "));
  // Numbered classes.
  CHECK(contains(MadeTable("x,kind", 60, [](int i) { return joined(i, ".5,", i % 6 == 2 ? -9 : 1 + i % 2); }).warnings({}),
                 R"(-9 comes 10 times in column "kind")"));
}

TEST_CASE("csv: ordinary numbers that look like marks give no warning") {
  CHECK(of_column([](int i) { return joined(i % 100); }, 400).empty());                            // ages up to 99
  CHECK(of_column([](int i) { return joined(i % 50 - 49 + 40); }).empty());                        // -9 among negative numbers
  CHECK(of_column([](int i) { return i == 7 ? "-999" : joined(i % 30); }).empty());                // once alone
  CHECK(of_column([](int i) { return joined(i % 20 * 50 + 49); }).empty());                        // 999 at the end of a range
  CHECK(of_column([](int i) { return joined((i % 10 + 1) * (i % 7) * 10 + 9, ".99"); }).empty());  // prices
  CHECK(of_column([](int i) { return i < 2 ? "99" : i % 90 ? "0" : "12"; }, 1000).empty());        // rare ink
  CHECK(of_column([](int i) { return i % 3 ? "-1" : "1"; }).empty());
  CHECK(of_column([](int i) { return i % 3 ? "-999" : "-998.5"; }).empty());
  CHECK(MadeTable("x,kind", 60, [](int i) { return joined(i % 9, ',', i % 2 ? "a" : "b"); }).warnings({}).empty());
  // The training data decides: its form reads other files as they are.
  const MadeTable table("x,y", 40, [](int i) { return joined(i % 9, ',', i); });
  const MadeTable other("x,y", 40, [](int i) { return joined(i % 9 ? joined(i % 9) : "-999", ',', i); });
  const CsvDataset training(table.path, kNumberTargets);
  CHECK(!contains(other.warnings(std::get<TableForm>(training.form().source).options), "missing_words"));
}

TEST_CASE("TimeSeries: a number that recurs far from the others asks for missing_words") {
  const TempDir dir;
  std::string text = "day,v,w\n";
  for (int i = 0; i < 50; ++i) text += joined(i, ',', i % 12 == 5 ? "-9999.0" : joined(i % 20), ',', i % 7, '\n');
  write_bytes(dir / "s", text);
  const TimeSeriesOptions o{.columns = {"v", "w"}, .time = {"day"}, .window = 3};
  const TimeSeriesDataset data(dir / "s", o);
  REQUIRE(data.notes().warnings.size() == 1);
  CHECK_MESSAGE(contains(data.notes().warnings[0], R"(-9999 comes 4 times in column "v", far from its other numbers, 0 to 19; if )"
                                                   R"(such a number means that a value is missing: )"
                                                   R"("missing_words": ["-9999.0"], "missing": "interpolate")"),
                data.notes().warnings[0]);
  TimeSeriesOptions read = o;
  read.missing = SeriesMissing::interpolate, read.missing_words = {"-9999.0"};
  CHECK(TimeSeriesDataset(dir / "s", read).notes().warnings.empty());
  CHECK(TimeSeriesDataset(dir / "s", std::get<SeriesForm>(data.form().source).options).notes().warnings.empty());
}

TEST_CASE("csv: dates without separators that are read as numbers are named") {
  const auto day = [](int i) { return joined(20230101 + 100 * (i % 12) + i % 28, ',', i % 9, ',', i % 5); };
  const MadeTable days("sold,x,y", 40, day);
  CHECK(contains(days.warnings(),
                 R"(column "sold" has dates such as 20240131, read as numbers, which have gaps at the end of each )"
                 R"(month or year; "dates": ["sold"] reads dates)"));
  CsvOptions read = kNumberTargets;
  read.dates = {"sold"};
  CHECK(days.warnings(read).empty());
  const MadeTable months("month,x,y", 40, [](int i) { return joined(202201 + i % 12 + 100 * (i % 3), ',', i % 9, ',', i % 5); });
  CHECK(contains(months.warnings(), "\"month\" has months such as 202401"));
  const MadeTable rewritten("month,x,y", 40, [](int i) { return joined("2022-", i % 9 + 1, ',', i % 9, ',', i % 5); });
  read.dates = {"month"};
  CHECK(rewritten.warnings(read).empty());
  // Ids and amounts.
  CHECK(MadeTable("id,x,y", 40, [](int i) { return joined(20230101 + 7 * i, ',', i % 9, ',', i % 5); }).warnings().empty());
  CHECK(MadeTable("id,x,y", 40, [](int i) { return joined(202301 + i, ',', i % 9, ',', i % 5); }).warnings().empty());
  CHECK(MadeTable("year,x,y", 40, [](int i) { return joined(1990 + i, ',', i % 9, ',', i % 5); }).warnings().empty());
}
