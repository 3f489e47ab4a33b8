// SPDX-License-Identifier: Apache-2.0
// Models in use where their training data is not: eval and predict.
#include <doctest/doctest.h>

#include <cmath>

#include "apps/use/predictor.h"
#include "framework/data/formats/npy.h"
#include "framework/io/weights/safetensors.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"
#include "tests/data/picture_files.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

fs::path old_files() { return fs::path(halfstep_source_dir()) / "tests/compat/0.1.0"; }

// A run of version 0.1.0 with its data, in a folder of its own.
struct OldRun {
  TempDir dir;
  OldRun() { fs::copy(old_files(), dir.path(), fs::copy_options::recursive); }
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

// Trains, keeps what eval and predict say, moves the training files away, and expects both to say the same.
void same_without_data(const TempDir& dir, const std::string& training_files, const std::string& inputs) {
  const Ran trained = run(dir, "train run.json --quiet");
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  const auto loss = [&] {
    const Ran r = run(dir, "eval out --json");
    REQUIRE_MESSAGE(r.code == 0, r.err);
    return r.json()["val.loss"].dump();
  };
  const auto answers = [&] {
    const Ran r = run(dir, "predict out --json " + inputs);
    REQUIRE_MESSAGE(r.code == 0, r.err);
    return r.out;
  };
  const std::string loss_before = loss(), answers_before = answers();
  fs::rename(dir / training_files, dir / "moved-away");
  CHECK(loss() == loss_before);
  CHECK(answers() == answers_before);
}

}  // namespace

TEST_CASE("a run of version 0.1.0 is evaluated, predicted from and resumed") {
  const OldRun old;
  const Ran evaluated = run(old.dir, "eval trees --json");
  REQUIRE_MESSAGE(evaluated.code == 0, evaluated.err);
  CHECK(evaluated.json()["step"] == 30);  // the best
  CHECK(evaluated.json()["val.loss"].get<double>() == doctest::Approx(0.0788228).epsilon(1e-4));
  CHECK(run(old.dir, "eval trees/latest --json").json()["step"] == 36);

  const Ran predicted = run(old.dir, "predict trees val.csv --csv");
  REQUIRE_MESSAGE(predicted.code == 0, predicted.err);
  CHECK(lines_of(predicted.out)[0] == "height,leaf,soil,tree,prediction,probability,error");
  CHECK(predicted.err.find("18 with a known answer: accuracy 100 %") != std::string::npos);

  const Ran resumed = run(old.dir, "train trees.json --resume auto --set train.epochs=8");
  CHECK_MESSAGE(resumed.code == 0, resumed.err);
  CHECK(resumed.out.find("resumed from trees/step-00000036 at step 36") != std::string::npos);
  // What was saved since then knows its data.
  fs::remove(old.dir / "train.csv");
  CHECK(run(old.dir, "predict trees/latest val.csv").code == 0);
  // The older one does not, and says so.
  fs::remove_all(old.dir / "trees");
  fs::copy(old_files() / "trees", old.dir / "trees", fs::copy_options::recursive);
  const Ran refused = run(old.dir, "predict trees val.csv");
  CHECK(refused.code == 3);
  CHECK(refused.err.find("before 0.2.0, which did not store what the model takes") != std::string::npos);
}

TEST_CASE("a table's model says the same without its training file") {
  const OldRun old;
  fs::remove_all(old.dir / "trees");
  write(old.dir / "run.json", R"({"extends": "trees.json", "output_dir": "out"})");
  same_without_data(old.dir, "train.csv", "val.csv");
}

