// SPDX-License-Identifier: Apache-2.0
// Warnings of held-out data that has samples of the training data.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/apps/config/load.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

// Loads configs in a folder whose data files need not exist.
struct Splits : TempDir {
  Splits() { write(*this / "c.json", kGood); }
  // Returns the warnings of a config with these keys of data.train and data.val, such as R"("path": "t.csv")".
  std::string warnings(const std::string& type, const std::string& train, const std::string& val,
                       const std::vector<std::string>& sets = {}) const {
    const auto split = [&](const char* name, const std::string& keys) {
      return joined("data.", name, R"(={"type": ")", type, '"', keys.empty() ? "" : ", ", keys, "}");
    };
    const std::string model = R"(model={"type": "Sequential", "layers": ["Flatten", {"type": "Linear", "out_features": "auto"}]})";
    std::vector<std::string> all = {split("train", train), split("val", val), "data.root=" + path().string(), model};
    all.insert(all.end(), sets.begin(), sets.end());
    std::string out;
    for (const std::string& w : load_config(*this / "c.json", {.sets = all}).warnings) out += w + '\n';
    return out;
  }
};

std::string with_path(const fs::path& path, const std::string& more = "") { return R"("path": ")" + path.string() + '"' + more; }

const std::string kSeen = "data.val: has samples of data.train, which the model has seen: \"range\" or \"fold\" parts them";

}  // namespace

