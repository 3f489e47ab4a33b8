// SPDX-License-Identifier: Apache-2.0
// Tables whose labels, headers and columns are written in unusual ways.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "framework/base/check.h"
#include "framework/data/tables/csv.h"
#include "framework/data/tables/csv_table.h"
#include "framework/data/tables/time_series.h"
#include "framework/data/transforms/data_form.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

struct Table {
  TempDir dir;
  std::filesystem::path path = dir / "t.csv";
  explicit Table(std::string_view text) { write_bytes(path, text); }
  CsvDataset read(const CsvOptions& o = {}) const { return CsvDataset(path, o); }
  std::string fault(const CsvOptions& o = {}) const {
    return message_of<DataError>([&] { read(o); });
  }
  CsvRows rows(const CsvDataset& training) const {
    return read_csv_rows(path, std::get<TableForm>(read_form(to_json(training.form())).source).options);
  }
};

using Names = std::vector<std::string>;
using Floats = std::vector<float>;
const CsvOptions kNumbers{.classification = false};

}  // namespace

TEST_CASE("csv: classes that differ in blanks, in Unicode's form or in how a number is written are one") {
  const CsvDataset data = Table("a,b,kind\n1,x,ja\n2,x,\"ja \"\n3,y,ja\xc2\xa0\n4,y,JA\n5,z,nein\n").read();
  CHECK(data.class_names() == Names{"JA", "ja", "nein"});
  CHECK(data.target().to_vector<int>() == std::vector<int>{1, 1, 1, 0, 2});
  CHECK(contains(data.notes().summary, R"(; classes: "ja" (1), "ja " (1) and "ja\u00a0" (1) are one)"));
  REQUIRE(data.notes().warnings.size() == 1);
  CHECK(contains(data.notes().warnings[0], "\"ja\" (3) and \"JA\" (1): these classes differ in nothing but case"));
  CHECK(Table("1,2\n3,2.0\n5,7\n7,+7.00\n").read().class_names() == Names{"2", "7"});
  CHECK(Table("1,Zu\xcc\x88rich\n3,Z\xc3\xbcrich\n").read().classes() == 1);
  // Categories, missing words and numbers as well.
  const CsvDataset colors = Table("color,n,y\nred,\"5 \",1\n\"red \",\"? \",2\nRed,7\xc2\xa0,3\n")
                                .read({.classification = false, .missing = CsvMissing::mean, .missing_words = {"?"}});
  CHECK(colors.feature_names() == Names{"color=Red", "color=red", "n"});
  CHECK(colors.input().to_vector<float>() == Floats{0, 1, 5, 0, 1, 6, 1, 0, 7});
  CHECK(contains(colors.notes().summary, R"(; column color: "red" (1) and "red " (1) are one)"));
  CHECK(contains(colors.notes().warnings.at(0), "column \"color\": \"red\" (2) and \"Red\" (1): these values differ"));
  // Held-out data may spell all of it otherwise, names of columns too.
  CsvOptions held{.encoding = Table("gr\xc3\xb6\xc3\x9f"
                                    "e,kind\n1,K\xc3\xa4se\n2,1\n")
                                  .read()
                                  .encoding()};
  CHECK(Table("\"kind \",gro\xcc\x88\xc3\x9f"
              "e\nKa\xcc\x88se,5\n1.0,6\n")
            .read(held)
            .target()
            .to_vector<int>() == std::vector<int>{1, 0});
  CHECK(contains(Table("kind,gr\xc3\xb6\xc3\x9f"
                       "e\nKa\xcc\x88s,5\n")
                     .fault(held),
                 R"(must be a class of the training data, got "Ka\u0308s")"));
}

TEST_CASE("csv: rows without a target are left out, whatever the rule for missing values") {
  const Table classes("a,kind\n1,x\n2,NA\n3,y\n4,\n,x\n\"6\",\" \"\n");
  for (const CsvMissing rule : {CsvMissing::median, CsvMissing::drop_row, CsvMissing::constant}) {
    const CsvDataset data = classes.read({.missing = rule, .missing_words = {"NA"}});
    CHECK(data.class_names() == Names{"x", "y"});
    CHECK(data.size() == (rule == CsvMissing::drop_row ? 2 : 3));
    CHECK(contains(data.notes().summary, "; 3 of 6 rows left out, which have no target"));
  }
  CHECK(Table("a,y\n1,5\n2,\n3,?\n4,6\n").read({.classification = false, .missing_words = {"?"}}).target().to_vector<float>() ==
        Floats{5, 6});
  CHECK(contains(Table("a,y\n1,5\n2,?\n").fault(kNumbers), "got \"?\"\nhelp: \"missing_words\": [\"?\"]"));
  CHECK(contains(Table("a,kind\n1,x\n2,nan\n").fault(), "must be a class, got \"nan\"\nhelp: \"missing_words\": [\"nan\"]"));
  CHECK(contains(Table("a,y\n1,?\n").fault({.missing_words = {"?"}}), "no row has a target: column \"y\" is empty"));
}

