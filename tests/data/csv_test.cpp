// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tables/csv.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "framework/base/check.h"
#include "framework/data/transforms/data_form.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

struct File {
  TempDir dir;
  std::filesystem::path path = dir / "t.csv";
  explicit File(std::string_view text) { write_bytes(path, text); }
};

std::string csv_error(std::string_view text, const CsvOptions& options = {}) {
  const File file(text);
  const std::string message = message_of<DataError>([&] { CsvDataset data(file.path, options); });
  const size_t at = message.find("t.csv:");
  return at == std::string::npos ? message : message.substr(at);
}

using Floats = std::vector<float>;
using Names = std::vector<std::string>;
const CsvOptions kRegression{.classification = false};

}  // namespace

TEST_CASE("csv: classes by name, header found by itself") {
  const File file("width,height,kind\r\n1,2,dog\r\n3,4,cat\r\n5,6,dog\r\n\r\n");
  const CsvDataset data(file.path);
  CHECK(data.size() == 3);
  CHECK(data.classes() == 2);
  CHECK(data.class_names() == Names{"cat", "dog"});
  CHECK(data.feature_names() == Names{"width", "height"});
  CHECK(data.input().to_vector<float>() == Floats{1, 2, 3, 4, 5, 6});
  CHECK(data.target().to_vector<int>() == std::vector<int>{1, 0, 1});
  CHECK(data.target().dtype() == DType::i64);
}

TEST_CASE("csv: integer classes are sorted as numbers") {
  const File file("0.5,10\n0.25,9\n1,10\n2,-1\n");
  const CsvDataset data(file.path);
  CHECK(data.class_names() == Names{"-1", "9", "10"});
  CHECK(data.target().to_vector<int>() == std::vector<int>{2, 1, 2, 0});
}

TEST_CASE("csv: regression, quotes, other delimiter, chosen columns") {
  const File file("\"a;\"\"b\"\"\";  c ;d\n\"1.5\"; +2 ;1e2\n-3;4;5");
  const CsvDataset data(file.path,
                        {.format = {.delimiter = ';'}, .target = "a;\"b\"", .classification = false, .features = {"d", "1"}});
  CHECK(data.feature_names() == Names{"d", "c"});
  CHECK(data.input().to_vector<float>() == Floats{100, 2, 5, 4});
  CHECK(data.target().to_vector<float>() == Floats{1.5, -3});
  CHECK(data.target_shape() == Shape{1});
  CHECK(data.classes() == 0);
}

TEST_CASE("csv: a target by index, header forced off and on") {
  const File file("1,2\n3,4\n");
  CHECK(CsvDataset(file.path, {.target = "0", .classification = false}).target().to_vector<float>() == Floats{1, 3});
  CHECK(CsvDataset(file.path, {.target = "-2", .classification = false}).target().to_vector<float>() == Floats{1, 3});
  CHECK(CsvDataset(file.path, {.header = true, .classification = false}).size() == 1);
  const File words("x,y\nu,v\n");
  CHECK(CsvDataset(words.path).size() == 2);
  CHECK(contains(message_of<ConfigError>([&] { CsvDataset data(file.path, {.target = "price"}); }),
                 "has no column \"price\"; its 2 columns are 0, 1"));
}

TEST_CASE("csv: a column of texts becomes one input a text") {
  const File file("sex,len,rings\nM,1,7\nF,2,8\nI,3,9\n");
  const CsvDataset data(file.path, kRegression);
  CHECK(data.feature_names() == Names{"sex=F", "sex=I", "sex=M", "len"});
  CHECK(data.input().to_vector<float>() == Floats{0, 0, 1, 1, 1, 0, 0, 2, 0, 1, 0, 3});
}

