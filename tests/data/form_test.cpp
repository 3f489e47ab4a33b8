// SPDX-License-Identifier: Apache-2.0
// The form of training data: as JSON and back, damaged JSON, and reading other files by it.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "framework/data/sets/digits.h"
#include "framework/data/sets/tensor_dataset.h"
#include "framework/data/tokens/bpe.h"
#include "framework/data/transforms/data_form.h"
#include "framework/data/transforms/image_transforms.h"
#include "framework/io/checkpoint/checkpoint.h"
#include "framework/ops/ops.h"
#include "tests/io/files.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

struct FormFiles {
  TempDir dir;
  std::filesystem::path file(const std::string& name, const std::string& text) const {
    write_bytes(dir / name, text);
    return dir / name;
  }
};

const char* const kTrees =
    "height,soil,planted,tree\n4.1,clay,2001-03-01,alder\n7.5,loam,1999-05-07,birch\n,clay,2003-01-30,alder\n12,sand,1990-11-11,"
    "cedar\n";

CsvOptions tree_options() {
  CsvOptions o;
  o.standardize = true;
  o.missing = CsvMissing::mean;
  o.dates = {"planted"};
  o.date_parts = true;
  return o;
}

// The JSON of a form that was read from the JSON of this one.
std::string again(const DataForm& form) { return to_json(read_form(to_json(form)))->dump(); }

}  // namespace

TEST_CASE("a form is the same after it was written and read") {
  const FormFiles files;
  const CsvDataset table(files.file("trees.csv", kTrees), tree_options());
  const TimeSeriesDataset series(files.file("sun.csv", "year,spots\n1,5\n2,11\n3,16\n4,23\n5,36\n"),
                                 {.window = 2, .horizon = 1, .standardize = true});
  const TimeSeriesDataset several(
      files.file("sky.csv", "day,heat,rain\n2024-01-01,5,1\n2024-01-02,,0\n2024-01-03,6,2\n2024-01-04,7,1\n2024-01-07,8,1\n"),
      {.all_columns = true, .time = {"day"}, .horizon = 2, .missing = SeriesMissing::last});
  const TextDataset text(files.file("words.txt", "the cat the dog\nthe end\n"), {.tokenizer = Tokenizer::word, .seq_len = 2});
  const std::string tokenizer = halfstep_source_dir() + "/tests/data/tokenizers/gpt2.json";
  const TextDataset pieces(
      files.file("pieces.txt", "the cat the dog\nthe end\n"),
      {.tokenizer = Tokenizer::bpe, .seq_len = 2, .bpe = std::make_shared<const BpeTokenizer>(BpeTokenizer::load(tokenizer))});
  const DigitsDataset digits({.size = 20});
  const TensorDataset numbers(ones({4, 3}), ones({4, 2}));
  for (const Dataset* data : std::initializer_list<const Dataset*>{&table, &series, &several, &text, &pieces, &digits, &numbers}) {
    const DataForm form = data->form();
    CHECK_MESSAGE(again(form) == to_json(form)->dump(), data->describe());
    CHECK(form.input == data->input_shape());
    CHECK(form.classes == data->classes());
  }
  const CsvEncoding of_table = *std::get<TableForm>(read_form(to_json(table.form())).source).options.encoding;
  CHECK((of_table.low == table.encoding().low && of_table.high[0] == 12));
  nlohmann::json older = *to_json(table.form());
  older["source"].erase("low"), older["source"].erase("high");
  CHECK(std::get<TableForm>(read_form(older).source).options.encoding->low.empty());
  CHECK(kind_of(table.form()) == "table");
  CHECK(table.form().class_name(1) == "birch");
  CHECK(kind_of(series.form()) == "series");
  CHECK(series.form().scale == series.target_scale());
  const DataForm stored = read_form(to_json(several.form()));
  CHECK((stored.scale.each.size() == 2 && stored.scale == several.target_scale()));
  CHECK(stored.names == std::vector<std::string>{"heat", "rain"});
  CHECK(std::get<SeriesForm>(stored.source).options.step == SeriesStep{.unit = SeriesStep::Unit::day, .size = 1});
  // A form of the first kind had one column.
  nlohmann::json old = *to_json(series.form());
  nlohmann::json& source = old["source"];
  for (const char* key : {"columns", "target", "missing", "missing_words", "scaling"}) source.erase(key);
  source["column"] = "spots", source["time"] = "year";
  const TimeSeriesOptions one = std::get<SeriesForm>(read_form(old).source).options;
  CHECK((one.columns == std::vector<std::string>{"spots"} && one.time == std::vector<std::string>{"year"}));
  CHECK(one.scaling == std::vector<ColumnScale>{series.target_scale()});
  CHECK(kind_of(text.form()) == "text");
  CHECK(kind_of(digits.form()) == "image");
  CHECK(digits.form().class_name(3) == "3");
  CHECK(kind_of(numbers.form()) == "tensor");
  // Parts and transformed data have the form of the whole, before transforms.
  const auto whole = std::make_shared<DigitsDataset>(DigitsOptions{.size = 20});
  const auto part = transformed(subset(whole, {1, 2}), {std::make_shared<CenterCrop>(ImageSize{8, 8})});
  CHECK(to_json(part->form())->dump() == to_json(whole->form())->dump());
}

