// SPDX-License-Identifier: Apache-2.0
// `halfstep init` on data that leaves a choice, or none: the target, the columns left out, and the promise that what it writes
// passes `halfstep validate`.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "framework/io/weights/safetensors.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"
#include "tests/data/array_files.h"
#include "tests/data/picture_files.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

std::string table(const std::string& header, int n, const std::function<std::string(int)>& row) {
  std::string out = header + '\n';
  for (int i = 0; i < n; ++i) out += row(i) + '\n';
  return out;
}
std::string text(int i) { return std::to_string(i); }
std::string one_of_three(int i) { return i % 3 == 0 ? "Adelie" : i % 3 == 1 ? "Gentoo" : "Chinstrap"; }
int shuffled(int i, int n) { return (i * 37 + 11) % n; }  // n not a multiple of 37

// What init prints for a table, the config and then what it says; its exit code is `code`, and only then is there a config.
struct Began {
  int code;
  std::string config, said;
  bool has(const std::string& part) const { return contains(config, part) || contains(said, part); }
};
Began begin(const TempDir& dir, const std::string& arguments) {
  fs::remove(dir / "c.json");
  const Ran r = run(dir, "init " + arguments + " --out c.json");
  const Began out{r.code, read(dir / "c.json"), r.err};
  CHECK_MESSAGE((r.code == 0) == !out.config.empty(), arguments, ": ", r.err);
  if (r.code == 0) {
    const Ran valid = run(dir, "validate c.json");
    CHECK_MESSAGE(valid.code == 0, arguments, ": ", valid.err, out.config);
  }
  return out;
}

}  // namespace

TEST_CASE("init: the target is a column that can be one") {
  const TempDir dir;
  const auto chooses = [&](const std::string& csv, const std::string& target, const std::string& why) {
    write(dir / "t.csv", csv);
    const Began b = begin(dir, "t.csv");
    CHECK_MESSAGE(contains(b.config, "\"target\": \"" + target + '"'), b.said, b.config);
    CHECK_MESSAGE(contains(b.said, "to predict " + target + " (" + why + ")"), b.said);
  };
  // A class of tickets, and then who lived.
  chooses(table("age,class,lived", 60, [](int i) { return text(20 + i * 7 % 40) + ',' + text(1 + i % 3) + ',' + text(i % 2); }),
          "lived", "the last column");
  // y is a side of a stone here.
  chooses(
      table("carat,y,worth", 60, [](int i) { return text(i * 7 % 11) + ".5," + text(i * 5 % 13) + ".25," + text(300 + 17 * i); }),
      "worth", "the last column");
  // Names that nearly all differ.
  chooses(table("power,consumption,car", 60,
                [](int i) { return text(90 + i * 7 % 40) + ',' + text(4 + i * 3 % 9) + ".5,model " + text(i); }),
          "consumption", "the last column that could be one");
  // A year, and a column that is mostly empty.
  chooses(table("kind,mass,year", 60,
                [](int i) { return one_of_three(i) + ',' + text(3000 + i * 137 % 900) + ',' + text(2007 + i % 3); }),
          "mass", "the last column that could be one");
  chooses(table("mass,kind,remarks", 60,
                [](int i) {
                  return text(3000 + i * 137 % 900) + ',' + one_of_three(i) + ',' + (i % 9 == 0 ? "wet" : i % 9 == 1 ? "dry" : "");
                }),
          "kind", "the last column that could be one");
  // A number of the row in another order; times of day; one value alone.
  chooses(
      table("size,heat,place", 60, [](int i) { return text(i * 7 % 11) + ',' + text(i * 5 % 13) + ".5," + text(shuffled(i, 60)); }),
      "heat", "the last column that could be one");
  chooses(
      table("y,watts,at", 60,
            [](int i) { return text(i * 7 % 11) + ".5," + text(i * 5 % 13) + ".5,00:" + text(10 + i % 50) + ":" + text(10 + i); }),
      "y", "by its name");
  chooses(table("size,heat,unit", 60, [](int i) { return text(i * 7 % 11) + ',' + text(i * 5 % 13) + ".5,kW"; }), "heat",
          "the last column that could be one");
}