TEST_CASE("csv: standardize with own and with given numbers; categories stay as they are") {
  const File file("a,b,t,y\n1,7,u,0\n3,7,v,0\n5,7,u,1\n");
  const CsvDataset data(file.path, {.standardize = true});
  const float s = std::sqrt(1.5f);
  const Floats x = data.input().to_vector<float>();
  CHECK(x[0] == doctest::Approx(-s));
  CHECK(x[8] == doctest::Approx(s));
  CHECK(x[1] == 0);  // a constant column
  CHECK(x[2] == 1);
  CHECK(x[3] == 0);
  CHECK(data.encoding().mean == std::vector<double>{3, 7, 0, 0});
  const CsvDataset given(file.path, {.encoding = CsvEncoding{{1, 0, 0, 0}, {2, 1, 1, 1}}});
  CHECK(given.input().to_vector<float>()[4] == 1);
  CHECK(contains(message_of<ValueError>([&] {
                   CsvDataset bad(file.path, {.encoding = CsvEncoding{{1}, {1}}});
                 }),
                 "must have 4 means"));
}

TEST_CASE("csv: targets of a regression are scaled by their own or by given numbers, and the scale leads back") {
  const File file("x,y\n1,500000\n2,510000\n3,520000\n4,530000\n");
  const CsvDataset data(file.path, {.classification = false, .standardize_target = true});
  CHECK(data.target_scale().mean == 515000);
  CHECK(data.target_scale().std == doctest::Approx(11180.339887));
  CHECK(data.target().to_vector<float>()[0] == doctest::Approx(-1.341641));
  CHECK(data.form().scale == data.target_scale());
  const CsvDataset held_out(
      file.path,
      {.classification = false, .part = {.begin = 0.5}, .standardize_target = true, .target_scale = ColumnScale{500000, 10000}});
  CHECK(held_out.target_scale() == ColumnScale{500000, 10000});
  for (float y : held_out.target().to_vector<float>()) CHECK(y == std::round(y));
  const CsvDataset plain(file.path, {.classification = false});
  CHECK(plain.target_scale() == ColumnScale{});
  CHECK(plain.target().to_vector<float>() == Floats{500000, 510000, 520000, 530000});
  CHECK(contains(message_of<ValueError>([&] { CsvDataset bad(file.path, {.standardize_target = true}); }),
                 "standardize_target is for regression"));
}

TEST_CASE("csv: parts of a seeded split share no row and agree on classes") {
  std::string text;
  for (int i = 0; i < 20; ++i) text += std::to_string(i) + ',' + (i == 13 ? "rare" : "usual") + '\n';
  const File file(text);
  const CsvDataset train(file.path, {.part = {.end = 0.75, .seed = 4}}), val(file.path, {.part = {.begin = 0.75, .seed = 4}});
  CHECK(train.size() == 15);
  CHECK(val.size() == 5);
  CHECK(train.classes() == 2);
  CHECK(val.classes() == 2);
  Floats rows = train.input().to_vector<float>();
  for (float v : val.input().to_vector<float>()) rows.push_back(v);
  std::sort(rows.begin(), rows.end());
  for (int i = 0; i < 20; ++i) CHECK(rows[size_t(i)] == float(i));
  CHECK(contains(csv_error("1,2\n3,4\n", {.part = {.begin = 0.1, .end = 0.2}}), "the part [0.1, 0.2) of 2 rows is empty"));
  CHECK(contains(csv_error("1,2\n3,4\n", {.part = {.fold = DataFold{.k = 0, .folds = 5}}}), "fold 0 of 5 of 2 rows is empty"));
}