TEST_CASE("every damaged value of a form is an error") {
  const FormFiles files;
  const CsvDataset table(files.file("trees.csv", kTrees), tree_options());
  const TimeSeriesDataset series(files.file("sun.csv", "year,spots\n1,5\n2,11\n3,16\n4,23\n"), {.window = 2, .horizon = 1});
  const TextDataset text(files.file("words.txt", "the cat the dog\n"), {.tokenizer = Tokenizer::word, .seq_len = 2});
  const DigitsDataset digits({.size = 20});
  int changed = 0;
  const TimeSeriesDataset several(files.file("sky.csv", "day,heat,rain\n2024-01-01,5,1\n2024-01-02,6,0\n2024-01-03,6,2\n"),
                                  {.all_columns = true, .time = {"day"}, .missing_words = {"-"}});
  for (const Dataset* data : std::initializer_list<const Dataset*>{&table, &series, &several, &text, &digits}) {
    const nlohmann::json whole = *to_json(data->form()), flat = whole.flatten();
    for (const auto& item : flat.items()) {
      const std::string& key = item.key();
      const auto& value = item.value();
      for (const nlohmann::json& other : {nlohmann::json(nlohmann::json::object()), nlohmann::json(-7), nlohmann::json(),
                                          nlohmann::json(1e300), nlohmann::json("zz")}) {
        nlohmann::json damaged = whole;
        damaged[nlohmann::json::json_pointer(key)] = other;
        ++changed;
        try {
          read_form(damaged);  // some values are as good as others, such as a mean or a name
        } catch (const CheckpointError&) {}
      }
      nlohmann::json damaged = whole;
      damaged[nlohmann::json::json_pointer(key)] = nlohmann::json::object();
      if (!value.is_null() && value != nlohmann::json::array()) CHECK_THROWS_AS_MESSAGE(read_form(damaged), CheckpointError, key);
    }
    for (const char* key : {"version", "input", "source", "scale", "classes", "names"}) {
      nlohmann::json damaged = whole;
      damaged.erase(key);
      CHECK_THROWS_AS(read_form(damaged), CheckpointError);
    }
  }
  CHECK(changed > 300);
  nlohmann::json newer = *to_json(digits.form());
  newer["version"] = 2;
  CHECK_THROWS_WITH_AS(read_form(newer), doctest::Contains("version 2 of the data's form was written by a newer halfstep"),
                       CheckpointError);
  CHECK_THROWS_AS(read_form(nlohmann::json::array()), CheckpointError);
}