TEST_CASE("init: --target and --task") {
  const TempDir dir;
  write(dir / "birds.csv", table("species,mass,wing,sex", 60, [](int i) {
          return one_of_three(i) + ',' + text(3000 + 7 * i) + ',' + text(180 + i * 7 % 50) + ',' + (i % 2 ? "f" : "m");
        }));
  const Began plain = begin(dir, "birds.csv --target mass");
  CHECK(plain.has(R"("target": "mass")"));
  CHECK(plain.has(R"("task": "regression")"));
  CHECK(plain.has("the target could also be species, wing, sex: --target COLUMN [--task classification|regression]"));
  CHECK(begin(dir, "birds.csv --target 0").has(R"("target": "species")"));
  CHECK(begin(dir, "birds.csv --target wing --task classification").has("\"CrossEntropyLoss\""));
  const Began column = begin(dir, "birds.csv --target weight");
  CHECK(column.code == 2);
  CHECK_MESSAGE(column.has("has no column \"weight\"; its 4 columns are species, mass, wing, sex"), column.said);
  const Began task = begin(dir, "birds.csv --target sex --task regression");
  CHECK(task.code == 2);
  CHECK_MESSAGE(task.has("--task regression needs a column of numbers, but sex has texts"), task.said);
  CHECK(begin(dir, "birds.csv --task numbers").code == 2);
  write(dir / "novel.txt", std::string(5000, 'a') + std::string(5000, 'b'));
  CHECK(begin(dir, "novel.txt --target mass").code == 2);
  save_safetensors(dir / "a.safetensors", {{"x", rand({40, 4})}, {"kind", randint(0, 3, {40})}, {"age", rand({40})}});
  CHECK(begin(dir, "a.safetensors --target age").has("\"MSELoss\""));
  CHECK(begin(dir, "a.safetensors --target kind").has("\"CrossEntropyLoss\""));
  CHECK(begin(dir, "a.safetensors --target sort").has("it has "));
}