TEST_CASE("csv: another file is read as the training data was: columns by name, the same categories and classes") {
  const File file("size,color,kind\n1,red,apple\n3,blue,plum\n5,red,pear\n");
  const CsvDataset train(file.path, {.standardize = true});
  const auto read = [&](const std::string& text, CsvOptions o = {.standardize = true}) {
    write_bytes(file.path, text);
    o.encoding = train.encoding();
    return CsvDataset(file.path, o);
  };
  // Other columns' order, and fewer of the classes and categories.
  const CsvDataset val = read("kind,color,size\nplum,red,3\npear,red,5\n");
  CHECK(val.classes() == 3);
  CHECK(val.class_names() == Names{"apple", "pear", "plum"});
  CHECK(val.feature_names() == train.feature_names());
  CHECK(val.target().to_vector<int>() == std::vector<int>{2, 1});
  CHECK(val.input().to_vector<float>() == Floats{0, 0, 1, train.input().to_vector<float>()[6], 0, 1});
  CHECK(read("1,blue,plum\n", {.header = false}).input().to_vector<float>()[1] == 1);  // by place
  const auto refused = [&](const std::string& text) { return message_of<DataError>([&] { read(text); }); };
  CHECK(contains(refused("size,color,kind\n1,green,plum\n"),
                 ":2:2: column \"color\" must be a value of the training data, got \"green\"\nhelp: it has \"blue\", \"red\""));
  CHECK(contains(refused("size,color,kind\n1,red,fig\n"),
                 ":2:3: column \"kind\" must be a class of the training data, got \"fig\"\nhelp: it has \"apple\", \"pear\""));
  CHECK(contains(refused("size,color,kind\n2,red,plum\nx,red,plum\n"), ":3:1: column \"size\" must be a number, got \"x\""));
  CHECK(contains(refused("size,shade,kind\n1,red,plum\n"), "has no column \"color\", which the training data has"));
  CHECK(contains(refused("size,color,weight,kind\n1,red,2,plum\n"),
                 "must have the training data's 2 columns besides the target, got 3"));
  // Numbers that mean classes may be written in another way.
  const File numbers("x,y\n1,1\n2,2\n3,10\n");
  const CsvDataset counted(numbers.path);
  write_bytes(numbers.path, "x,y\n1,010\n");
  CHECK(CsvDataset(numbers.path, {.encoding = counted.encoding()}).target().to_vector<int>() == std::vector<int>{2});
}

TEST_CASE("csv: the target is no feature, and no feature comes twice") {
  const File file("a,b,y\n1,2,0\n3,4,1\n");
  const auto refused = [&](std::vector<std::string> features) {
    return message_of<ConfigError>([&] { CsvDataset data(file.path, {.features = std::move(features)}); });
  };
  CHECK(contains(refused({"a", "y"}), "column \"y\" is the target, which a model must not be given as a feature"));
  CHECK(contains(refused({"a", "-1"}), "column \"y\" is the target"));
  CHECK(contains(refused({"b", "a", "1"}), "column \"b\" is among the features twice"));
}

