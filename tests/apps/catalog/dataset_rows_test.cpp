// SPDX-License-Identifier: Apache-2.0
// Data sets as configs name them, trained on for a few steps.
#include <doctest/doctest.h>

#include "apps/catalog/losses.h"
#include "apps/catalog/metrics.h"
#include "framework/data/formats/image_file.h"
#include "framework/data/tables/time_series.h"
#include "framework/io/weights/safetensors.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"
#include "tests/data/array_files.h"
#include "tests/data/picture_files.h"

using namespace halfstep;
using namespace halfstep::app;
using halfstep::app::testing::contains;
using halfstep::app::testing::Ran;
using halfstep::app::testing::run;
using halfstep::app::testing::TempDir;
using halfstep::app::testing::write;
namespace fs = std::filesystem;

namespace {

struct Trained {
  const char *data, *model, *loss, *more;
};

Json config_of(const Trained& t) {
  Json c = {
      {"name", "c"}, {"output_dir", "r"}, {"device", "cpu"}, {"optimizer", {{"type", "SGD"}, {"lr", 0.01}}}, {"loss", t.loss}};
  c["model"] = Json::parse(t.model);
  const Json data = Json::parse(t.data);
  c["data"] = {{"train", data}, {"val", data}, {"root", "."}, {"loader", {{"batch_size", 4}}}};
  c["train"] = {{"max_steps", 3}};
  c["checkpoint"] = {{"every", "never"}};
  c.merge_patch(Json::parse(t.more));
  return c;
}

}  // namespace

TEST_CASE("generated data sets train, and their dry runs agree with them") {
  const TempDir dir;
  const char* const mlp = R"({"type": "MLP", "hidden": [8]})";
  const char* const lstm = R"([{"type": "LSTM", "hidden_size": 4, "output": "last"}, {"type": "Linear", "out_features": "auto"}])";
  const char* const strips = R"([{"type": "Permute", "dims": [0, 3, 1, 2]}, {"type": "Flatten", "start_dim": 2},
                                 {"type": "GRU", "hidden_size": 4}, {"type": "Linear", "out_features": "auto"}, "LogSoftmax"])";
  const auto layers = [](const char* list) { return std::string(R"({"type": "Sequential", "layers": )") + list + "}"; };
  const std::string last = layers(lstm), labels = layers(strips),
                    tokens = layers(R"([{"type": "Embedding", "num_embeddings": "auto", "embedding_dim": 3},
                                        {"type": "GRU", "hidden_size": 4}, {"type": "Linear", "out_features": "auto"}])");
  for (const Trained& t :
       {Trained{R"({"type": "Spirals", "size": 10, "arms": 3})", mlp, "CrossEntropyLoss", "{}"},
        Trained{R"({"type": "Sines", "size": 10, "window": 8, "horizon": 2})", last.c_str(), "MSELoss", "{}"},
        Trained{R"({"type": "CopyTask", "size": 10, "length": 2, "wait": 3})", tokens.c_str(), "CrossEntropyLoss", "{}"},
        Trained{R"({"type": "Adding", "size": 10, "length": 5})", last.c_str(), "MSELoss", "{}"},
        Trained{R"({"type": "DigitStrips", "size": 6, "max_digits": 3})", labels.c_str(), "CTCLoss",
                R"({"metrics": ["label_error_rate"]})"}}) {
    CAPTURE(t.data);
    write(dir / "c.json", config_of(t).dump());
    const Ran dry = run(dir, "train c.json --dry-run");
    CHECK_MESSAGE(dry.code == 0, dry.err);
    const Ran trained = run(dir, "train c.json --json --overwrite --threads 1");
    REQUIRE_MESSAGE(trained.code == 0, trained.err);
    const Json result = trained.json();
    CHECK(result["val.loss"].get<double>() > 0);
    if (std::string(t.loss) == "CTCLoss") CHECK(result["val.label_error_rate"].get<double>() >= 0);
  }
}