TEST_CASE("csv: rows of a whole class that losses ignore are left out, with a count") {
  const CsvDataset data = Table("a,y\n1,2\n2,-100\n3,0\n4,-100.0\n").read();
  CHECK(data.class_names() == Names{"0", "2"});
  CHECK(data.input().to_vector<float>() == Floats{1, 3});
  CHECK_MESSAGE(contains(data.notes().summary, "; 2 of 4 rows left out, whose target -100 the loss ignores"), data.notes().summary);
  CHECK(Table("a,y\n1,0\n2,-1\n").read({.ignored = -1}).classes() == 1);
  CHECK(Table("a,y\n1,2\n2,-100\n3,0\n").read({.encoding = data.encoding()}).size() == 2);
  // What may be a class is one.
  CHECK(Table("a,y\n1,2\n2,-100\n3,0\n").read({.ignored = {}}).classes() == 3);
  CHECK(Table("a,y\n1,-50\n2,-100\n3,0\n").read().classes() == 3);
  CHECK(Table("a,y\n1,cat\n2,-100\n").read().classes() == 2);
  CHECK(Table("a,y\n1,0\n2,1\n").read({.ignored = 1}).classes() == 2);
  CHECK(Table("a,y\n1,2\n2,-100\n").read(kNumbers).size() == 2);
}

TEST_CASE("csv: rows are predicted whatever their answers are") {
  const CsvDataset people = Table("age,pay\n20,<=50K\n40,>50K\n60,>50K\n").read();
  const CsvRows rows = Table("age,pay\n21,<=50K.\n41,>50K\n61,\n22,<=50K.\n").rows(people);
  CHECK(rows.rows.size() == 4);
  CHECK(rows.unknown_answers == 2);
  CHECK(rows.unknown_answer == "\"<=50K.\" in row 1");
  CHECK(std::isnan(rows.targets[0]));
  CHECK(rows.targets[1] == 1);
  CHECK(std::isnan(rows.targets[2]));
  const CsvDataset numbers = Table("age,pay\n20,100\n40,200\n").read(kNumbers);
  const CsvRows few = Table("age,pay\n21,unknown\n22,1e99\n23,300\n").rows(numbers);
  CHECK(few.unknown_answers == 2);
  CHECK(few.unknown_answer == "\"unknown\" in row 1");
  CHECK(few.targets[2] == 300);
  const CsvDataset floats = Table("age,k\n20,1.0\n40,2.0\n").read();
  CHECK(floats.class_names() == Names{"1.0", "2.0"});
  CHECK(Table("age,k\n20,1\n40,2.00\n").rows(floats).unknown_answers == 0);
}