TEST_CASE("init: columns that are left out, and cells that are read otherwise, are named") {
  const TempDir dir;
  const auto says = [&](const std::string& csv, std::initializer_list<const char*> parts,
                        std::initializer_list<const char*> never = {}) {
    write(dir / "t.csv", csv);
    const Began b = begin(dir, "t.csv");
    CHECK(b.code == 0);
    for (const char* part : parts) CHECK_MESSAGE(b.has(part), part, '\n', b.said, b.config);
    for (const char* part : never) CHECK_MESSAGE(!b.has(part), part, '\n', b.said, b.config);
  };
  const auto y = [](int i) { return ',' + text(i % 2); };
  // 300 texts of 1,200 rows are not nearly all different; 900 are.
  says(table("city,x,y", 1200, [&](int i) { return "c" + text(i % 300) + ',' + text(i % 7) + y(i); }),
       {"city has 300 different texts, where a column may have 64"}, {"nearly all differ"});
  says(table("who,x,y", 1200, [&](int i) { return "c" + text(i % 900) + ',' + text(i % 7) + y(i); }),
       {"who has texts that nearly all differ (900 in 1200 rows)"});
  says(table("review,x,y", 60, [&](int i) { return "it was a good film number " + text(i) + ',' + text(i % 7) + y(i); }),
       {"left out: review has free texts (60 different in 60 rows)",
        "--text COLUMN takes the words of a text for the input, in place of all other columns"});
  // A word for a missing value may be a class; a person must say.
  says(table("x,kind", 60, [&](int i) { return text(i % 7) + ',' +
                                               (i % 10 == 0 ? "NA"
                                                : i % 2     ? "oak"
                                                            : "elm"); }),
       {"\"NA\" counts as a class of kind, in 6 rows; if it means no answer, \"missing_words\": [\"NA\"] leaves these rows out"});
  // Thousands, also where the delimiter separates them.
  says(table("income,y", 60, [&](int i) { return (i % 2 ? "\"1," + text(100 + i) + '"' : text(900 + i)) + y(i); }),
       {R"("thousands": ",")", R"("delimiter": ",")", "thousands are separated: \"1,101\" is 1101"}, {"exclude"});
  // A typing error among numbers, one among dates.
  says(table("income,y", 300, [&](int i) { return (i == 16 ? "12o" : text(100 + i * 7 % 90)) + y(i); }),
       {"income has a cell that is no number, taken for a missing value: \"12o\" in t.csv:18:1", R"("missing_words": ["12o"])"},
       {"exclude"});
  says(table("day,x,y", 60,
             [&](int i) { return (i == 5 ? "soon" : "2024-03-" + text(10 + i * 7 % 20)) + ',' + text(i % 7) + y(i); }),
       {"day has a cell that is no date, taken for a missing value: \"soon\" in t.csv:7:1", R"("dates": ["day"])"}, {"exclude"});
  says(table("cost,x,y", 60, [&](int i) { return (i % 2 ? "$" : "") + text(i * 7 % 50) + ',' + text(i % 7) + y(i); }),
       {R"("accounting": true)"}, {"exclude"});
  says(table("profit,x,y", 60, [&](int i) { return (i % 3 ? text(i) : "(" + text(i) + ")") + ',' + text(i % 7) + y(i); }),
       {R"("accounting": true)"}, {"exclude"});
  // Ranges of ages, of which one ends with a dash, are no numbers of accounting.
  says(table("ages,x,y", 60, [&](int i) { return std::string(i % 3 ? "18-25" : "18-") + ',' + text(i % 7) + y(i); }), {},
       {"accounting"});
  says(table("code,x,y", 60, [&](int i) { return (i % 2 ? "A" + text(i % 5) : text(i % 5)) + ',' + text(i % 7) + y(i); }),
       {"code mixes 30 numbers and 30 texts such as \"A1\""});
  // Indexes: without a name, in another order, of an extract.
  says(table(",x,y", 60, [&](int i) { return text(shuffled(i, 60)) + ',' + text(i % 7) + y(i); }),
       {"numbers the rows, in another order"});
  says(table("Unnamed: 0,x,y", 60, [&](int i) { return text(shuffled(i, 60) * 3) + ',' + text(i % 7) + y(i); }),
       {"is an index without a name"});
  says(table("CustomerId,x,y", 60, [&](int i) { return text(1000 + shuffled(i, 60) * 7) + ',' + text(i % 7) + y(i); }),
       {"CustomerId is an id"});
  says(table("size,x,y", 60, [&](int i) { return text(shuffled(i, 60) * 2) + ',' + text(i % 7) + y(i); }), {}, {"exclude"});
  // Rows without a target.
  says(table("x,y", 60, [&](int i) { return text(i % 7) + ',' + (i == 7 ? "" : text(i * 5 % 60) + ".5"); }),
       {"1 row has no value of y, and is left out"});
  // Nothing but texts, and a name with an end of line.
  says(table(
           "color,size,kind", 60,
           [](int i) { return std::string(i % 2 ? "red" : "blue") + ',' + (i % 3 ? "big" : "small") + ',' + (i % 5 ? "a" : "b"); }),
       {R"("header": true)", R"("target": "kind")"}, {"was read as a sample"});
  // Two files of them, one behind the other; and rows that are all there twice, which have no header.
  const auto words = [](int i) { return std::string(i % 2 ? "red" : "blue") + ',' + (i % 3 ? "big" : "small"); };
  says(table("color,size", 30, words) + table("color,size", 30, words),
       {R"("header": true)", R"("target": "size")", "1 row left out, which repeats the header (line 32)", "48 samples"});
  std::string twice;
  for (int i = 0; i < 10; ++i) twice += "red,big\nblue,small\n";
  says(twice, {"was read as a sample, and 9 rows that are the same (lines 3, 5, 7, 9, 11 and 4 more)"}, {R"("header": false)"});
  says(
      table("\"income\n(euro)\",x,y", 60, [&](int i) { return "it was a good film number " + text(i) + ',' + text(i % 7) + y(i); }),
      {"income (euro) has free texts"});
  // A year is a time.
  says(table("YEAR,spots", 60, [](int i) { return text(1900 + i) + ',' + text(i * 7 % 50) + ".5"; }),
       {R"("type": "TimeSeries")", R"("time": "YEAR")"});
  says(
      table("day,heat", 60, [](int i) { return "2024-03-" + text(10 + (i < 10 ? i : i - 1) / 3) + ',' + text(i * 7 % 50) + ".5"; }),
      {R"("type": "TimeSeries")", "the order of day is not checked: t.csv:3:1 is not later than the row before it"}, {R"("time")"});
}