TEST_CASE("data sets in files train, and their dry runs agree with them") {
  const TempDir dir;
  const std::string pixels(784, 'x'), record = std::string(1, 2) + std::string(3072, 'x');
  const auto idx = [](const std::string& sizes, const std::string& data) {
    return std::string("\0\0\x08", 3) + char(sizes.size() / 4) + sizes + data;
  };
  const std::string two("\0\0\0\2", 4), side("\0\0\0\x1c", 4);
  for (const char* name : {"kmnist/train", "kmnist/t10k", "emnist/emnist-letters-train", "emnist/emnist-letters-test"}) {
    fs::create_directories((dir / name).parent_path());
    write(dir / (std::string(name) + "-images-idx3-ubyte"), idx(two + side + side, pixels + pixels));
    write(dir / (std::string(name) + "-labels-idx1-ubyte"), idx(two, "\3\5"));
  }
  write(dir / "c10.bin", record + record);
  write(dir / "c100.bin", "\1" + record + "\2" + record);
  write(dir / "table.csv", "a,b,y\n1,red,0.5\n,blue,1\n4,red,2\n7,,3\n");
  write(dir / "series.csv", "t,v\n1,10\n2,20\n3,30\n4,40\n5,50\n6,70\n");
  const auto x = randn({6, 3}), y = from_vector<int64_t>({0, 1, 2, 0, 1, 2}, {6});
  save_safetensors(dir / "d.safetensors", {{"x", x}, {"y", y}, {"tokens", y.reshape({3, 2})}});
  write(dir / "x.npy",
        halfstep::testing::npy("<f4", "(6, 3)", std::string(static_cast<const char*>(x.const_data_ptr()), x.nbytes())));
  write(dir / "y.npy",
        halfstep::testing::npy("<i8", "(6,)", std::string(static_cast<const char*>(y.const_data_ptr()), y.nbytes())));
  write(dir / "d.npz", halfstep::testing::zip({{"x.npy", halfstep::app::testing::read(dir / "x.npy")},
                                               {"y.npy", halfstep::app::testing::read(dir / "y.npy")}},
                                              true));
  for (const char* kind : {"cats", "dogs"}) {
    fs::create_directories(dir / "pictures" / kind);
    write(dir / "pictures" / kind / "a.png", halfstep::testing::png(4, 6, std::string(72, 'x')));
  }
  const char* const mlp = R"({"type": "MLP", "hidden": [8]})";
  const char* const tokens =
      R"({"type": "Sequential", "layers": [{"type": "Embedding", "num_embeddings": "auto", "embedding_dim": 3},
                                 {"type": "Linear", "out_features": "auto"}]})";
  for (const Trained& t :
       {Trained{R"({"type": "KMNIST"})", mlp, "CrossEntropyLoss", "{}"},
        Trained{R"({"type": "EMNIST", "part": "letters"})", mlp, "CrossEntropyLoss", "{}"},
        Trained{R"({"type": "CIFAR10", "files": ["c10.bin"], "transforms": [{"type": "Normalize", "mean": 0.5, "std": 0.5}]})", mlp,
                "CrossEntropyLoss", "{}"},
        Trained{R"({"type": "CIFAR100", "files": ["c100.bin"], "labels": "coarse"})", mlp, "CrossEntropyLoss", "{}"},
        Trained{R"({"type": "CSV", "path": "table.csv", "task": "regression", "missing": "mean", "standardize": true,
                   "standardize_target": true})",
                mlp, "MSELoss", "{}"},
        Trained{R"({"type": "TimeSeries", "path": "series.csv", "column": "v", "time": "t", "window": 2})", mlp, "MSELoss", "{}"},
        Trained{R"({"type": "NPY", "input": "x.npy", "target": "y.npy", "range": [0, 0.5]})", mlp, "CrossEntropyLoss", "{}"},
        Trained{R"({"type": "NPZ", "path": "d.npz"})", mlp, "CrossEntropyLoss", "{}"},
        Trained{R"({"type": "Safetensors", "path": "d.safetensors"})", mlp, "CrossEntropyLoss", "{}"},
        Trained{R"({"type": "Safetensors", "path": "d.safetensors", "input": "tokens", "target": "tokens", "tokens": true})",
                tokens, "CrossEntropyLoss", "{}"},
        Trained{R"({"type": "ImageFolder", "path": "pictures", "size": 5})", mlp, "CrossEntropyLoss",
                R"({"data": {"loader": {"num_workers": 2}}})"}}) {
    CAPTURE(t.data);
    if (contains(t.data, "ImageFolder") && !reads_pictures()) continue;
    write(dir / "c.json", config_of(t).dump());
    const Ran dry = run(dir, "train c.json --dry-run");
    CHECK_MESSAGE(dry.code == 0, dry.err);
    const Ran trained = run(dir, "train c.json --json --overwrite --threads 1");
    REQUIRE_MESSAGE(trained.code == 0, trained.err);
    CHECK(trained.json()["val.loss"].is_number());
  }
  // A missing file is an error of the data, not a defect; the message says where it was searched.
  write(dir / "c.json", config_of({R"({"type": "CIFAR10"})", mlp, "CrossEntropyLoss", "{}"}).dump());
  const Ran missing = run(dir, "train c.json --overwrite");
  CHECK(missing.code == 3);
  CHECK(contains(missing.err, "[CIFAR10] files are missing, looked for ./data_batch_1.bin"));
}