TEST_CASE("csv: values that the training data does not have") {
  const Table table("soil,n,y\nclay,1,5\nsand,2,6\nother,3,7\n");
  const Table fresh("soil,n,y\nclay,1,5\npeat,2,6\nchalk,3,7\n");
  const auto options = [](std::string unknown, CsvMissing missing = CsvMissing::refuse, bool one_hot = true) {
    return CsvOptions{.classification = false, .missing = missing, .one_hot = one_hot, .unknown = std::move(unknown)};
  };
  const auto held = [&](CsvOptions o) {
    o.encoding = table.read(o).encoding();
    return o;
  };
  CHECK(
      contains(fresh.fault(held(options("refuse"))), "must be a value of the training data, got \"peat\"\nhelp: it has \"clay\""));
  const CsvDataset as_other = fresh.read(held(options("other")));
  CHECK(as_other.input().to_vector<float>() == Floats{1, 0, 0, 1, 0, 1, 0, 2, 0, 1, 0, 3});  // clay, other, sand, n
  CHECK(contains(as_other.notes().summary,
                 "; 2 values that the training data does not have (\"peat\" in column soil), read by \"unknown\""));
  const CsvDataset filled = fresh.read(held(options("missing", CsvMissing::median)));
  CHECK(filled.input().to_vector<float>() == Floats{1, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3});  // none of them
  CHECK(fresh.read(held(options("missing", CsvMissing::drop_row))).size() == 1);
  CHECK(contains(message_of<ConfigError>([&] { table.read(options("rock")); }),
                 "unknown must be \"refuse\", \"missing\" or a text of a column of texts, got \"rock\""));
  CsvOptions of_another = held(options("other"));
  of_another.unknown = "rock";
  CHECK(contains(fresh.fault(of_another), "and \"unknown\" is \"rock\", which is none of them\nhelp: it has"));
  CHECK(contains(fresh.fault(held(options("missing", CsvMissing::median, false))),
                 "and \"unknown\" is missing, but the training data misses no value"));
  CHECK(contains(fresh.fault(held(options("missing"))), "must be a value of the training data, got \"peat\""));

  const Table gaps("soil,n,y\nclay,1,5\n,2,6\nsand,3,7\n");
  const CsvOptions index = options("missing", CsvMissing::median, false);
  const CsvRows rows = fresh.rows(gaps.read(index));  // "", clay, sand
  CHECK(rows.rows.size() == 3);
  CHECK(rows.unknown_values == 2);
  CHECK(rows.unknown_value == "\"peat\" in column soil");
  CHECK(rows.input.to_vector<float>() == Floats{1, 1, 0, 2, 0, 3});
  const CsvRows dropped = fresh.rows(table.read(options("missing", CsvMissing::drop_row)));
  CHECK(dropped.rows == std::vector<size_t>{0});
  CHECK(contains(dropped.faults[1], "a value is missing (\"peat\" in column soil is unknown, which counts as missing)"));
}

TEST_CASE("csv: a header of numbers") {
  const auto first = [](std::string_view text) { return Table(text).read(kNumbers); };
  // A text above numbers.
  const CsvDataset years = first("1990,2000,note,2010,sum\n1,2,x,3,6\n2,2,y,2,\n2,3,x,1,6\n");
  CHECK(years.feature_names() == Names{"1990", "2000", "note=x", "2010"});
  CHECK(contains(years.notes().summary,
                 "the first row is the header, since \"sum\" is a text above numbers (\"header\": false: it is a sample)"));
  // Numbers alone, that rise evenly and lie far away.
  const CsvDataset waves = first("-30,-20,-10,0\n0.5,0.25,0.5,9\n0.5,0.5,0.25,8\n");
  CHECK(waves.size() == 3);  // 0 to 9 begin where the first row ends
  const CsvDataset spectrum = first("900.5,901,901.5,902\n0.5,0.25,0.5,9\n0.5,0.5,0.25,8\n");
  CHECK(spectrum.feature_names() == Names{"900.5", "901", "901.5"});
  CHECK(contains(spectrum.notes().summary, "since its numbers 900.5 to 902 rise evenly, and lie far from all others"));
  CHECK(spectrum.notes().warnings.empty());
  // Doubt.
  const CsvDataset pixels = first("1,2,3,4\n0,16,9,4\n3,8,2,1\n");
  CHECK(pixels.size() == 3);
  REQUIRE(pixels.notes().warnings.size() == 1);
  CHECK(
      pixels.notes().warnings[0] ==
      "the first row was read as a sample, though its numbers from 1 on rise evenly as names of columns do; if it is a header, set "
      "\"header\": true (false: no warning)");
  CHECK(Table("1,2,3,4\n0,16,9,4\n").read({.header = false, .classification = false}).notes().warnings.empty());
  // None.
  for (const char* text : {"5,4,3\n1,2,3\n", "1,2,4\n3,5,7\n", "1,2\n50,60\n", "1.5,x\n2,y\n", "?,1,2\n3,4,5\n"}) {
    const CsvDataset data = Table(text).read({.missing = CsvMissing::drop_row, .missing_words = {"?"}});
    CHECK_MESSAGE(data.feature_names()[0] == "0", text);
    CHECK_MESSAGE(data.notes().warnings.empty(), text);
  }
  CHECK(TimeSeriesDataset(Table("2001,value\n1,5\n2,6\n3,7\n").path).size() == 2);
}

