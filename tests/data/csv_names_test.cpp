// SPDX-License-Identifier: Apache-2.0
// Tables in which several columns have one name.
#include <doctest/doctest.h>

#include <algorithm>
#include <initializer_list>

#include "framework/base/check.h"
#include "framework/data/tables/csv.h"
#include "framework/data/transforms/data_form.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

bool contains_all(const std::string& text, std::initializer_list<const char*> parts) {
  return std::all_of(parts.begin(), parts.end(), [&](const char* part) { return contains(text, part); });
}

}  // namespace

TEST_CASE("csv: columns of one name are paired in their order, in training, in held-out files and in prediction") {
  const TempDir dir;
  write_bytes(dir / "train.csv", "v,kind,v,w,v\n1,a,2,3,4\n5,b,6,7,8\n");
  write_bytes(dir / "other.csv", "w,v,v,kind,v\n30,10,20,b,40\n");
  const CsvDataset train(dir / "train.csv", {.target = "kind"});
  CHECK(train.input().to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});

  CsvOptions known{.target = "kind"};
  known.encoding = train.encoding();
  const std::vector<float> expected{10, 20, 30, 40};  // v, v, w, v
  CHECK(CsvDataset(dir / "other.csv", known).input().to_vector<float>() == expected);
  const DataForm form = train.form();
  CHECK(read_csv_rows(dir / "other.csv", std::get<TableForm>(form.source).options).input.to_vector<float>() == expected);
  write_bytes(dir / "few.csv", "v,w,v\n1,2,3\n");
  CHECK(contains_all(message_of<DataError>([&] { read_csv_rows(dir / "few.csv", std::get<TableForm>(form.source).options); }),
                     {"has no column \"v\", which the model takes", "v, v, w, v"}));
}

TEST_CASE("csv: a name that several columns have names none of them") {
  const TempDir dir;
  write_bytes(dir / "t.csv", "v,v,kind\n1,2,a\n3,4,b\n");
  for (const CsvOptions& o : {CsvOptions{.target = "kind", .features = {"v"}}, CsvOptions{.target = "kind", .exclude = {"v"}},
                              CsvOptions{.target = "v", .classification = false}})
    CHECK(contains_all(message_of<ConfigError>([&] { CsvDataset(dir / "t.csv", o); }), {"2 columns \"v\"", "\"0\" is the first"}));
  // Numbers name them. A target must be found in other files as well, by its name.
  CHECK(CsvDataset(dir / "t.csv", {.target = "kind", .exclude = {"0"}}).input().to_vector<float>() == std::vector<float>{2, 4});
  const CsvOptions second{.target = "1", .classification = false, .exclude = {"kind"}};
  CHECK(contains_all(message_of<ConfigError>([&] { CsvDataset(dir / "t.csv", second); }), {"a name of its own", "\"v\""}));
}