TEST_CASE("csv: errors say where") {
  CHECK(csv_error("1,2\n3,nan\n", kRegression) ==
        "t.csv:2:2: column \"1\" must be finite in float32, got \"nan\"\nhelp: \"missing_words\": [\"nan\"]");
  CHECK(csv_error("a,b\n1,2\ninf,4\n", kRegression) == "t.csv:3:1: column \"a\" must be finite in float32, got \"inf\"");
  CHECK(csv_error("1,2\n1e39,4\n", kRegression) == "t.csv:2:1: column \"0\" must be finite in float32, got \"1e39\"");
  CHECK(contains(csv_error("1,2\n,4\n", kRegression),
                 "t.csv:2:1: column \"0\" must be a number, but the cell is empty\nhelp: missing"));
  CHECK(csv_error("1,2\n3,4\n5,six\n", kRegression) == "t.csv:3:2: column \"1\" must be a number, got \"six\"");
  CHECK(csv_error("1,2\n1x,4\n", kRegression) == "t.csv:2:1: column \"0\" must be a number, got \"1x\"");
  CHECK(csv_error("1,2\n3,4\n5\n", kRegression) ==
        "t.csv:3:1: a row must have 2 fields like the first, got 1\nhelp: \"skip_rows\": [3] leaves out the last line, if it is no "
        "row");
  CHECK(csv_error("1,2\n3,4,5\n", kRegression) == "t.csv:2:3: a row must have 2 fields like the first, got 3");
  CHECK(csv_error("1,2\n \"\"\n3,4\n", kRegression) == "t.csv:2:1: a row must have 2 fields like the first, got 1");
  CHECK(contains(csv_error("1,\n2,\n"), "no row has a target: column \"1\" is empty"));
  CHECK(csv_error("1,\"a\n2,b\n") == "t.csv:1:2: a quote is opened but not closed");
  CHECK(csv_error("1,\"a\"b\n") == "t.csv:1:2: text follows a closing quote");
  CHECK(csv_error("\"x\ny\",0\n1,2,3\n") == "t.csv:3:3: a row must have 2 fields like the first, got 3");
  CHECK(contains(csv_error("\n\n"), "the file has no rows"));
  CHECK(contains(csv_error("a,b\n", {.header = true}), "a header but no rows"));
  std::string many, regression;
  for (int i = 0; i < 70; ++i) many += "text" + std::to_string(i) + ",1\n";
  for (int i = 0; i < 1100; ++i) regression += "1," + std::to_string(i) + ".5\n";
  CHECK(contains(csv_error(many), "t.csv:65:1: column \"0\" has no numbers, and more than 64 different texts"));
  CHECK(contains(csv_error(regression), "has more than 1000 classes\nhelp: for a number to predict, ask for regression"));
  CHECK(contains(message_of<IoError>([] { CsvDataset data("/nowhere/t.csv"); }), "cannot read /nowhere/t.csv"));
}

TEST_SUITE("data") {
  TEST_CASE("csv: iris") {
    const auto root = data_root();
    if (!root) return;
    const CsvDataset data(*root / "iris/iris.csv");
    CHECK(data.size() == 150);
    CHECK(data.input_shape() == Shape{4});
    CHECK(data.class_names() == Names{"Iris-setosa", "Iris-versicolor", "Iris-virginica"});
    std::vector<int> count(3);
    for (int label : data.target().to_vector<int>()) ++count[size_t(label)];
    CHECK(count == std::vector<int>{50, 50, 50});
  }

  TEST_CASE("csv: wine quality and abalone") {
    const auto root = data_root();
    if (!root) return;
    const CsvDataset red(*root / "regression/winequality-red.csv", kRegression);
    CHECK(red.size() == 1599);
    CHECK(red.input_shape() == Shape{11});
    double sum = 0, squares = 0;
    for (double v : red.target().to_vector<double>()) sum += v, squares += v * v;
    CHECK(std::sqrt(squares / 1599 - sum * sum / 1599 / 1599) == doctest::Approx(0.80732).epsilon(1e-3));
    CHECK(CsvDataset(*root / "regression/winequality-white.csv", kRegression).size() == 4898);
    const CsvDataset abalone(*root / "regression/abalone.csv", kRegression);
    CHECK(abalone.size() == 4177);
    CHECK(abalone.input_shape() == Shape{10});
    CHECK(abalone.feature_names()[0] == "0=F");
  }

  TEST_CASE("csv: optdigits, with its empty line at the end") {
    const auto root = data_root();
    if (!root) return;
    const CsvDataset train(*root / "optdigits/optdigits.tra"), test(*root / "optdigits/optdigits.tes");
    CHECK(train.size() == 3823);
    CHECK(test.size() == 1797);
    CHECK(test.input_shape() == Shape{64});
    CHECK(test.classes() == 10);
    for (float v : test.input().to_vector<float>()) {
      if (v < 0 || v > 16) FAIL_CHECK("value out of range: " << v);
    }
  }

  TEST_CASE("csv: quoted headers and dates") {
    const auto root = data_root();
    if (!root) return;
    const CsvOptions months{.target = "Month", .features = {"Passengers"}};
    const CsvDataset data(*root / "timeseries/airline-passengers.csv", months);
    CHECK(data.size() == 144);
    CHECK(data.classes() == 144);
    CHECK(data.input().to_vector<float>()[0] == 112);
    const std::string dates =
        message_of<DataError>([&] { CsvDataset bad(*root / "timeseries/airline-passengers.csv", kRegression); });
    CHECK(contains(dates, "airline-passengers.csv:66:1: column \"Month\" has no numbers, and more than 64 different texts"));
  }
}