TEST_CASE("csv: rows that are no samples") {
  const Table units("length,mass,kind\ncm,g,\n1,2,x\n2,3,y\n3,4,x\n");
  CHECK(contains(
      units.fault(),
      "t.csv:2: row 2 has no numbers where rows 3 to 5 have: is it one of units?\nhelp: \"skip_rows\": [2] leaves it out"));
  CHECK(units.read({.format = {.skip_rows = {2}}}).size() == 3);
  CHECK(contains(message_of<DataError>([&] { TimeSeriesDataset(units.path, {.columns = {"mass"}}); }), "row 2 has no numbers"));
  const Table twice("length,kind\n1,x\n2,y\nlength,kind\n3,x\n\nlength,kind\n");
  CHECK(twice.read({.format = {.skip_rows = {4, 6, 7}}}).size() == 3);
  // A title above the header.
  CHECK(contains(twice.read({.format = {.skip_rows = {4, 6, 7}}}).notes().summary,
                 "; 3 lines left out by skip_rows: \"length,kind\", ...;"));
  const CsvDataset absent = units.read({.format = {.skip_rows = {2, 99}}});
  CHECK(contains(absent.notes().summary, "; 1 line left out by skip_rows: \"cm,g,\";"));
  CHECK(contains(absent.notes().warnings.at(0),
                 "skip_rows has 1 of 2 lines that the file does not have, or that do not begin a row"));
  const Table title("\"Report; of, 2024\n\na;kind\n1;x\n2;y\n");
  CHECK(title.read({.format = {.skip_rows = {2, 1}}}).class_names() == Names{"x", "y"});
  CHECK(contains(title.fault({.format = {.skip_rows = {1, 2, 3, 4, 5}}}), "no rows"));
  CHECK(contains(Table("t\na,b\n1,2,3\n").fault({.format = {.skip_rows = {1}}}), "t.csv:3:3: a row must have 2 fields"));
  // Of new files each row is read alone.
  const CsvRows rows = units.rows(units.read({.format = {.skip_rows = {2}}}));
  CHECK(rows.rows == std::vector<size_t>{1, 2, 3});
  CHECK(contains(rows.faults[0], "column \"length\" must be a number, got \"cm\""));
  // Of files put together each has its own.
  CHECK(contains(Table("length,mass,kind\ncm,g,\n1,2,x\n2,3,y\nlength,mass,kind\ncm,g,\n3,4,x\n").fault(),
                 "t.csv:2: row 2 has no numbers where rows 3 to 7 have: is it one of units?\nhelp: \"skip_rows\": [2, 6] leaves "
                 "such rows out"));
  // A text that is the same in two rows is no header.
  CHECK(Table("x,1\ny,2\nx,1\n").read(kNumbers).size() == 3);
}

TEST_CASE("csv: empty lines are left out with a count, and rows of another length are answered with what fits them") {
  const Table gaps("\n \r\nmass;kind\n1;x\n\n2;y\n  \t\n;\n3;x\n\n");
  const CsvDataset data = gaps.read({.missing = CsvMissing::drop_row});
  CHECK(data.input().to_vector<float>() == Floats{1, 2, 3});
  CHECK(data.line(1) == 6);
  CHECK_MESSAGE(contains(data.notes().summary, "; 4 empty lines left out, the first is line 1"), data.notes().summary);
  CHECK(contains(Table("a,b\n1,2\n\n3,4\n").read(kNumbers).notes().summary, "1 empty line left out, line 3"));
  CHECK(Table("1  2\n\n3  4\n").read(kNumbers).size() == 2);
  // In one column an empty line is an empty cell; with tabs a line of them is a row of empty cells.
  CHECK(CsvTable(Table("a\n1\n\n3\n").path, {}).rows() == 4);
  CHECK(CsvTable(Table("a\tb\n1\t2\n\t\n3\t4\n").path, {}).rows() == 4);
  // Lines above the header.
  const Table title("# made in 2024\n# by us\na,b\n1,2\n");
  CHECK(
      contains(title.fault(), "t.csv:3:2: a row must have 1 field like the first, got 2\nhelp: \"skip_rows\": [1, 2] leaves out"));
  CHECK(title.read({.format = {.skip_rows = {1, 2}}, .classification = false}).size() == 1);
  CHECK(contains(Table("a,b\n1,2,\n").fault(), "help: this row ends in \",\": let the first line do so, too, or none"));
  CHECK(contains(Table("a;b;c\n1,2,3\n").fault(), "help: the first line has \";\" between its cells, this one \",\""));
  CHECK(contains(Table("a\tb\tc\n1\t2\n").fault(),
                 "help: rows that end early are filled up, in Python: import pandas; "
                 "pandas.read_csv(FILE, sep=\"\\t\").to_csv(NEW, index=False)"));
}