TEST_CASE("the training data's file is found in the held-out data under any spelling") {
  const Splits dir;
  fs::create_directories(dir / "in/deep");
  write(dir / "in/t.csv", "a,b,c\n1,2,x\n2,3,y\n4,4,x\n");
  fs::create_symlink("t.csv", dir / "in/by_link.csv");
  fs::create_hard_link(dir / "in/t.csv", dir / "in/by_name.csv");
  fs::create_directory_symlink("in", dir / "to_in");
  write(dir / "in/other.csv", "a,b,c\n1,2,x\n2,3,y\n5,4,x\n");
  const std::vector<std::string> spellings = {"in/deep/../t.csv", "./in//t.csv",    "in/by_link.csv",
                                              "in/by_name.csv",   "to_in/t.csv", (dir / "in/t.csv").string()};
  for (const std::string& path : spellings) {
    CAPTURE(path);
    CHECK(contains(dir.warnings("CSV", with_path("in/t.csv"), with_path(path)), kSeen));
    CHECK(contains(dir.warnings("CSV", with_path("in/t.csv", R"(, "range": [0, 0.6])"), with_path(path, R"(, "range": [0.3, 1])")),
                   "data.val.range: shares the samples of [0.3, 0.6) with data.train"));
    CHECK(!contains(dir.warnings("CSV", with_path("in/t.csv", R"(, "range": [0, 0.6])"), with_path(path, R"(, "range": [0.6, 1])")),
                    "data.train"));
  }
  CHECK(contains(dir.warnings("CSV", with_path("in/t.csv"), with_path("t.csv", R"(, "root": ")" + (dir / "to_in").string() + '"')),
                 kSeen));
  CHECK(!contains(dir.warnings("CSV", with_path("in/t.csv"), with_path("in/other.csv")), "data.train"));
  CHECK(contains(error_of(dir / "c.json", {.sets = {R"(data.train={"type": "CSV", "path": "no.csv", "fold": [0, 5]})",
                                                    R"(data.val={"type": "CSV", "path": "./no.csv", "fold": [1, 5]})"}}),
                 ": data.val.fold: must be that of data.train, [0,5], or both share samples"));
}

TEST_CASE("folders, arrays and published files are compared by what is read of them") {
  const Splits dir;
  CHECK(contains(dir.warnings("ImageFolder", with_path("pets"), with_path("./pets/")), kSeen));
  CHECK(contains(
      dir.warnings("ImageFolder", with_path("pets/", R"(, "size": 8)"), with_path("pets", R"(, "fit": "pad", "size": 8)")), kSeen));
  CHECK(dir.warnings("ImageFolder", with_path("train"), with_path("val")).empty());
  CHECK(contains(dir.warnings("NPZ", with_path("a.npz"), with_path("./a.npz")), kSeen));
  CHECK(dir.warnings("NPZ", with_path("a.npz"), with_path("a.npz", R"(, "input": "x_val")")).empty());
  CHECK(contains(dir.warnings("NPY", R"("input": "x.npy", "target": "y.npy")", R"("input": "./x.npy", "target": "z.npy")"), kSeen));

  for (const std::string type : {"MNIST", "KMNIST", "EMNIST", "CIFAR10", "CIFAR100"}) {
    CAPTURE(type);
    CHECK(contains(dir.warnings(type, "", R"("split": "train")"), kSeen));
    CHECK(contains(dir.warnings(type, R"("root": "a")", R"("split": "train", "root": "./b/../a/")"), kSeen));
    CHECK(dir.warnings(type, "", "").empty());
    CHECK(dir.warnings(type, R"("root": "a")", R"("split": "train", "root": "b")").empty());
  }
  // The same file by another of the folders that are searched.
  fs::create_directories(dir / "d/mnist");
  write(dir / "d/mnist/train-images-idx3-ubyte", "x");
  const auto root = [&](const std::string& below) { return R"("split": "train", "root": ")" + (dir / below).string() + '"'; };
  CHECK(contains(dir.warnings("MNIST", root("d"), root("d/mnist")), kSeen));
}

TEST_CASE("files that two splits of CIFAR list are shared whatever their split, order and spelling") {
  const Splits dir;
  const auto shares = [&](const std::string& train, const std::string& val) { return dir.warnings("CIFAR10", train, val); };
  CHECK(contains(shares(R"("files": ["a.bin", "b.bin"])", R"("files": ["a.bin", "./b.bin"])"), kSeen));
  CHECK(contains(shares(R"("files": ["a.bin", "b.bin"])", R"("files": ["c.bin", "x/../b.bin"])"),
                 "data.val.files: shares the samples of b.bin with data.train; list each file once"));
  CHECK(contains(shares("", R"("files": ["data_batch_5.bin"])"), "data.val.files: shares the samples of data_batch_5.bin"));
  CHECK(shares("", R"("files": ["test_batch.bin"])").empty());
  CHECK(shares(R"("files": ["a.bin"])", R"("files": ["b.bin"])").empty());
}

TEST_CASE("drawn samples are shared if they are drawn with the options of the training data, in any number") {
  const Splits dir;
  const std::string train = R"("split": "train")";
  CHECK(contains(dir.warnings("Digits", R"("size": 64)", R"("split": "train", "size": 32)"), kSeen));
  CHECK(contains(dir.warnings("Spirals", "", train), kSeen));
  CHECK(dir.warnings("Spirals", "", R"("split": "train", "arms": 2, "noise": 0.5)").empty());
  CHECK(dir.warnings("Spirals", "", "").empty());
  CHECK(dir.warnings("Random", R"("input_shape": [2], "classes": 2)", R"("input_shape": [2], "classes": 2, "range": [0.5, 1])")
            .empty());
}

TEST_CASE("parts of one file that are cut from different orders share samples, and the key at fault is named") {
  const Splits dir;
  const auto of = [&](const std::string& type, const std::string& train, const std::string& val) {
    return dir.warnings(type, with_path("no.csv", R"(, "range": [0, 0.8])" + train),
                        with_path("./no.csv", R"(, "range": [0.8, 1])" + val));
  };
  struct Case {
    std::string type, train, val, key;  // key: "" if both are cut from one order
  };
  const std::string drop = R"(, "missing": "drop_row")", window = R"(, "window": 4)";
  const std::vector<Case> cases = {
      {"CSV", drop, R"(, "missing": "median")", "missing"},
      {"CSV", R"(, "missing": "constant")", drop, "missing"},
      {"CSV", R"(, "missing": "mean")", R"(, "missing": "median")", ""},
      {"CSV", drop, "", ""},  // which refuses a file with missing values
      {"CSV", R"(, "missing_words": ["NA"])", "", "missing_words"},
      {"CSV", "", R"(, "skip_rows": [2])", "skip_rows"},
      {"CSV", R"(, "header": true)", R"(, "header": false)", "header"},
      {"CSV", "", R"(, "stratified": true)", "stratified"},
      {"CSV", R"(, "features": ["a"])", R"(, "features": ["a", "b"])", ""},
      {"CSV", drop + R"(, "features": ["a"])", drop + R"(, "features": ["a", "b"])", "features"},
      {"CSV", drop + R"(, "standardize": true)", drop + R"(, "standardize": true)", ""},
      {"CSV", "", R"(, "delimiter": ",", "categories": "index")", ""},
      {"ImageFolder", R"(, "on_error": "skip")", "", "on_error"},
      {"ImageFolder", R"(, "stratified": true)", "", "stratified"},
      {"ImageFolder", R"(, "size": 8)", R"(, "size": 8, "fit": "pad")", ""},
      {"TimeSeries", window + R"(, "missing": "drop")", window + R"(, "missing": "last")", "missing"},
      {"TimeSeries", window + R"(, "missing": "interpolate")", window + R"(, "missing": "last")", ""},
      {"TimeSeries", window, R"(, "window": 6)", ""},
      {"Text", "", R"(, "encoding": "latin-1")", "encoding"},
      {"Text", "", R"(, "seq_len": 16)", ""},
  };
  for (const Case& c : cases) {
    CAPTURE(c.type + c.train + c.val);
    const std::string said = of(c.type, c.train, c.val), wanted = "data.val." + c.key + ": is ",
                      end = ": the two are cut from different orders of the samples, so that they share some; give both the same ";
    CHECK_MESSAGE(contains(said, "different orders") == !c.key.empty(), said);
    CHECK_MESSAGE((c.key.empty() || (contains(said, wanted) && contains(said, " for data.train" + end + c.key))), said);
  }
  // Folds, too; but a whole file is cut from none.
  CHECK(contains(dir.warnings("CSV", with_path("no.csv", R"(, "fold": [0, 4])" + drop),
                              with_path("no.csv", R"(, "fold": [0, 4], "missing": "mean")")),
                 "data.val.missing: is \"mean\", but \"drop_row\" for data.train"));
  CHECK(contains(dir.warnings("Digits", R"("split": "train", "size": 60, "range": [0, 0.5])",
                              R"("split": "train", "size": 50, "range": [0.5, 1])"),
                 "data.val.size: is 50, but 60 for data.train"));
  CHECK(contains(dir.warnings("CSV", with_path("no.csv", drop), with_path("no.csv", R"(, "missing": "mean")")), kSeen));
}

TEST_CASE("a copy of the training data is found in the held-out data, whatever its name") {
  const Splits dir;
  const std::string text = "a,b,c\n1,2,x\n2,3,y\n4,4,x\n";
  write(dir / "t.csv", text), write(dir / "copy.csv", text), write(dir / "longer.csv", text + "5,5,y\n");
  const std::string by = " (" + (dir / "copy.csv").string() + " is a copy of " + (dir / "t.csv").string() + ")";
  CHECK(contains(dir.warnings("CSV", with_path("t.csv"), with_path("copy.csv")),
                 "data.val: has samples of data.train" + by + ", which the model has seen"));
  CHECK(contains(dir.warnings("CSV", with_path("t.csv", R"(, "range": [0, 0.6])"), with_path("copy.csv", R"(, "range": [0.3, 1])")),
                 "data.val.range: shares the samples of [0.3, 0.6) with data.train" + by));
  CHECK(
      !contains(dir.warnings("CSV", with_path("t.csv", R"(, "range": [0, 0.6])"), with_path("copy.csv", R"(, "range": [0.6, 1])")),
                "data.train"));
  CHECK(!contains(dir.warnings("CSV", with_path("t.csv"), with_path("longer.csv")), "data.train"));

  const auto pictures = [&](const std::string& folder, const std::string& last) {
    for (const char* kind : {"cat", "dog"}) {
      fs::create_directories(dir / folder / kind);
      for (const char* name : {"1.png", "2.png"}) write(dir / folder / kind / name, joined(kind, name));
    }
    write(dir / (folder + "/dog/2.png"), last);
  };
  pictures("train", "abc"), pictures("val", "abc"), pictures("other", "xyz"), pictures("fewer", "abc");
  fs::remove(dir / "fewer/dog/1.png");
  const auto seen = [&](const std::string& val) {
    return contains(dir.warnings("ImageFolder", with_path("train"), with_path(val)), "/val is a copy of ");
  };
  CHECK(seen("val"));
  CHECK(!seen("other"));  // of the same names and sizes
  CHECK(!seen("fewer"));
  CHECK(!seen("none"));

  const auto batch = [](char fill) { return std::string(3073, fill); };
  write(dir / "a.bin", batch('\1')), write(dir / "b.bin", batch('\2')), write(dir / "c.bin", batch('\2'));
  CHECK(contains(dir.warnings("CIFAR10", R"("files": ["a.bin", "b.bin"])", R"("files": ["c.bin"])"),
                 "data.val.files: shares the samples of c.bin with data.train"));
  CHECK(dir.warnings("CIFAR10", R"("files": ["a.bin"])", R"("files": ["c.bin"])").empty());
}