TEST_CASE("predict: tables") {
  const OldRun old;
  fs::remove_all(old.dir / "trees");
  REQUIRE(run(old.dir, "train trees.json --quiet").code == 0);
  fs::remove(old.dir / "train.csv");
  write(old.dir / "new.csv", "soil,height,leaf\nclay,4.1,3.0\npeat,4,3\nsand,12.2,2.1\n");

  const Ran plain = run(old.dir, "predict trees new.csv");
  CHECK(plain.code == 3);  // a row cannot be read
  REQUIRE(lines_of(plain.out).size() == 2);
  CHECK(lines_of(plain.out)[0].starts_with("new.csv row 1: alder "));
  CHECK(lines_of(plain.out)[1].starts_with("new.csv row 3: cedar "));
  CHECK(plain.err.find("model: trees/step-") != std::string::npos);
  CHECK(plain.err.find(
            "error: new.csv row 2: [CSV] new.csv:3:1: column \"soil\" must be a value of the training data, got \"peat\"") !=
        std::string::npos);
  CHECK(plain.err.find("1 of 3 inputs could not be read") != std::string::npos);

  const Ran csv = run(old.dir, "predict trees new.csv --csv --probabilities --out answers.csv");
  CHECK(csv.out.empty());
  const auto rows = lines_of(read(old.dir / "answers.csv"));
  REQUIRE(rows.size() == 4);
  CHECK(rows[0] == "soil,height,leaf,prediction,probability,p(alder),p(birch),p(cedar),error");
  CHECK(rows[1].starts_with("clay,4.1,3.0,alder,0."));
  CHECK(rows[2].starts_with("peat,4,3,,,,,,\"[CSV] new.csv:3:1"));

  const auto json = lines_of(run(old.dir, "predict trees new.csv --json --top 2").out);
  REQUIRE(json.size() == 3);
  CHECK(Json::parse(json[0])["class"] == "alder");
  CHECK(Json::parse(json[0])["top"].size() == 2);
  CHECK(Json::parse(json[1])["error"].get<std::string>().find("peat") != std::string::npos);

  // A table on standard input, with another delimiter.
  write(old.dir / "other.csv", "height;leaf;soil\n4.1;3.0;clay\n");
  run(old.dir, "predict trees - --json <other.csv >piped.txt; true");
  CHECK(Json::parse(read(old.dir / "piped.txt"))["input"] == "- row 1");
  CHECK(Json::parse(read(old.dir / "piped.txt"))["class"] == "alder");
}

TEST_CASE("predict: columns of answers get names that the table does not have") {
  const OldRun old;
  write(old.dir / "again.csv", "height,leaf,soil,error,prediction_2,prediction\n4.1,3.0,clay,1,2,3\n");
  const Ran ran = run(old.dir, "predict trees again.csv --csv");
  REQUIRE_MESSAGE(ran.code == 0, ran.err);
  CHECK(lines_of(ran.out)[0] == "height,leaf,soil,error,prediction_2,prediction,prediction_3,probability,error_2");
  CHECK(ran.err.find("note: the table has a column prediction: the new one is prediction_3\n") != std::string::npos);
  CHECK(ran.err.find("note: the table has a column error: the new one is error_2\n") != std::string::npos);
  CHECK(run(old.dir, "predict trees val.csv --csv").err.find("the new one") == std::string::npos);
}