TEST_CASE("classes and categories of a table in another file are the training data's") {
  const TempDir dir;
  write(dir / "train.csv", "size,color,kind\n1,red,apple\n2,blue,plum\n3,green,pear\n");
  write(dir / "val.csv", "kind,color,size\npear,green,3\nplum,blue,2\n");
  const auto with_val = [&](const char* file) {
    Json config =
        config_of({R"({"type": "CSV", "path": "train.csv"})", R"({"type": "MLP", "hidden": [8]})", "CrossEntropyLoss",
                   R"({"train": {"max_steps": 200}, "optimizer": {"type": "Adam", "lr": 0.1}, "metrics": ["accuracy"]})"});
    config["data"]["val"] = {{"type", "CSV"}, {"path", file}, {"target", "kind"}};
    config["data"]["train"]["target"] = "kind";
    write(dir / "c.json", config.dump());
    return run(dir, "train c.json --json --overwrite --threads 1");
  };
  const Ran trained = with_val("val.csv");
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  CHECK(trained.json()["val.accuracy"] == 1.0);
  write(dir / "other.csv", "kind,color,size\nfig,green,3\n");
  const Ran refused = with_val("other.csv");
  CHECK(refused.code == 3);
  CHECK(contains(refused.err, "other.csv:2:1: column \"kind\" must be a class of the training data, got \"fig\""));
}

TEST_CASE("rows of labels want CTCLoss and enough steps") {
  const TempDir dir;
  const auto error = [&](const char* model, const char* loss) {
    const std::string whole = std::string(R"({"type": "Sequential", "layers": )") + model + "}";
    write(dir / "c.json", config_of({R"({"type": "DigitStrips", "size": 6, "max_digits": 3})", whole.c_str(), loss, "{}"}).dump());
    const Ran r = run(dir, "validate c.json");
    return r.err + r.out;
  };
  CHECK(contains(error(R"(["Flatten", {"type": "Linear", "out_features": "auto"}])", "CrossEntropyLoss"),
                 "CrossEntropyLoss needs data with classes, but data.train has rows of labels as targets; use \"CTCLoss\""));
  CHECK(contains(error(R"(["Flatten", {"type": "Linear", "out_features": "auto"}])", "CTCLoss"),
                 "model: the output must have shape [steps, 11], a score for each class, got [11]"));
  CHECK(contains(
      error(R"(["Flatten", {"type": "Linear", "out_features": 22}, {"type": "Unflatten", "dim": 1, "unflattened_size": [2, 11]}])",
            "CTCLoss"),
      "model: the output must have at least as many steps as a sample may have labels, 3, got [2, 11]"));
}