TEST_CASE("init: --set says how the data is read, and help names it") {
  const TempDir dir;
  const auto y = [](int i) { return ',' + text(i % 2); };
  const auto refuses = [&](const char* file, const std::string& bytes, const std::string& option) {
    write(dir / file, bytes);
    const Began b = begin(dir, file);
    CHECK_MESSAGE((b.code == 3 && contains(b.said, "; with init: --set " + option + '\n')), b.said);
    const Began asked = begin(dir, std::string(file) + " --set " + option);
    CHECK_MESSAGE(asked.code == 0, asked.said);
    return asked.config;
  };
  const std::string bytes = table(
      "gr\xf6\xdf"
      "e,x,y",
      60, [&](int i) { return text(i % 7) + ',' + text(i % 5) + y(i); });
  CHECK(contains(refuses("latin.csv", bytes, "data.encoding=latin-1"), R"("encoding": "latin-1")"));
  CHECK(contains(refuses("title.csv", "# by us\n# 2024\n" + table("x,y", 60, [&](int i) { return text(i % 7) + y(i); }),
                         "'data.skip_rows=[1,2]'"),
                 R"("skip_rows": [1,2])"));
  const auto days = [](int i) { return "2024-0" + text(1 + i / 28) + '-' + text(101 + i % 28).substr(1) + ',' + text(i * 7 % 50); };
  CHECK(contains(refuses("series.csv", "sold by us\n" + table("day,sold", 56, days), "'data.skip_rows=[1]'"),
                 R"("type": "TimeSeries")"));
  CHECK(contains(
      refuses("both.csv", table("a;kind,x", 60, [](int i) { return text(i % 7) + ";k," + text(i % 2); }), "'data.delimiter=;'"),
      R"("delimiter": ";")"));
  CHECK(contains(refuses("words.txt", std::string(900, 'a') + "\xe9" + std::string(900, 'b'), "data.encoding=latin-1"),
                 R"("encoding": "latin-1")"));
  for (const char* kind : {"cat", "dog"}) {
    fs::create_directories(dir / "pets" / kind);
    for (int i = 0; i < 4; ++i)
      write(dir / "pets" / kind / (text(i) + ".png"), halfstep::testing::png(9, 9, std::string(9 * 9 * 3, char(i + 40 * kind[0]))));
  }
  write(dir / "pets" / "cat" / "9.png", "<html>no picture at all, but a page</html>");
  CHECK(begin(dir, "pets").has("; with init: --set data.on_error=skip\n"));
  const Began skips = begin(dir, "pets --set data.on_error=skip");
  CHECK_MESSAGE((skips.code == 0 && skips.has(R"("on_error": "skip")") && skips.has("1 of 9 pictures is left out")), skips.said);
  CHECK(begin(dir, "latin.csv --set data.shuffle=1").has("of a table init takes data.encoding, data.delimiter, data.skip_rows"));
  CHECK(begin(dir, "latin.csv --set data.encoding=cp437").has("encoding does not take this value"));
}

TEST_CASE("init: what a random part for validation hides, and what is read in another way than it is written, is said") {
  const TempDir dir;
  const auto says = [&](const char* file, const std::string& csv, std::initializer_list<const char*> parts,
                        std::initializer_list<const char*> never = {}) {
    write(dir / file, csv);
    const Began b = begin(dir, file);
    CHECK(b.code == 0);
    for (const char* part : parts) CHECK_MESSAGE(b.has(part), part, '\n', b.said, b.config);
    for (const char* part : never) CHECK_MESSAGE(!b.has(part), part, '\n', b.said, b.config);
  };
  const auto y = [](int i) { return ',' + text(i % 2); };
  // Whole numbers that differ behind what a double holds.
  says("t.csv", table("x,account", 60, [](int i) { return text(i % 7) + ",1844674407370955161" + text(i % 2); }),
       {"to predict account", "2 classes"}, {"one value alone"});
  says("t.csv", table("x,z,y", 60, [&](int i) { return text(i % 30 * 7) + ',' + text(i % 30 % 11) + y(i); }),
       {"30 of 60 rows equal an earlier one in each cell"});
  says("t.csv", table("doctor_id,x,y", 60, [&](int i) { return text(100 + i / 4) + ',' + text(i) + ".5" + y(i); }),
       {"left out: doctor_id is an id that rows share, 15 different in 60 rows"}, {"equal an earlier one"});
  says("t.csv", table("zip,x,y", 60, [&](int i) { return "0" + text(1000 + i * 7 % 60 * 3) + ',' + text(i % 7) + y(i); }),
       {"zip has numbers with a 0 in front, such as \"01000\", which is lost"});
  says("t.csv", table("zip,x,y", 60, [&](int i) { return "0." + text(1000 + i * 7 % 60) + ',' + text(i % 7) + y(i); }), {},
       {"a 0 in front"});
  says("t.csv", table("masonry,x,y", 60, [&](int i) { return std::string(i % 4 ? "Brick" : "None") + ',' + text(i % 7) + y(i); }),
       {"\"None\" counts as a missing value of masonry, in 15 rows; without \"missing_words\" it is a text like the others"});
  says("t.csv", table("ticker,x,y", 60, [&](int i) { return std::string(i % 3 ? "IBM" : "NAN") + ',' + text(i % 7) + y(i); }),
       {"\"NAN\" counts as a missing value of ticker, in 20 rows"});
  says("t.csv", table("ticker,x,y", 60, [&](int i) { return std::string(i % 3 ? "IBM" : "INF") + ',' + text(i % 7) + y(i); }),
       {"input [3]"});
  says("t.csv",
       table("kind,day,x,y", 60,
             [&](int i) { return text(i % 2) + ",2024-03-" + text(10 + i / 2 % 19) + ',' + text(i * 7 % 41) + y(i); }),
       {"rows have dates (\"day\"), but the part for validation is a random one"});
  says("t.csv", table("mass,x,y", 60, [&](int i) { return text(40 + i % 30) + " kg," + text(i % 7) + y(i); }),
       {"left out: mass has numbers with the unit kg such as \"40 kg\": remove it from the file"});
  says("t.csv", table("memory,x,y", 60, [&](int i) { return text(4 << i % 4) + "GB," + text(i % 7) + y(i); }), {"input [5]"});
  write(dir / "t.csv", table("x,label,label", 60, [&](int i) { return text(i % 7) + ',' + text(i % 3) + y(i); }));
  CHECK(begin(dir, "t.csv").has("the target must have a name of its own, but several columns are called \"label\""));
  // Days in two forms, and months.
  says("t.csv",
       table("day,sold", 20,
             [](int i) { return (i % 2 ? text(10 + i) + ".03.2024" : "2024-03-" + text(10 + i)) + ',' + text(i * 7 % 19); }),
       {R"("type": "TimeSeries")"}, {"exclude"});
  says("t.csv",
       table("month;sold", 30,
             [](int i) { return text(101 + i % 12).substr(1) + '.' + text(2015 + i / 12) + ';' + text(i * 7 % 19); }),
       {R"("type": "TimeSeries")", R"("time": "month")"});
  // A table of texts under another name.
  says("t.txt", table("x\ty", 60, [](int i) { return text(i % 7) + '\t' + text(i % 2); }),
       {"each line has 1 tab, so the file is read as a table", R"("type": "CSV")"});
  says("t.txt", table("x|z|y", 60, [](int i) { return text(i % 7) + '|' + text(i % 5) + '|' + text(i % 2); }),
       {R"("type": "CSV")"});
  says("t.txt", table("One, two, three.", 60, [](int) { return "Four, five, six."; }), {R"("type": "Text")"});
  says("t.md", table("x\ty", 600, [](int i) { return text(i % 7) + '\t' + text(i % 2); }), {R"("type": "Text")"});
  write(dir / "same.csv", table("day,sold", 20, [](int i) { return "2024-03-" + text(10 + i) + ",7"; }));
  CHECK(begin(dir, "same.csv").has("a series must have two different values, but sold has one alone"));
}