TEST_CASE("CSV: missing values") {
  const TempDir dir;
  write_bytes(dir / "t.csv", "a,b,c,y\n1,x,5,10\n,x,?,20\n4,,6,30\n7,z,7,40\n");
  const auto read = [&](CsvOptions o) {
    o.classification = false;
    o.missing_words = {"?"};
    return CsvDataset(dir / "t.csv", o);
  };
  const auto column = [](const CsvDataset& d, int64_t c) { return d.input().select(1, c).to_vector<double>(); };
  const std::string refused = message_of<DataError>([&] { read({}); });
  CHECK(contains(refused, "t.csv:3:1: column \"a\" must be a number, but the cell is empty\nhelp: missing: drop_row, mean"));
  CHECK(contains(message_of<DataError>([&] { read({.features = {"c"}}); }),
                 "t.csv:3:3: column \"c\" must be a number, but the cell is \"?\""));
  CHECK(contains(message_of<DataError>([&] { read({.features = {"b"}}); }),
                 "t.csv:4:2: column \"b\" must have a value, but the cell is empty"));

  const CsvDataset dropped = read({.missing = CsvMissing::drop_row});
  CHECK(dropped.size() == 2);
  CHECK(dropped.feature_names() == std::vector<std::string>{"a", "b=x", "b=z", "c"});
  CHECK(dropped.target().to_vector<int>() == std::vector<int>{10, 40});
  const CsvDataset mean = read({.missing = CsvMissing::mean});
  CHECK(mean.feature_names() == std::vector<std::string>{"a", "b=", "b=x", "b=z", "c"});
  CHECK(column(mean, 0) == std::vector<double>{1, 4, 4, 7});
  CHECK(column(mean, 1) == std::vector<double>{0, 0, 1, 0});
  CHECK(column(mean, 4) == std::vector<double>{5, 6, 6, 7});
  CHECK(column(read({.missing = CsvMissing::constant, .fill = -3}), 0) == std::vector<double>{1, -3, 4, 7});
  write_bytes(dir / "t.csv", "a,y\n1,1\n2,1\n,1\n9,1\n10,1\n");
  const CsvDataset median = read({.missing = CsvMissing::median});
  CHECK(column(median, 0)[2] == 5.5);
  // A part that is read later is filled with what was learnt from this one.
  write_bytes(dir / "t.csv", "a,y\n,1\n100,1\n");
  CHECK(column(read({.missing = CsvMissing::median, .encoding = median.encoding()}), 0) == std::vector<double>{5.5, 100});
  const CsvDataset scaled = read({.standardize = true, .missing = CsvMissing::mean});
  CHECK(scaled.encoding().mean[0] == 100);
  write_bytes(dir / "t.csv", "a,y\n1,1\n,2\n");
  for (const CsvMissing rule : {CsvMissing::mean, CsvMissing::drop_row}) CHECK(read({.target = "a", .missing = rule}).size() == 1);
}

TEST_CASE("CSV: categories by number") {
  const TempDir dir;
  write_bytes(dir / "t.csv", "a,y\nred,1\nblue,2\nred,3\n");
  const CsvDataset data(dir / "t.csv", {.classification = false, .standardize = true, .one_hot = false});
  CHECK(data.feature_names() == std::vector<std::string>{"a"});
  CHECK(data.input().to_vector<int>() == std::vector<int>{1, 0, 1});
}