TEST_CASE("label_error_rate: what is missing, too much and wrong") {
  Issues issues;
  const Json self = validate("label_error_rate", component("metric", metric_family(), ""), "metric", issues);
  const auto metric = metric_catalog().row(self).make(self);
  const auto rate = [&](std::vector<int64_t> said, const std::vector<int64_t>& wanted) {
    const Tensor steps = one_hot(from_vector<int64_t>(said, {1, int64_t(said.size())}), 5).to(DType::f32);
    metric->reset();
    metric->add(steps, from_vector<int64_t>(wanted, {1, int64_t(wanted.size())}));
    return metric->value();
  };
  CHECK(rate({0, 1, 1, 0, 1, 2}, {1, 1, 2, -1}) == 0);
  CHECK(rate({1, 1, 1, 1, 1, 2}, {1, 1, 2, -1}) == doctest::Approx(1.0 / 3));
  CHECK(rate({0, 0, 0, 0, 0, 0}, {1, 1, 2, -1}) == 1);
  CHECK(rate({3, 0, 1, 0, 4, 0}, {3, 2, 4, -1}) == doctest::Approx(1.0 / 3));
  CHECK(rate({1, 2, 3, 4, 0, 0}, {2, 3, -1, -1}) == 1);
}

TEST_CASE("metrics of a time series are in the units of its file") {
  const TempDir dir;
  write(dir / "s", "10\n30\n50\n1000\n");
  const TimeSeriesDataset data(dir / "s", {.end = 0.75});
  const Batch b = data.batch(std::vector<int64_t>{1});
  const ComparedTensors made = as_measured(zeros({1, 1}), b.target, {{"type", "MSELoss"}}, data.form());
  CHECK(made.output.item<double>() == doctest::Approx(30));
  CHECK(made.target.item<double>() == doctest::Approx(50));
}

TEST_CASE("how a table is read is printed, and data that cannot be read ends a run before its folder is opened") {
  const TempDir dir;
  std::string rows = "id;sold;city;rate;price\n";
  for (int i = 0; i < 12; ++i)
    rows += std::to_string(i) + ";0" + std::to_string(i % 9 + 1) + ".03.2024;" + (i % 2 ? "Bonn" : "Trier") + ';' +
            std::to_string(i % 3) + "%;1." + std::to_string(100 + i) + ",5\n";
  write(dir / "t.csv", rows);
  const char* const mlp = R"({"type": "MLP", "hidden": [4]})";
  const char* const table =
      R"({"type": "CSV", "path": "t.csv", "task": "regression", "decimal": ",", "thousands": ".", "exclude": ["id"],
                                "dates": ["sold"], "date_order": "dmy", "dates_as": "parts", "standardize": true})";
  write(dir / "c.json", config_of({table, mlp, "MSELoss", "{}"}).dump());
  const char* const made =
      "2 text columns became 5 inputs: city 2, rate 3; 1 date column became 4 inputs: sold 4; target price; left out: id";
  const Ran checked = run(dir, "validate c.json");
  CHECK_MESSAGE(checked.code == 0, checked.err);
  CHECK(contains(checked.out, std::string("c.json: valid\n  data.train: ") + made + '\n'));
  CHECK(contains(checked.err, "data.train: column \"rate\" has numbers with a percent sign (\"0%\"), read as 3 different texts"));
  CHECK(!contains(checked.err, "data.val: column"));  // the same file, warned of once
  CHECK(run(dir, "validate c.json --json").json()["data"] == made);
  CHECK(contains(run(dir, "inspect data c.json").out, std::string("input [9], target [1]\n") + made + '\n'));
  CHECK(run(dir, "inspect data c.json --json").json()["made"] == made);
  CHECK(contains(run(dir, "train c.json --threads 1").out, std::string("      ") + made + '\n'));

  if (!reads_pictures()) return;
  fs::create_directories(dir / "pictures/cats");
  fs::create_directories(dir / "pictures/dogs");
  write(dir / "pictures/cats/a.png", halfstep::testing::png(4, 6, std::string(72, 'x')));
  write(dir / "pictures/dogs/a.png", halfstep::testing::png(4, 6, std::string(72, 'x')));
  write(dir / "pictures/dogs/b.webp", "RIFF");
  const char* const pictures = R"({"type": "ImageFolder", "path": "pictures"})";
  write(dir / "p.json", config_of({pictures, mlp, "CrossEntropyLoss", R"({"output_dir": "p"})"}).dump());
  const Ran named = run(dir, "validate p.json");
  CHECK(named.code == 0);
  CHECK(contains(named.err, "1 picture is left out, since only PNG and JPEG are read: 1 .webp, such as ./pictures/dogs/b.webp"));
  write(dir / "pictures/dogs/c.png", halfstep::testing::png(2, 6, std::string(36, 'x')));
  for (const char* command : {"validate p.json", "train p.json"}) {
    const Ran refused = run(dir, command);
    CHECK(refused.code == 3);
    CHECK(contains(refused.err,
                   "all pictures must have one size, but 1 of 3 are not 4 x 6 as the first one, ./pictures/cats/a.png: "
                   "./pictures/dogs/c.png has 2 x 6\nhelp: set \"size\" to resize all to one size"));
  }
  CHECK(!fs::exists(dir / "p"));
  write(dir / "p.json",
        config_of({R"({"type": "ImageFolder", "path": "pictures", "size": 3, "fit": "pad", "background": "white"})", mlp,
                   "CrossEntropyLoss", R"({"output_dir": "p", "loss": {"type": "CrossEntropyLoss", "weight": "balanced"}})"})
            .dump());
  const Ran trained = run(dir, "train p.json --threads 1");
  CHECK_MESSAGE(trained.code == 0, trained.err);
  CHECK(Json::parse(halfstep::app::testing::read(dir / "p/config.resolved.json"))["loss"]["weight"] == Json{1.5, 0.75});
}