TEST_CASE("init: whatever the data, its config passes validate, or nothing is written and the remedy printed") {
  const TempDir dir;
  const auto two = [](int i) { return text(i % 7) + ',' + text(i % 2); };
  const auto bytes = [](const auto& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof values[0]);
  };
  const Tensor x = rand({60, 4}), kinds = randint(0, 3, {60}), images = rand({12, 1, 16, 16}), planes = randint(0, 2, {12, 16, 16});
  const Tensor bits = randint(0, 2, {60, 5});
  const auto arrays = [&](const char* name, const Tensor& inputs, const Tensor& targets) {
    save_safetensors(dir / (std::string(name) + ".safetensors"), {{"x", inputs}, {"y", targets}});
  };
  arrays("masks", images, randint(0, 4, {12, 16, 16}));
  arrays("masks_alone", images.squeeze(1), planes.to(DType::u8));
  arrays("masks_true", images, planes.to(DType::boolean));
  arrays("masks_channel", images, planes.unsqueeze(1));
  arrays("masks_255", images, (planes * 255).to(DType::u8));
  arrays("nan", log(x - 0.5), kinds);
  arrays("steps", rand({40, 3, 50}), randint(0, 4, {40, 50}));
  arrays("bits", x, bits);
  arrays("bits_float", x, bits.to(DType::f32));
  arrays("bits_true", x, bits.to(DType::boolean));
  arrays("one_hot", x, one_hot(kinds, 3));
  arrays("column", x, kinds.unsqueeze(1));
  arrays("true", x, kinds.to(DType::boolean));
  arrays("signs", x, (randint(0, 2, {60}) * 2 - 1).to(DType::f32));
  arrays("signs_whole", x, (randint(0, 2, {60}) * 2 - 1).to(DType::i64));
  arrays("many", x, randint(0, 50000, {60}));
  arrays("floats", x, kinds.to(DType::f32));
  arrays("flat", x.select(1, 0), kinds);
  arrays("photos", rand({60, 20, 24, 3}), kinds);
  arrays("gray", randint(0, 255, {60, 20, 20}).to(DType::u8), kinds);
  arrays("late_channels", rand({60, 40, 3}), kinds);
  arrays("to_pictures", images, rand({12, 2, 16, 16}));
  arrays("to_rows", x, rand({60, 3, 5}));
  arrays("short", x, kinds.narrow(0, 0, 50));
  arrays("constant", x, kinds * 0);
  arrays("few", x.narrow(0, 0, 2), arange(2));
  Tensor gaps = rand({60});
  gaps.select(0, 7).fill_(NAN);
  arrays("gaps", x, gaps);
  const std::vector<float> four(40, 1.5f);
  write(dir / "words.npz", halfstep::testing::zip({{"x.npy", halfstep::testing::npy("<f4", "(10, 4)", bytes(four))},
                                                   {"y.npy", halfstep::testing::npy("<U1", "(10,)", std::string(40, 'a'))}},
                                                  false));
  const auto csv = [&](const char* name, const std::string& rows) { write(dir / (std::string(name) + ".csv"), rows); };
  csv("rows2", "x,y\n1,0\n2,1\n");
  csv("one_class", table("x,y", 60, [](int i) { return text(i % 7) + ",same"; }));
  csv("names", table("x,y", 60, [](int i) { return text(i % 7) + ",name " + text(i); }));
  csv("classes", table("x,y", 2500, [](int i) { return text(i % 7) + ",c" + text(i % 1200); }));
  csv("numbers", table("x,y", 2500, [](int i) { return text(i % 7) + "," + text(i % 1200); }));
  csv("twice", table("x,x,y", 60, [&](int i) { return text(i % 5) + ',' + two(i); }));
  csv("huge", table("x,y", 60, [](int i) { return (i == 9 ? "1e300" : text(i % 7)) + ',' + text(i % 2); }));
  csv("infinite", table("x,y", 60, [](int i) { return (i == 9 ? "inf" : text(i % 7)) + ',' + text(i % 2); }));
  csv("gap", table("day,heat", 60, [](int i) { return "2024-03-" + text(i / 3 + 10) + ',' + (i == 20 ? "" : text(i % 7)); }));
  csv("backwards", table("day,heat", 20, [](int i) { return "2024-03-" + text(29 - i) + ',' + text(i % 7); }));
  csv("shuffled", table("day,heat", 20, [](int i) { return "2024-03-" + text(10 + i * 7 % 20) + ',' + text(i % 7); }));
  csv("holes", table("a,b,y", 60, [](int i) {
        return (i % 3 ? "1" : "") + std::string(",") + (i % 2 ? text(i) : "") + ',' + (i % 10 ? text(i) + ".5" : "");
      }));
  csv("end", table("x,y,", 60, [&](int i) { return two(i) + ','; }));
  csv("lonely", table("x,y", 60, [&](int i) { return text(i % 7) + ',' + (i == 3 ? "c" : i % 2 ? "a" : "b"); }));
  csv("umlauts", "\xef\xbb\xbf" + table("Gr\xc3\xb6\xc3\x9f"
                                        "e;Preis \"neu\"",
                                        60, [](int i) { return "1," + text(i % 7) + ";1.2" + text(10 + i) + ",5"; }));
  write(dir / "short.txt", "abc");

  // "": a config; else what is said of the remedy.
  const std::pair<const char*, const char*> all[] = {
      {"masks.safetensors", ""},
      {"masks_alone.safetensors", ""},
      {"masks_true.safetensors", ""},
      {"masks_channel.safetensors", ""},
      {"masks_255.safetensors", "np.unique("},
      {"nan.safetensors", "np.nan_to_num("},
      {"steps.safetensors", ""},
      {"bits.safetensors", ""},
      {"bits_float.safetensors", ""},
      {"bits_true.safetensors", ""},
      {"one_hot.safetensors", ""},
      {"column.safetensors", ""},
      {"true.safetensors", ""},
      {"signs.safetensors", ""},
      {"signs_whole.safetensors", "np.unique("},
      {"many.safetensors", ""},
      {"floats.safetensors", ""},
      {"flat.safetensors", "[:, None]"},
      {"photos.safetensors", ""},
      {"gray.safetensors", ""},
      {"late_channels.safetensors", ""},
      {"to_pictures.safetensors", ""},
      {"to_rows.safetensors", ""},
      {"short.safetensors", "must have a row for each sample"},
      {"constant.safetensors", "--target names another"},
      {"few.safetensors", ""},
      {"gaps.safetensors", "np.isfinite("},
      {"words.npz", "np.unique("},
      {"rows2.csv", "help: "},
      {"one_class.csv", "help: "},
      {"names.csv", ""},
      {"classes.csv", ""},
      {"numbers.csv", ""},
      {"twice.csv", ""},
      {"huge.csv", ""},
      {"infinite.csv", ""},
      {"gap.csv", ""},
      {"backwards.csv", "t = t[::-1]"},
      {"shuffled.csv", "sort_values("},
      {"holes.csv", ""},
      {"end.csv", ""},
      {"lonely.csv", ""},
      {"umlauts.csv", ""},
      {"short.txt", "help: "},
  };
  for (const auto& odd : all) {
    const std::string data = odd.first, remedy = odd.second;
    CAPTURE(data);
    const Began b = begin(dir, data);
    CHECK_MESSAGE(b.code == (remedy.empty() ? 0 : 3), b.said);
    CHECK_MESSAGE(contains(b.said, remedy), b.said);
  }
}

