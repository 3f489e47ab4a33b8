// SPDX-License-Identifier: Apache-2.0
// Tables that are read from the pages of their file, as numbers of few bytes.
#include <doctest/doctest.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <random>

#include "framework/base/check.h"
#include "framework/data/formats/read_once.h"
#include "framework/data/tables/csv.h"
#include "framework/data/tables/csv_numbers.h"
#include "framework/data/tables/csv_table.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

// A number as tables write them: of 0 to 18 digits, with a point somewhere, or nothing that is plain.
std::string random_number(std::mt19937_64& random) {
  static const char* const odd[] = {"-0",
                                    "0",
                                    "-0.000",
                                    "1e30",
                                    "4e-320",
                                    "2147483640",
                                    "2147483641",
                                    "-2147483645",
                                    "9007199254740993",
                                    ".5",
                                    "-.25",
                                    "5.",
                                    "007",
                                    "123456789012345678",
                                    "0.1234567890123456789"};
  if (random() % 16 == 0) return odd[random() % std::size(odd)];
  std::string out = random() % 3 == 0 ? "-" : "";
  const size_t digits = 1 + random() % 9, point = random() % 12;
  for (size_t i = 0; i < digits; ++i) out += std::string(i == point && i > 0 ? "." : "") + char('0' + random() % 10);
  return out;
}

// Rows of more than a mebibyte, which is read from its pages: a text, numbers, and cells that are no plain number.
struct Large {
  TempDir dir;
  std::filesystem::path path = dir / "t.csv";
  size_t rows = 40000;
  std::vector<std::vector<std::string>> cells;
  std::string text = "name,a,\"b \"\"x\"\"\",c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,y\r\n";
  Large() {
    std::mt19937_64 random(1);
    for (size_t r = 0; r < rows; ++r) {
      std::vector<std::string>& row = cells.emplace_back();
      row.push_back(r % 3 == 0 ? "red" : r % 3 == 1 ? "green" : "a \"quoted\", long\nname");
      for (int c = 0; c < 17; ++c) row.push_back(r % 1000 == 7 && c == 4 ? "" : random_number(random));
      row.push_back(r % 2 == 0 ? "0" : "1");
      for (size_t c = 0; c < row.size(); ++c) {
        if (c > 0) text += ',';
        if (c == 0 && r % 3 == 2)
          text += "\"a \"\"quoted\"\", long\nname\"";
        else if (c == 3 && r % 50 == 0)
          text += '"' + row[c] + '"';
        else if (c == 5 && r % 9 == 0)
          text += " " + row[c] + "\t";
        else
          text += row[c];
      }
      text += r % 4 == 0 ? "\r\n" : "\n";
    }
    write_bytes(path, text);
  }
};

double number_of(const std::string& cell) {
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  return error == std::errc() && end == cell.data() + cell.size() ? value : std::strtod(cell.c_str(), nullptr);
}

}  // namespace

TEST_CASE("csv: numbers in few bytes come back to the bit") {
  std::mt19937_64 random(2);
  constexpr size_t kColumns = 3, kRows = 30000;
  CsvNumbers numbers(kColumns);
  std::vector<double> expected;
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t c = 0; c < kColumns; ++c) {
      const std::string text = c == 0 ? std::to_string(int(random() % 2000) - 1000) : random_number(random);
      const double value = number_of(text);
      CsvDecimal decimal;
      if (random() % 100 == 0) {
        numbers.add(c, CsvNumbers::kNone);
        expected.push_back(CsvNumbers::kNone);
        continue;
      }
      if (read_decimal(text.c_str(), '.', decimal) == text.c_str() + text.size())
        numbers.add(c, decimal);
      else
        numbers.add(c, value);
      expected.push_back(value);
    }
    numbers.end_row();
  }
  numbers.finish();
  size_t wrong = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double is = numbers.at(i / kColumns, i % kColumns);
    wrong += !(std::isnan(expected[i]) ? std::isnan(is) : same_bits(is, expected[i]));
  }
  CHECK(wrong == 0);
}