TEST_CASE("validate reads published files whose facts are known, and refuses what train refuses") {
  const TempDir dir;
  const auto record = [](const std::string& labels) { return labels + std::string(3072, 'x'); };
  write(dir / "ten.bin", record("\1") + record("\2") + record("\3"));
  write(dir / "hundred.bin", record("\1\7") + record("\2\40"));
  const auto validated = [&](const std::string& data) {
    write(dir / "c.json", config_of({data.c_str(), R"({"type": "MLP", "hidden": [8]})", "CrossEntropyLoss", "{}"}).dump());
    const Ran checked = run(dir, "validate c.json"), trained = run(dir, "train c.json --overwrite --quiet");
    CHECK(checked.code == trained.code);
    return checked.code == 0 ? checked.out : checked.err;
  };
  CHECK(contains(validated(R"({"type": "CIFAR100", "files": ["ten.bin"]})"), "ten.bin must be whole records of 3074 bytes"));
  CHECK(contains(validated(R"({"type": "CIFAR10", "files": ["hundred.bin"]})"), "hundred.bin must be whole records of 3073 bytes"));
  CHECK(contains(validated(R"({"type": "CIFAR100", "files": ["hundred.bin"]})"), "c.json: valid\n"));
  CHECK(contains(validated(R"({"type": "CIFAR10", "files": ["ten.bin"]})"), "c.json: valid\n"));
  // Letters of which some are no digits.
  for (const char* part : {"train", "test"}) {
    const std::string head = std::string("\0\0\10\3\0\0\0\2\0\0\0\34\0\0\0\34", 16), labels("\0\0\10\1\0\0\0\2", 8);
    write(dir / ("emnist-digits-" + std::string(part) + "-images-idx3-ubyte"), head + std::string(2 * 784, 'x'));
    write(dir / ("emnist-digits-" + std::string(part) + "-labels-idx1-ubyte"), labels + std::string("\1\24", 2));
  }
  CHECK(contains(validated(R"({"type": "EMNIST", "part": "digits"})"), "label"));
}