TEST_CASE("csv: blanks before a quote are outside of the cell, and text around quotes is text") {
  const Table spaced("k, x, y\n\"u\", \"a,b\", \"p\"\n\"v\",\t \"c \"\"d\"\"\" , \"q\"\r\n \"w\",\"e\", \"p\"\n");
  const CsvTable cells(spaced.path, {});
  REQUIRE(cells.columns() == 3);
  CHECK(cells.cell(0, 1) == "x");
  CHECK(cells.cell(1, 1) == "a,b");
  CHECK(cells.cell(2, 1) == "c \"d\"");
  CHECK(cells.cell(2, 2) == "q");
  CHECK(cells.cell(3, 0) == "w");
  CHECK(spaced.read({.header = true}).class_names() == Names{"p", "q"});
  CHECK(CsvTable(Table("a; b\n1; \"2,5\"\n3; \"4\"\n").path, {.decimal = ','}).number(1, 1) == 2.5);
  const Table odd("a,b\n \"x\" y,1\n \"z,2\n \"v \"\" w\",3\n");
  const CsvTable texts(odd.path, {});
  CHECK(texts.cell(1, 0) == "\"x\" y");
  CHECK(texts.cell(2, 0) == "\"z");  // it does not close in its line
  CHECK(texts.cell(3, 0) == "v \" w");
}

TEST_CASE("csv: rows that are longer than the first one have a title above, or a delimiter in a cell") {
  const std::string quotes = "help: a cell with \",\" in it needs quotes around it, \"a, b\"";
  for (const char* text : {"k,x,y\nu,1,p\nu,1,p\nu,a,b,q\nv,2,q\n",          // one row of a table
                           "name,x,y\nSmith, Ann,1,p\nLee, Tom,2,q\n",       // all rows
                           "kind,of,y\nfir,a,b,p\noak,c,d,q\n",              // all rows, of texts
                           "said\nhello\nyes\nwell, yes\nno\nperhaps\n"}) {  // one column
    const std::string fault = Table(text).fault();
    CHECK_MESSAGE((contains(fault, quotes) && !contains(fault, "skip_rows")), fault);
  }
  CHECK(contains(Table("Rome, Italy\nday,temp,kind\n1,20,x\n2,21,y\n").fault(),
                 "t.csv:2:3: a row must have 2 fields like the first, got 3\nhelp: \"skip_rows\": [1] leaves out what is above"));
  CHECK(contains(Table("made by us\na,b\n1,2\n3,4\n(2 rows)\n").fault(), "help: \"skip_rows\": [1] leaves out what is above"));
}

TEST_CASE("csv: a value in the second row that is no number is no unit where it comes again, or has digits alone") {
  const auto refused = [](const char* text, const std::string& value) {
    const std::string fault = Table(text).fault();
    CHECK_MESSAGE((contains(fault, "t.csv:2:1: column \"dist\" must be a number, got \"" + value) && !contains(fault, "units")),
                  fault);
    return fault;
  };
  refused("dist,kind\n1 1/2,x\n3,y\n2,x\n", "1 1/2");
  refused("dist,kind\nfar,x\n3,y\nfar,y\n2,y\n", "far");
  refused("dist,kind\nfar,x\n3,y\nfar,x\n2,y\n", "far");
  CHECK(contains(refused("dist,kind\n\"12,34,567\",x\n900,y\n800,x\n", "12,34,567"), "help: write them without commas"));
  CHECK(contains(Table("dist,kind\n%,\n3,x\n2,y\n").fault(), "help: \"skip_rows\": [2] leaves it out"));
}