TEST_CASE("csv: a large table has the cells, lines and numbers of its text") {
  const Large file;
  REQUIRE(file.text.size() > 1 << 20);
  const CsvTable table(file.path, {});
  REQUIRE(table.rows() == file.rows + 1);
  REQUIRE(table.columns() == 19);
  CHECK(table.cell(0, 2) == "b \"x\"");
  size_t wrong = 0;
  int64_t line = 2;
  for (size_t r = 0; r < file.rows; ++r) {
    wrong += table.line(r + 1) != line;
    line += r % 3 == 2 ? 2 : 1;
    for (size_t c = 0; c < 19; ++c) {
      wrong += table.cell(r + 1, c) != file.cells[r][c];
      if (const double is = table.number(r + 1, c); c > 0 && !file.cells[r][c].empty())
        wrong += !same_bits(is, number_of(file.cells[r][c])) && std::isfinite(number_of(file.cells[r][c]));
    }
  }
  CHECK(wrong == 0);
  CHECK(table.where(40, 18) == (file.path.string() + ":54:19"));
}

TEST_CASE("csv: a large table as a data set, column by column") {
  const Large file;
  const CsvDataset data(file.path, {.exclude = {"c"}, .missing = CsvMissing::constant, .fill = -5});
  REQUIRE(data.size() == int64_t(file.rows));
  REQUIRE(data.feature_names().size() == 19);
  const float* const x = data.input().data_ptr<float>();
  size_t wrong = 0;
  for (size_t r = 0; r < file.rows; ++r) {
    const float* const row = x + r * 19;
    wrong += row[r % 3 == 0 ? 2 : r % 3 == 1 ? 1 : 0] != 1 || row[0] + row[1] + row[2] != 1;
    for (size_t c = 1; c < 18; ++c) {
      if (c == 3) continue;
      const std::string& cell = file.cells[r][c];
      const float is = row[c < 3 ? c + 2 : c + 1];
      wrong += is != (cell.empty() ? -5.f : float(number_of(cell)));
    }
    wrong += data.target().data_ptr<int64_t>()[r] != int64_t(r % 2);
  }
  CHECK(wrong == 0);
}

TEST_CASE("csv: faults late in a large table are named by line and field") {
  const TempDir dir;
  const auto error = [&](const std::string& fault, const CsvOptions& options = {}) {
    std::string text = "a,b,y\n";
    for (int i = 0; i < 200000; ++i) text += i == 150000 ? fault + "\n" : "1.25,-3,0\n";
    write_bytes(dir / "t.csv", text);
    const std::string message = message_of<DataError>([&] { CsvDataset data(dir / "t.csv", options); });
    return message.substr(std::min(message.size(), message.find("t.csv:")));
  };
  CHECK(error("1,2").starts_with("t.csv:150002:2: a row must have 3 fields like the first, got 2\nhelp: "));
  CHECK(error("1,2,3,4") == "t.csv:150002:4: a row must have 3 fields like the first, got 4");
  CHECK(contains(error("1,seven,0"), "t.csv:150002:2: column \"b\" must be a number, got \"seven\""));
  CHECK(contains(error("1,,0"), "t.csv:150002:2: column \"b\" must be a number, but the cell is empty"));
  CHECK(contains(error("1,1e39,0"), "t.csv:150002:2: column \"b\" must be finite in float32, got \"1e39\""));
  CHECK(contains(error("1,\xff,0"), "t.csv:150002:2: the text must be UTF-8, got "));
  CHECK(contains(error("1,\"2,0"), "t.csv:150002:2: a quote is opened but not closed"));
  CHECK(error("a,b,y") == "");
  CHECK(error("1,-99,0", {.missing = CsvMissing::drop_row, .missing_words = {"-99"}}) == "");
  CHECK(error("\t1 , 2,0 ") == "");
  const CsvDataset dropped(dir / "t.csv", {.missing = CsvMissing::drop_row, .missing_words = {"2.0", "2"}});
  CHECK(dropped.size() == 199999);
}