TEST_CASE("predict: arrays for NumPy, with a row for each input") {
  const OldRun old;
  write(old.dir / "new.csv", "soil,height,leaf\nclay,3,2\nclay,oops,2\nclay,14,5\n");
  const Ran classes = run(old.dir, "predict trees new.csv --out y.npy");
  CHECK(classes.code == 3);  // a row cannot be read
  CHECK(classes.out.empty());
  CHECK_MESSAGE(contains(classes.err, "y.npy: int64 [3]; classes by number: 0 alder, 1 birch, 2 cedar\n"), classes.err);
  CHECK(contains(classes.err, "1 row is -1: the input could not be read\n"));
  const Tensor numbers = read_npy(old.dir / "y.npy");
  CHECK(numbers.dtype() == DType::i64);
  CHECK(numbers.shape() == Shape{3});
  CHECK(numbers[1].item<int64_t>() == -1);
  const auto text = lines_of(run(old.dir, "predict trees new.csv --json --probabilities").out);
  CHECK(numbers[2].item<int64_t>() == Json::parse(text[2])["top"][0]["number"].get<int64_t>());

  CHECK(contains(run(old.dir, "predict trees new.csv --probabilities --out p.NPY").err, "p.NPY: float32 [3, 3]"));
  const Tensor shares = read_npy(old.dir / "p.NPY");
  CHECK(std::isnan(shares[1][0].item<double>()));
  CHECK(shares[0].sum().item<double>() == doctest::Approx(1).epsilon(1e-5));
  CHECK(contains(run(old.dir, "predict trees new.csv --probabilities --out y.npz").err,
                 "prediction int64 [3], probabilities float32"));
  CHECK(read_npz(old.dir / "y.npz", "prediction").shape() == Shape{3});
  CHECK(read_npz(old.dir / "y.npz", "probabilities").shape() == Shape{3, 3});

  for (const char* option : {"--csv", "--json", "--wrong", "--top 2"}) {
    const Ran wrong = run(old.dir, "predict trees new.csv --out no.npy " + std::string(option));
    CHECK(wrong.code == 2);
    CHECK_MESSAGE(contains(wrong.err, "is for text, and no.npy is an array with a row for each input"), wrong.err);
  }
  CHECK_FALSE(fs::exists(old.dir / "no.npy"));
  CHECK(contains(run(old.dir, "predict trees new.csv --out no/where.npy").err, "there is no folder no"));
  CHECK(run(old.dir, "predict trees new.csv --out y.txt").code == 3);
  CHECK(read(old.dir / "y.txt").starts_with("new.csv row 1: "));  // other endings are text
  run(old.dir, "predict trees new.csv --out y.csv");
  CHECK(read(old.dir / "y.csv").starts_with("soil,height,leaf,prediction,"));

  // Predictions never take the place of what they are made from.
  const std::string before = read(old.dir / "new.csv");
  fs::create_symlink("new.csv", old.dir / "link.csv");
  for (const char* out : {"new.csv", "./new.csv", "link.csv"}) {
    const Ran same = run(old.dir, joined("predict trees new.csv --csv --out ", out));
    CHECK(same.code == 2);
    CHECK_MESSAGE(contains(same.err, "--out must be another file than the inputs"), same.err);
    CHECK(read(old.dir / "new.csv") == before);
  }
}

TEST_CASE("predict --csv writes no rows of one table under the names of another") {
  const OldRun old;
  fs::remove_all(old.dir / "trees");
  REQUIRE(run(old.dir, "train trees.json --quiet").code == 0);
  const std::string header = "soil,height,leaf,tree\n", row = "clay,4.1,3.0,oak\n";
  write(old.dir / "one.csv", header + row);
  write(old.dir / "two.csv", header + row + row);
  const Ran same = run(old.dir, "predict trees one.csv two.csv --csv");
  CHECK(same.code == 0);
  CHECK(lines_of(same.out).size() == 4);
  write(old.dir / "order.csv", "leaf,soil,height,tree\n3.0,clay,4.1,oak\n");
  write(old.dir / "fewer.csv", "soil,height,leaf\nclay,4.1,3.0\n");
  write(old.dir / "other.csv", "soil\theight\tleaf\ttree\nclay\t4.1\t3.0\toak\n");
  for (const char* second : {"order.csv", "fewer.csv", "other.csv"}) {
    CAPTURE(second);
    const Ran mixed = run(old.dir, joined("predict trees one.csv ", second, " --csv"));
    CHECK(mixed.code == 3);
    CHECK_MESSAGE(contains(mixed.err, "follows one that begins \"soil,height,leaf,tree\""), mixed.err);
    REQUIRE(lines_of(mixed.out).size() == 3);
    CHECK(lines_of(mixed.out)[2].starts_with(",,,,,,\"[predict] a table"));  // in the column `error`
    CHECK(run(old.dir, joined("predict trees one.csv ", second)).code == 0);  // lines have no header
    CHECK(run(old.dir, joined("predict trees ", second, " --csv")).code == 0);
  }
}