TEST_CASE("csv: numbers with one unit, and times of a clock, are doubted where they are many; so are ends of files") {
  const auto warning = [](const std::function<std::string(int)>& cell, int n = 12) {
    std::string text = "v,n,y\n";
    for (int i = 0; i < n; ++i) text += cell(i) + (i % 2 ? ",1,a\n" : ",2,b\n");
    const std::vector<std::string> all = Table(text).read().notes().warnings;
    return all.empty() ? std::string() : all[0];
  };
  const auto number = [](int i) { return std::to_string(10 + i); };
  CHECK(
      contains(warning([&](int i) { return number(i) + ".5 km/h"; }),
               "column \"v\" has numbers with the unit km/h (\"10.5 km/h\"), read as 12 different texts; remove it from the file"));
  CHECK(contains(warning([&](int i) { return "1:" + number(i) + ":07"; }), "numbers with colons, as of a clock (\"1:10:07\")"));
  CHECK(contains(warning([&](int i) { return number(i) + '%'; }), "numbers with a percent sign"));
  CHECK(warning([&](int i) { return number(i) + "GB"; }, 10).empty());
  CHECK(warning([&](int i) { return number(i) + (i == 7 ? "rd" : "th"); }).empty());
  CHECK(warning([&](int i) { return number(i) + "-" + number(i + 9) + " years"; }).empty());
  CHECK(warning([&](int i) { return "1:" + number(i) + (i == 7 ? ":7" : ":07"); }).empty());
  // A footer, and the end of a file of DOS.
  const Table footer("a,b\n1,2\n3,4\n(2 rows)\n");
  CHECK(contains(footer.fault(),
                 "t.csv:4:1: a row must have 2 fields like the first, got 1\nhelp: \"skip_rows\": [4] leaves out the last"));
  CHECK(footer.read({.format = {.skip_rows = {4}}, .classification = false}).size() == 2);
  CHECK(Table("a,b\r\n1,2\r\n\x1a").read(kNumbers).size() == 1);
}

TEST_CASE("csv: rows to be predicted may have another delimiter, also where the training data's occurs in their cells") {
  const CsvDataset plain = Table("a,b\n1,2\n3,4\n").read({.format = {.delimiter = ','}, .classification = false});
  CHECK(Table("b;a\n7;5\n\n8;6\n").rows(plain).input.to_vector<float>() == Floats{5, 6});
  const CsvRows commas = Table("a;note\n5;x, y\n6;z\n").rows(plain);
  CHECK(commas.input.to_vector<float>() == Floats{5, 6});
  CHECK(contains(message_of<DataError>([&] { Table("a,b\n1,2,3\n").rows(plain); }), "a row must have 2 fields"));
}

TEST_CASE("csv: words such as inf are texts beside other texts, and numbers beside numbers") {
  const CsvDataset names = Table("who,x,y\nNaN,1,a\nEve,2,b\ninf,3,a\n").read();
  CHECK(names.feature_names() == Names{"who=Eve", "who=NaN", "who=inf", "x"});
  CHECK(contains(Table("v,y\n1,a\ninf,b\n").fault(), "must be finite in float32, got \"inf\""));
  CHECK(contains(Table("v,y\ninf,a\n-inf,b\n").fault(), "must be finite in float32, got \"inf\""));
  CHECK(contains(Table("v,y\n'1.5',a\n'2.5',b\n").read().notes().warnings.at(0),
                 "numbers with the marks of a text (\"'1.5'\"), read as 2 different texts; write them without"));
  for (const char* const rows : {"=\"1.5\",a\n=\"2.5\",b\n", "'1.5,a\n'2.5,b\n"})
    CHECK(contains(Table(std::string("v,y\n") + rows).read().notes().warnings.at(0), "numbers with the marks of a text"));
  CHECK(Table("zip,x,y\n=\"01067\",1,a\n=\"02115\",2,b\n").read().notes().warnings.empty());
}