TEST_CASE("rows of a table are read by the training data's form") {
  const FormFiles files;
  const CsvDataset train(files.file("trees.csv", kTrees), tree_options());
  const CsvOptions how = std::get<TableForm>(read_form(to_json(train.form())).source).options;
  const auto rows_of = [&](const std::string& text) { return read_csv_rows(files.file("new.csv", text), how); };

  // The training rows themselves: the same inputs, to the bit, in any order of columns, with another delimiter, without the target.
  const CsvRows same = rows_of(kTrees);
  CHECK(same.input.equal(train.batch(std::vector<int64_t>{0, 1, 2, 3}).input));
  CHECK(same.targets == std::vector<double>{0, 1, 0, 2});
  const CsvRows other = rows_of("soil;extra;planted;height\nclay;x;2001-03-01;4.1\nloam;y;1999-05-07;7.5\n");
  CHECK(other.input.equal(same.input.narrow(0, 0, 2)));
  CHECK(other.targets.empty());
  CHECK(other.delimiter == ';');
  CHECK(other.cells[1] == std::vector<std::string>{"loam", "y", "1999-05-07", "7.5"});

  // A row that cannot be read has a fault, and the others are there.
  const CsvRows some =
      rows_of("height,soil,planted,tree\nx,clay,2001-03-01,alder\n4,peat,2001-03-01,alder\n4.1,clay,2001-03-01,\n");
  CHECK(some.rows == std::vector<size_t>{2});
  CHECK(some.faults[0].find("column \"height\" must be a number, got \"x\"") != std::string::npos);
  CHECK(some.faults[1].find("must be a value of the training data, got \"peat\"") != std::string::npos);
  CHECK(some.faults[2].empty());
  CHECK(some.input.equal(same.input.narrow(0, 0, 1)));
  CHECK(std::isnan(some.targets[0]));

  CHECK_THROWS_WITH_AS(rows_of("height,soil\n1,clay\n"), doctest::Contains("has no column \"planted\", which the model takes"),
                       DataError);
  CHECK_THROWS_AS(read_csv_rows(files.dir / "none.csv", how), IoError);
}

TEST_CASE("rows of a table without a header are found by their places") {
  const FormFiles files;
  CsvOptions o;
  o.classification = false;
  o.target = "1";
  const CsvDataset train(files.file("plain.csv", "1,10,3\n4,11,6\n7,12,9\n"), o);
  const CsvOptions how = std::get<TableForm>(read_form(to_json(train.form())).source).options;
  const CsvRows with = read_csv_rows(files.file("a.csv", "1,10,3\n"), how),
                without = read_csv_rows(files.file("b.csv", "1,3\n"), how);
  CHECK(with.input.to_vector<double>() == std::vector<double>{1, 3});
  CHECK(without.input.to_vector<double>() == std::vector<double>{1, 3});
  CHECK(with.targets == std::vector<double>{10});
  CHECK(without.targets.empty());
  CHECK_THROWS_WITH_AS(read_csv_rows(files.file("c.csv", "1\n"), how), doctest::Contains("has 1 columns, but the model takes 2"),
                       DataError);
}

TEST_CASE("the last window of a series") {
  const FormFiles files;
  const TimeSeriesDataset train(files.file("sun.csv", "year,spots\n1,5\n2,11\n3,16\n4,23\n5,36\n"), {.window = 3, .horizon = 1});
  const TimeSeriesOptions how = std::get<SeriesForm>(read_form(to_json(train.form())).source).options;
  const Tensor window = read_last_window(files.file("later.csv", "spots,year\n7,1\n8,2\n9,3\n11,4\n"), how).input;
  const ColumnScale scale = train.target_scale();
  for (int i = 0; i < 3; ++i)
    CHECK(window[i].item() == doctest::Approx(((i == 2 ? 11 : 8 + i) - scale.mean) / scale.std).epsilon(1e-6));
  CHECK_THROWS_WITH_AS(read_last_window(files.file("short.csv", "spots\n1\n2\n"), how),
                       doctest::Contains("has 2 rows, but a window has 3"), DataError);
}