TEST_CASE("init: a series in an array gets convolutions, inputs a scale, and held-out arrays their place") {
  const TempDir dir;
  save_safetensors(dir / "waves.safetensors", {{"x", rand({60, 3, 100}) * 50.0}, {"y", randint(0, 3, {60})}});
  const Began waves = begin(dir, "waves.safetensors");
  CHECK(waves.has("\"Conv1d\""));
  CHECK(waves.has(R"("transforms": [{"type": "Normalize", "from": "data"}])"));
  CHECK(run(dir, "train c.json --quiet --threads 1 --set train.epochs=1 --set output_dir=r").code == 0);
  save_safetensors(dir / "digits.safetensors", {{"x_train", randint(0, 255, {40, 8, 8}).to(DType::u8)},
                                                {"y_train", randint(0, 3, {40})},
                                                {"x_test", randint(0, 255, {12, 8, 8}).to(DType::u8)},
                                                {"y_test", randint(0, 3, {12})}});
  const Began digits = begin(dir, "digits.safetensors");
  CHECK_MESSAGE(digits.has(R"("val": {"type": "Safetensors", "path": "digits.safetensors", "input": "x_test", "target": "y_test")"),
                digits.config);
  CHECK(digits.has("\"Conv2d\""));
}

TEST_CASE("init: small pictures keep their size, gray ones their channel, and characters are not mirrored") {
  const TempDir dir;
  const auto draw = [&](const char* root, std::initializer_list<const char*> classes, bool gray) {
    for (const char* c : classes) {
      fs::create_directories(dir / root / c);
      for (int i = 0; i < 12; ++i) {
        std::string pixels;
        for (int p = 0; p < 10 * 10; ++p)
          pixels += gray ? std::string(3, char(p + 9 * i)) : std::string{char(p), char(i), char(99)};
        write(dir / root / c / (text(i) + ".png"), halfstep::testing::png(10, 10, pixels));
      }
    }
  };
  draw("ziffern", {"3", "8", "A"}, true);
  const Began digits = begin(dir, "ziffern");
  for (const char* part : {R"("size": 10)", R"("grayscale": true)", "not mirrored"}) CHECK_MESSAGE(digits.has(part), digits.config);
  CHECK(!digits.has("RandomHorizontalFlip"));
  draw("pets", {"cat", "dog"}, false);
  const Began pets = begin(dir, "pets");
  for (const char* part : {R"("size": 10)", "RandomHorizontalFlip", "mirrored at random"})
    CHECK_MESSAGE(pets.has(part), pets.config);
  CHECK(!pets.has("grayscale"));
}