TEST_CASE("csv: rows that repeat the header are left out, with a count") {
  const Table table("length,kind\n1,x\n2,y\n\xef\xbb\xbflength,kind\n3,x\nlength, kind \n4,y\n");
  const CsvDataset data = table.read();
  CHECK(data.input().to_vector<float>() == Floats{1, 2, 3, 4});
  CHECK((data.class_names() == Names{"x", "y"} && data.line(2) == 5));
  CHECK(contains(data.notes().summary, "; 2 rows left out, which repeat the header (lines 4, 6)"));
  const CsvRows rows = table.rows(data);
  CHECK((rows.rows == std::vector<size_t>{0, 1, 2, 3} && rows.cells[2] == Names{"3", "x"}));
  CHECK(contains(rows.notes.summary, "2 rows left out, which repeat the header"));
  const Table series("day,sold\n2024-01-01,1\n2024-01-02,2\nday,sold\n2024-01-03,4\n2024-01-04,8\n");
  const TimeSeriesDataset windows(series.path, {.columns = {"sold"}, .time = {"day"}, .window = 2});
  CHECK(windows.size() == 2);
  CHECK(contains(windows.notes().summary, "1 row left out, which repeats the header (line 4)"));
  // Its names may be numbers, or texts above texts.
  CHECK(Table("land,2001,2002,growth\nA,1,2,5\nland,2001,2002,growth\nB,3,4,6\n").read({.classification = false}).size() == 2);
  const Table years("2001,2002,2003,2004\n1,5,2,9\n2001,2002,2003,2004\n3,4,1,8\n");
  CHECK(years.read({.classification = false}).size() == 2);
  const Table texts("color,size\nred,s\nblue,l\ncolor,size\nred,l\n");
  CHECK(texts.read({.header = true}).size() == 3);
  CHECK(texts.read({.target = "size"}).size() == 3);
  CHECK(texts.read({.header = false}).size() == 5);
  CHECK(contains(texts.read().notes().warnings.at(0),
                 "the first row was read as a sample, and 1 row that is the same (line 4); if it is a header, set"));
  CHECK(contains(Table("a,b\na,b\n").fault({.header = true}), "a header but no rows: each repeats it"));
}

TEST_CASE("csv: the delimiter of Excel's first line") {
  for (const char* text :
       {"sep=;\r\na;b\r\n1,5;2\r\n", "sep=|\na|b\n1,5|2\n", "SEP=\t\na\tb\n1,5\t2\n", "\xef\xbb\xbfsep=;\na;b\n1,5;2\n"}) {
    const CsvDataset data = Table(text).read({.format = {.decimal = ','}, .classification = false});
    CHECK_MESSAGE(data.input().to_vector<float>() == Floats{1.5}, text);
  }
  CHECK(Table("sep=;\na|b\n1|2\n").read({.format = {.delimiter = '|'}, .classification = false}).size() == 1);
  CHECK(contains(Table("sep=;\na;b\n1;2;3\n").fault(), "t.csv:3:3: a row must have 2 fields"));
  CHECK(Table("sep=x,b\n1,2\n").read(kNumbers).feature_names() == Names{"sep=x"});
}

TEST_CASE("csv: columns aligned by blanks") {
  const std::string cars =
      "18.0   8  307.0  70\t\"chevrolet malibu\"\n 9.5   4   95.0  71\t\"toyota  corona\"  \n14.0   8  455.0   1 \tfiat\n";
  const CsvDataset data = Table(cars).read({.target = "0", .classification = false, .exclude = {"4"}});
  CHECK(data.input().to_vector<float>() == Floats{8, 307, 70, 4, 95, 71, 8, 455, 1});
  CHECK(contains(data.notes().summary, "; columns are separated by blanks"));
  const CsvOptions said{.format = {.delimiter = kCsvBlanks}, .classification = false};
  CHECK(Table("a b\n1  2\n").read(said).feature_names() == Names{"a"});
  CHECK(contains(Table("a b\n1  2 3\n").fault(said), "t.csv:2:3: a row must have 2 fields like the first, got 3"));
  CHECK(contains(Table("a b\n1  \"2\"3\n").fault(said), "t.csv:2:2: text follows a closing quote"));
  // Texts with blanks in them are not cut, where another delimiter or another number of blanks is found.
  CHECK(Table("New York\tUSA\nParis\tF\n").read().size() == 2);
  CHECK(Table("a b,c d\n1,2\n").read(kNumbers).feature_names() == Names{"a b"});
  CHECK(Table("a b\tc d\n1\t2\n").read(kNumbers).feature_names() == Names{"a b"});
  CHECK(Table("x y\tz\n1 2\t3\n").read({.target = "z"}).feature_names() == Names{"x y=1 2"});
  CHECK(Table("1,5  2\n2,5  3\n").read({.format = {.decimal = ','}, .classification = false}).input().to_vector<float>() ==
        Floats{1.5, 2.5});
  // What is predicted from such a table is read so, too.
  const CsvDataset plain = Table("1  2\n3  4\n").read(kNumbers);
  const CsvRows rows = Table("5   6\n7 8\n").rows(plain);
  CHECK(rows.input.to_vector<float>() == Floats{5, 7});
  CHECK(rows.delimiter == ',');
}