TEST_CASE("predict: answers and values that the training data does not have") {
  const OldRun old;
  fs::remove_all(old.dir / "trees");
  REQUIRE(run(old.dir, "train trees.json --quiet").code == 0);
  write(old.dir / "new.csv",
        "soil,height,leaf,tree\nclay,4.1,3.0,alder.\nclay,4.1,3.0,\"alder \"\nsand,12.2,2.1,oak\nsand,12.2,2.1,\n");
  const Ran ran = run(old.dir, "predict trees new.csv --json");
  CHECK(ran.code == 0);
  const auto rows = lines_of(ran.out);
  REQUIRE(rows.size() == 4);
  CHECK(!Json::parse(rows[0]).contains("truth"));
  CHECK(Json::parse(rows[1])["truth"] == "alder");
  CHECK(ran.err.find("1 with a known answer: ") != std::string::npos);
  CHECK(ran.err.ends_with(
      "2 answers are unknown and left out of the metrics, such as \"alder.\" in row 1; the classes are \"alder\", "
      "\"birch\", \"cedar\"\n"));

  for (const char* as : {"missing", "clay"}) {
    REQUIRE(run(old.dir, std::string("train trees.json --quiet --overwrite --set data.unknown=") + as).code == 0);
    write(old.dir / "other.csv", "soil,height,leaf\npeat,4.1,3.0\nclay,4.1,3.0\n");
    const Ran known = run(old.dir, "predict trees other.csv --json");
    CHECK_MESSAGE(known.code == 0, known.err);
    REQUIRE(lines_of(known.out).size() == 2);
    CHECK(known.err.find(std::string("1 value that the training data does not have, such as \"peat\" in column soil, read as ") +
                         as) != std::string::npos);
    const Json peat = Json::parse(lines_of(known.out)[0]), clay = Json::parse(lines_of(known.out)[1]);
    CHECK((peat["probability"] == clay["probability"]) == (std::string(as) == "clay"));
  }
}

TEST_CASE("predict: a series, arrays and pictures, without their training data") {
  {
    const TempDir dir;
    std::string values = "t,v\n";
    for (int i = 0; i < 60; ++i) values += std::to_string(i) + ',' + std::to_string(100 + 10 * std::sin(i * 0.3)) + '\n';
    write(dir / "train.csv", values);
    write(dir / "val.csv", values);
    write(dir / "now.csv", values);
    write(dir / "run.json", R"({"version": 1, "name": "s", "output_dir": "out",
      "data": {"root": ".", "train": {"type": "TimeSeries", "path": "train.csv", "window": 8, "horizon": 2},
               "val": {"type": "TimeSeries", "path": "val.csv", "window": 8, "horizon": 2}},
      "model": {"type": "Sequential", "layers": [{"type": "Flatten"}, {"type": "Linear", "out_features": 2}]},
      "loss": {"type": "MSELoss"}, "optimizer": {"type": "Adam", "lr": 0.05}, "train": {"epochs": 30}})");
    same_without_data(dir, "train.csv", "now.csv");
    const Json answer = run(dir, "predict out now.csv --json").json();
    REQUIRE(answer["values"].size() == 2);
    CHECK(std::abs(answer["values"][0].get<double>() - (100 + 10 * std::sin(60 * 0.3))) < 3);  // in the column's units
    CHECK(run(dir, "predict out val.csv").out.starts_with("val.csv: "));
  }
  {
    const TempDir dir;
    const Tensor x = arange(0, 24, 0.5).reshape({16, 3}), y = (x.sum(1) > 35).to(DType::i64);
    save_safetensors(dir / "train.safetensors", {{"x", x}, {"y", y}});
    save_safetensors(dir / "val.safetensors", {{"x", x}, {"y", y}});
    save_safetensors(dir / "new.safetensors", {{"x", x.narrow(0, 2, 3).contiguous()}});
    write(dir / "run.json", R"({"version": 1, "name": "a", "output_dir": "out",
      "data": {"root": ".", "train": {"type": "Safetensors", "path": "train.safetensors"},
               "val": {"type": "Safetensors", "path": "val.safetensors"}},
      "model": {"type": "Linear", "out_features": "auto"},
      "loss": {"type": "CrossEntropyLoss"}, "optimizer": {"type": "SGD", "lr": 0.01}, "train": {"epochs": 2}})");
    same_without_data(dir, "train.safetensors", "new.safetensors");
    CHECK(lines_of(run(dir, "predict out new.safetensors --top 2").out)[2].starts_with("new.safetensors[2]: "));
    save_safetensors(dir / "wide.safetensors", {{"x", ones({2, 4})}});
    const Ran wide = run(dir, "predict out wide.safetensors new.safetensors");
    CHECK(wide.code == 3);
    CHECK(wide.err.find("the model takes inputs [N, ...] of shape [3], got [2, 4]") != std::string::npos);
    CHECK(lines_of(wide.out).size() == 3);
  }
  {
    const TempDir dir;
    for (const char* part : {"train", "val"}) {
      for (int i = 0; i < 4; ++i) {
        const auto picture = [&](const char* kind, uint8_t red, uint8_t blue) {
          fs::create_directories(dir / part / kind);
          std::string pixels;
          for (int p = 0; p < 64; ++p) pixels += {char(red + i), char(30), char(blue - i)};
          write(dir / part / kind / (std::to_string(i) + ".png"), halfstep::testing::png(8, 8, pixels));
        };
        picture("red", 200, 40);
        picture("blue", 40, 200);
      }
    }
    write(dir / "run.json", R"({"version": 1, "name": "p", "output_dir": "out",
      "data": {"root": ".", "train": {"type": "ImageFolder", "path": "train", "size": 8,
                                      "transforms": [{"type": "RandomCrop", "size": 6}, {"type": "Normalize", "from": "data"}]},
               "val": {"type": "ImageFolder", "path": "val", "size": 8,
                       "transforms": [{"type": "CenterCrop", "size": 6}, {"type": "Normalize", "from": "data"}]},
               "loader": {"batch_size": 4}},
      "model": {"type": "Sequential", "layers": [{"type": "Flatten"}, {"type": "Linear", "out_features": "auto"}]},
      "loss": {"type": "CrossEntropyLoss"}, "optimizer": {"type": "SGD", "lr": 0.05}, "train": {"epochs": 3}})");
    same_without_data(dir, "train", "val");
    fs::copy(dir / "val" / "red" / "1.png", dir / "a.png");
    write(dir / "b.png", "no picture");
    const Ran two = run(dir, "predict out a.png b.png val/blue");
    CHECK(two.code == 3);
    CHECK(lines_of(two.out)[0].starts_with("a.png: red "));
    CHECK(lines_of(two.out).size() == 5);
    CHECK(two.err.find("error: b.png: ") != std::string::npos);
    CHECK(two.err.find("4 with a known answer: accuracy 100 %") != std::string::npos);
    // A picture in the wrong folder is answered wrongly.
    fs::rename(dir / "a.png", dir / "val" / "blue" / "9.png");
    const Ran wrong = run(dir, "predict out val --wrong");
    REQUIRE(lines_of(wrong.out).size() == 1);
    CHECK(lines_of(wrong.out)[0].find("(it is blue)") != std::string::npos);
    CHECK(run(dir, "predict out --wrong b.png").code == 3);
  }
}