TEST_CASE("init: the next commands are words of a shell, and what is no config names init") {
  const TempDir dir;
  write(dir / "t.csv", table("x,y", 60, [](int i) { return text(i % 7) + ',' + text(i % 2); }));
  const Ran r = run(dir, "init t.csv --out 'my first.json'");
  CHECK_MESSAGE(contains(r.err, "halfstep train 'my first.json'\n"), r.err);
  write(dir / "one x.npy", halfstep::testing::npy(rand({4, 2})));
  const Began array = begin(dir, "'one x.npy'");
  CHECK(array.code == 3);
  CHECK_MESSAGE(array.has("np.savez(\"data.npz\", x=np.load(\"one x.npy\"), y=...)"), array.said);
  const Ran trained = run(dir, "train t.csv");
  CHECK(trained.code == 2);
  CHECK_MESSAGE(contains(trained.err, "help: if it is data, `halfstep init t.csv` writes a config for it"), trained.err);
  CHECK(contains(run(dir, "validate 'one x.npy'").err, "`halfstep init 'one x.npy'` writes"));
  fs::create_directories(dir / "pets");
  CHECK(contains(run(dir, "train pets").err, "`halfstep init pets` writes a config for it"));
}

TEST_CASE("init: arrays of floats that are labels, of one value alone, beyond float32, and arrays that nobody needs") {
  const TempDir dir;
  const Tensor x = rand({60, 4}), bits = randint(0, 2, {60});
  const auto arrays = [&](const Tensor& inputs, const Tensor& targets) {
    save_safetensors(dir / "a.safetensors", {{"x", inputs}, {"y", targets}, {"names", bits}});
    return begin(dir, "a.safetensors");
  };
  for (const Tensor& y : {bits.to(DType::f32), bits.to(DType::f64).unsqueeze(1)}) {
    const Began b = arrays(x, y);
    CHECK_MESSAGE((b.has(R"("task": "classification")") && b.has(R"("CrossEntropyLoss")")), b.said, b.config);
    CHECK(b.has("y has 0 and 1 as floats, read as classes; numbers to predict: --task regression"));
    CHECK(b.has("arrays that are left out: names"));
  }
  CHECK(begin(dir, "a.safetensors --task regression").has(R"("MSELoss")"));
  CHECK(arrays(x * 0 + 3, bits).has("the inputs must have two different values, but x has 3 alone"));
  Tensor far = x.to(DType::f64);
  far.select(0, 7).fill_(-1e200);
  CHECK(arrays(far, bits).has("x has 4 values that float32 does not hold, up to 1e+200\nhelp: in Python: import numpy as np"));
}