TEST_CASE("csv: values of new rows that are far outside of the training data's are counted, and one is named with both") {
  const CsvDataset data = Table("mass,kind,y\n2700,a,1\n6300,b,2\n4000,a,3\n").read({.classification = false, .standardize = true});
  CHECK((data.encoding().low == std::vector<double>{2700, 0, 0} && data.encoding().high == std::vector<double>{6300, 1, 1}));
  const CsvRows rows = Table("mass,kind,y\n2.7,a,1\n3000000,b,2\n4000,a,3\n-40000,b,3\n").rows(data);
  CHECK(rows.rows.size() == 4);
  CHECK(rows.far_values == 2);
  CHECK(rows.far_value == "mass is 3e+06 in row 2, where the training data has 2700 to 6300");
  CHECK(Table("mass,kind,y\n-20000,a,1\n40000,b,2\n").rows(data).far_values == 0);
  // Without a scale, too; and of one value alone.
  const CsvDataset plain = Table("1,5,2\n2,5,3\n").read(kNumbers);
  CHECK(Table("9,5.1,2\n20,500,4\n").rows(plain).far_values == 2);
}

TEST_CASE("csv: a header that counts the columns from 0") {
  const auto names_of = [](const char* text, bool classes = false) {
    const CsvDataset data = Table(text).read({.classification = classes});
    CHECK_MESSAGE(contains(data.notes().summary, "the first row is the header, since it counts the columns from 0"), text);
    CHECK_MESSAGE(data.notes().warnings.empty(), text);
    return data.size();
  };
  CHECK(names_of("0,1,2\n0.5,1.5,3\n-0.25,2.5,4\n0.75,3.5,5\n") == 3);
  CHECK(names_of("0;1;2;3\n12;40;7;1\n3;8;90;0\n", true) == 2);
  CHECK(names_of("0,1,2,3,4,5,6,7,8,9,10,11\n1,2,3,4,5,6,7,8,9,1,2,3\n5,4,3,2,1,0,0,0,0,0,0,1\n", true) == 2);
  CHECK(names_of(",0,1\n0,5,7\n1,6,8\n2,1,9\n") == 3);  // an index
  CHECK(names_of(",0,1,kind\n7,5,1,cat\n3,6,1,dog\n9,1,0,cat\n", true) == 3);
  CHECK(names_of("0,1,2\n5,4,cat\n3,6,dog\n9,1,cat\n", true) == 3);
  for (const char* text : {"0,1\n0.5,0.25\n1,0.125\n", "0,1,2\n3,4,5\n6,7,8\n", "0,1,2,cat\n4,4,3,dog\n1,7,4,cat\n",
                           "0,1,3\n0.5,1.5,3\n0.25,2.5,4\n", "0,2,4\n0.5,1.5,3\n0.25,2.5,4\n"}) {
    const CsvDataset data = Table(text).read({.classification = contains(text, "cat")});
    CHECK_MESSAGE(data.size() == std::count(text, text + std::string_view(text).size(), '\n'), text);
    CHECK_MESSAGE(data.notes().warnings.empty(), text);
  }
  // Every order of the same numbers begins like that.
  const CsvDataset orders = Table("0,1,2,3\n0,1,3,2\n0,2,1,3\n3,2,1,0\n").read(kNumbers);
  CHECK(orders.size() == 4);
  CHECK(contains(orders.notes().warnings.at(0), "though its numbers from 0 on rise evenly as names of columns do"));
}

TEST_CASE("csv: words for missing values that are read as texts are named") {
  const Table table("a,c,kind\n1,N/A,cat\n2,red,-\n3,--,dog\n4,red,-\n");
  const std::string notes = table.read().notes().summary;
  CHECK_MESSAGE(contains(notes, R"(; column c: "--", "N/A" are some of the texts; "missing_words": ["--", "N/A"] reads them as )"),
                notes);
  const char* const of_class = R"(; classes: "-" is one of the texts; "missing_words": ["-"] reads it as a missing value)";
  CHECK_MESSAGE(contains(notes, of_class), notes);
  const CsvDataset read = table.read({.missing = CsvMissing::constant, .missing_words = {"-", "--", "N/A"}, .fill = 0});
  CHECK(read.size() == 2);
  CHECK(!contains(read.notes().summary, "of the texts"));
}