TEST_CASE("a predictor answers as the model of the run") {
  const OldRun old;
  const fs::path here = fs::current_path();
  fs::current_path(old.dir.path());
  Predictor model("trees");
  fs::current_path(here);
  CHECK(model.step() == 30);
  CHECK(model.form().names == std::vector<std::string>{"alder", "birch", "cedar"});
  const Tensor x = zeros({2, 5});
  const Tensor scores = model(x);
  CHECK(scores.shape() == Shape{2, 3});
  CHECK(!scores.requires_grad());
  const auto answers = model.answers(x, {.top = 3, .probabilities = true});
  REQUIRE(answers.size() == 2);
  CHECK(answers[0].top.size() == 3);
  CHECK(answers[0].probabilities[0] + answers[0].probabilities[1] + answers[0].probabilities[2] == doctest::Approx(1));
  CHECK(answers[0].top[0].probability == doctest::Approx(softmax(scores, 1)[0].amax().item()));
  CHECK_THROWS_AS(model.answers(zeros({2, 4})), DataError);
}

TEST_CASE("predict: a column of the table that is called as one of the answers keeps its name alone") {
  const OldRun old;
  write(old.dir / "again.csv", "soil,prediction,height,error,prediction_2,leaf\nclay,ash,4.1,2,x,3.0\n");
  const Ran r = run(old.dir, "predict trees again.csv --csv");
  CHECK_MESSAGE(r.code == 0, r.err);
  const auto rows = lines_of(r.out);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0] == "soil,prediction,height,error,prediction_2,leaf,prediction_3,probability,error_2");
  CHECK(rows[1].starts_with("clay,ash,4.1,2,x,3.0,alder,0."));
  CHECK(contains(r.err, "note: the table has a column prediction: the new one is prediction_3\n"));
  CHECK(contains(r.err, "note: the table has a column error: the new one is error_2\n"));
}