TEST_CASE("init: a decimal comma in quotes is one also where the comma delimits, unless it separates thousands") {
  const TempDir dir;
  const auto comma = [](int whole, int fraction) { return '"' + text(whole) + ',' + text(fraction) + '"'; };
  write(dir / "t.csv", table("height,width,y", 60, [&](int i) {
          return comma(1 + i % 7, 10 + i * 7 % 90) + ',' + text(i * 5 % 13) + ',' + comma(10 + i % 9, 100 + i * 37 % 900);
        }));
  const Began decimal = begin(dir, "t.csv --target y");
  CHECK_MESSAGE(decimal.has(R"("decimal": ",")"), decimal.config);
  CHECK(decimal.has("said here, since it is the decimal sign, too"));
  CHECK(!decimal.has("thousands"));
  CHECK(!decimal.has("\"exclude\""));
  const Ran read = run(dir, "inspect data c.json --set 'data.train.range=[0,1]' --set data.standardize_target=false");
  CHECK_MESSAGE(contains(read.out, " 10.1 "), read.out);  // 10,100 is the least of y
  write(dir / "t.csv", table("people,area,y", 60, [&](int i) {
          return comma(1 + i % 7, 100 + i * 7 % 900) + ',' + text(i * 5 % 13) + ',' + comma(10 + i % 9, 100 + i * 37 % 900);
        }));
  const Began thousands = begin(dir, "t.csv --target y");
  CHECK(thousands.has(R"("thousands": ",")"));
  CHECK(!thousands.has("\"decimal\""));
}

TEST_CASE("init: a column that is passed over although it is named as a target has its reason") {
  const TempDir dir;
  const auto mostly_empty = [](int i) { return i % 3 == 0 ? one_of_three(i / 3) : std::string(); };
  write(dir / "t.csv",
        table("x,outcome,mass", 60, [&](int i) { return text(i * 7 % 11) + ',' + mostly_empty(i) + ',' + text(i % 9) + ".5"; }));
  const Began b = begin(dir, "t.csv");
  CHECK(b.has(R"("target": "mass")"));
  CHECK_MESSAGE(
      b.has("outcome would be the target by its name, but is empty in 40 of 60 rows; --target outcome takes it all the same"),
      b.said);
  const Began asked = begin(dir, "t.csv --target outcome");
  CHECK(asked.has(R"("target": "outcome")"));
  CHECK(!asked.has("would be the target"));
  write(dir / "t.csv", table("x,Class,mass", 60, [](int i) { return text(i * 7 % 11) + ",one," + text(i % 9) + ".5"; }));
  CHECK(begin(dir, "t.csv").has("Class would be the target by its name, but has one value alone"));
}

TEST_CASE("init: marks for missing values and dates without separators are named") {
  const TempDir dir;
  write(dir / "t.csv", table("sold,depth,y", 60, [](int i) {
          return text(20210101 + 100 * (i % 12) + i % 20) + ',' + (i % 10 == 4 ? "-99999" : text(i % 17)) + ',' + text(i * 7 % 50) +
                 ".5";
        }));
  const Began b = begin(dir, "t.csv --target y");
  CHECK_MESSAGE(b.has(R"(-99999 comes 6 times in column "depth")"), b.said);
  CHECK(b.has(R"("missing_words": ["-99999"], "missing": "median")"));
  CHECK(b.has(R"("dates": ["sold"] reads dates)"));
  const std::string trained = " --quiet --set train.epochs=1 --set amp=false --set output_dir=r";
  CHECK(contains(run(dir, "train c.json" + trained).err, "-99999 comes 6 times"));
  const std::string read = R"( --set 'data.missing_words=["-99999"]' --set data.missing=median --set 'data.dates=["sold"]')";
  const Ran as_said = run(dir, "train c.json --overwrite" + trained + read);
  CHECK(as_said.code == 0);
  CHECK_MESSAGE(as_said.err.empty(), as_said.err);
}