TEST_CASE("csv: rows without a last line's end, of blanks, and with other signs, read from pages") {
  const TempDir dir;
  std::string text, blanks, german;
  for (int i = 0; i < 200000; ++i) {
    text += (i > 0 ? "\n" : "") + std::to_string(i) + ",0.5";
    blanks += " " + std::to_string(i) + "   0.5\t1\r\n";
    german += std::to_string(i) + ";1.234,5;0,5\n";
  }
  write_bytes(dir / "t.csv", text);
  write_bytes(dir / "b.txt", blanks);
  write_bytes(dir / "g.csv", german);
  const CsvOptions regression{.classification = false};
  const CsvDataset plain(dir / "t.csv", regression), by_blanks(dir / "b.txt", regression);
  const CsvDataset other(dir / "g.csv", {.format = {.delimiter = ';', .decimal = ',', .thousands = '.'}, .classification = false});
  REQUIRE((plain.size() == 200000 && by_blanks.size() == 200000 && other.size() == 200000));
  size_t wrong = 0;
  for (int64_t i = 0; i < 200000; ++i) {
    wrong += plain.input().data_ptr<float>()[i] != float(i) || plain.target().data_ptr<float>()[i] != 0.5f;
    wrong += by_blanks.input().data_ptr<float>()[2 * i] != float(i) || by_blanks.input().data_ptr<float>()[2 * i + 1] != 0.5f;
    wrong += other.input().data_ptr<float>()[2 * i + 1] != 1234.5f || other.target().data_ptr<float>()[i] != 0.5f;
  }
  CHECK(wrong == 0);
  write_bytes(dir / "t.csv", "1 2\n3 4 \n");
  CHECK(CsvDataset(dir / "t.csv", {.format = {.delimiter = ' '}, .classification = false}).target().to_vector<float>() ==
        std::vector<float>{2, 4});
}

#ifndef __SANITIZE_THREAD__  // which leaves no addresses to map so large a file to
TEST_CASE("csv: a table that needs more memory than is free is refused before it is read") {
  const TempDir dir;
  std::string text = "a,b,y\n";
  for (int i = 0; i < 1000; ++i) text += "1.25,-3,0\n";
  write_bytes(dir / "t.csv", text);
  std::filesystem::resize_file(dir / "t.csv", uintmax_t(1) << 40);  // with a hole, which takes no room
  const std::string message = message_of<MemoryError>([&] { CsvDataset data(dir / "t.csv"); });
  CHECK(contains(message, "t.csv: reading 11"));
  CHECK(contains(message, " rows of 3 columns needs "));
  CHECK(contains(message, " GB are free\nhelp: an array (.npy) is mapped"));
}
#endif

TEST_CASE("ReadCache: a table is read once while it lives, and anew when its file has changed") {
  const TempDir dir;
  write_bytes(dir / "t.csv", "1,2\n3,4\n");
  CHECK(file_stamp(dir / "t.csv").empty());  // it may be written again in the same moment
  while (file_stamp(dir / "t.csv").empty()) {}
  const auto open = [&](char thousands = 0) { return CsvTable::open(dir / "t.csv", {.thousands = thousands}); };
  CHECK(open() != open());
  const ReadCache<const CsvTable> keep;
  const auto first = open();
  CHECK(open() == first);
  CHECK(open(' ') != first);
  write_bytes(dir / "t.csv", "1,2\n3,5\n");
  while (file_stamp(dir / "t.csv").empty()) {}
  CHECK(open() != first);
  CHECK(open()->cell(1, 1) == "5");
  CHECK(first->cell(1, 1) == "4");
}
