// SPDX-License-Identifier: Apache-2.0
// Arrays from `halfstep init` to `predict`: what bytes mean, and inputs in other units than the training data.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "framework/io/weights/safetensors.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"
#include "tests/data/array_files.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

// Pictures of bytes, dark or bright.
Tensor pictures(int64_t n) {
  Tensor out = randint(0, 90, {n, 12, 12});
  for (int64_t i = 1; i < n; i += 2) out.select(0, i).add_(150);
  return out.to(DType::u8);
}
Tensor kinds(int64_t n) { return remainder(arange(0, n), 2).to(DType::i64); }

}  // namespace

TEST_CASE("arrays: pictures of bytes, as a folder of pictures has them") {
  const TempDir dir;
  manual_seed(1);
  save_safetensors(dir / "p.safetensors", {{"x", pictures(80)}, {"y", one_hot(kinds(80), 2)}});
  const Ran init = run(dir, "init p.safetensors --out c.json");
  REQUIRE_MESSAGE(init.code == 0, init.err);
  CHECK(contains(read(dir / "c.json"), R"("bytes": "pixels")"));
  CHECK(contains(run(dir, "validate c.json").out,
                 "data.train: inputs are bytes, read as pixels in [0, 1]; targets [80, 2] are one-hot"));
  REQUIRE(run(dir, "train c.json --quiet --set train.epochs=3").code == 0);
  const auto predict = [&](const Tensor& x) {
    save_safetensors(dir / "new.safetensors", {{"x", x}});
    return run(dir, "predict runs/p new.safetensors");
  };
  const Tensor bytes = pictures(6);
  const Ran as_bytes = predict(bytes), as_pixels = predict(bytes.to(DType::f32) / 255.0);
  CHECK(as_bytes.code == 0);
  CHECK(as_bytes.out == as_pixels.out);
  CHECK_MESSAGE(contains(as_bytes.err, "new.safetensors: bytes are read as pixels, divided by 255"), as_bytes.err);
  const Ran as_floats = predict(bytes.to(DType::f32)), normalized = predict((bytes.to(DType::f32) - 128.0) / 64.0);
  CHECK(as_floats.code == 3);
  CHECK_MESSAGE(contains(as_floats.err, "the model takes pixels in [0, 1], got float32 from"), as_floats.err);
  CHECK_MESSAGE(contains(normalized.err, "before any Normalize"), normalized.err);
  const Tensor dark = remainder(arange(0, 144), 3).reshape({1, 12, 12});  // no whole number above 1 is a pixel in [0, 1]
  const Ran whole = predict(dark.to(DType::i32)), deep = predict(dark.to(DType::i64) * 20000);
  CHECK(whole.code == 3);
  CHECK_MESSAGE(contains(whole.err, "got int32 from 0 to 2"), whole.err);
  CHECK_MESSAGE(contains(deep.err, "divide them by the value of white, such as 65535;"), deep.err);
  CHECK(predict(dark.to(DType::f32)).code == 0);
  CHECK(predict((dark > 1).to(DType::i64)).code == 0);
}

TEST_CASE("transforms for pixels in [0, 1] warn of other numbers, with a remedy that helps") {
  const TempDir dir;
  manual_seed(1);
  const Tensor gray = pictures(80).unsqueeze(1), fine = gray.to(DType::f32) * 257.0, unit = gray.to(DType::f32) / 255.0;
  save_safetensors(dir / "gray.safetensors", {{"x", gray}, {"y", kinds(80)}});
  save_safetensors(dir / "fine.safetensors", {{"x", fine}, {"y", kinds(80)}});
  save_safetensors(dir / "unit.safetensors", {{"x", unit}, {"y", kinds(80)}});
  std::string table = "kind,a,b\n";
  for (int i = 0; i < 40; ++i) table += joined(i % 2, ',', i * 5 % 256, ',', 255 - i, '\n');
  write(dir / "t.csv", table);
  const auto warning = [&](const std::string& data, const std::string& transforms) {
    write(dir / "c.json", R"({"output_dir": "r", "model": {"type": "MLP", "hidden": [4]}, "loss": "CrossEntropyLoss",
      "optimizer": {"type": "SGD", "lr": 0.01}, "train": {"epochs": 1},
      "data": {"root": ".", "train": {)" +
                              data + R"(, "transforms": [)" + transforms + R"(]}, "loader": {"batch_size": 8}}})");
    const Ran r = run(dir, "validate c.json");
    CHECK(r.code == 0);
    const size_t at = r.err.find("data.train: transforms: ");
    return at == std::string::npos ? "" : r.err.substr(at, r.err.find('\n', at) - at);
  };
  const std::string arrays = R"("type": "Safetensors", "path": ")", mnist = R"({"type": "Normalize", "preset": "mnist"})";
  const std::string jitter = R"({"type": "ColorJitter", "contrast": 0.3})", digits = R"("type": "Digits", "size": 64)";
  const std::string own = R"({"type": "Normalize", "mean": 0.45, "std": 0.22})", data = R"({"type": "Normalize", "from": "data"})";
  const std::string numbers = arrays + R"(gray.safetensors", "bytes": "numbers")", deep = arrays + R"(fine.safetensors")";
  const std::string plain = arrays + R"(unit.safetensors")", bytes = arrays + R"(gray.safetensors")";
  const std::string csv = R"("type": "CSV", "path": "t.csv", "target": "kind", "task": "classification")";

  const std::string white = R"({"type": "Normalize", "mean": 0, "std": 255})",
                    deep_white = R"({"type": "Normalize", "mean": 0, "std": 65535})";
  CHECK(contains(warning(numbers, mnist), "preset \"mnist\" is for pixels in [0, 1], but the inputs go from "));
  CHECK(contains(warning(numbers, mnist), "put " + white + " before it"));
  CHECK(warning(numbers, white + ", " + mnist).empty());
  CHECK(contains(warning(deep, jitter), "ColorJitter is for pixels in [0, 1]"));
  CHECK(contains(warning(deep, jitter), "put " + deep_white + " before it"));
  CHECK(warning(deep, deep_white + ", " + jitter).empty());
  CHECK(contains(warning(numbers, own), "mean and std of Normalize are for pixels"));
  CHECK(contains(warning(csv, mnist), "but the inputs go from "));
  CHECK(contains(warning(csv + R"(, "standardize": true)", mnist), "leave it out"));
  // Pictures and bytes are in [0, 1], until a Normalize.
  for (const std::string& pixels : {digits, bytes, plain}) {
    CAPTURE(pixels);
    CHECK(warning(pixels, jitter + ", " + mnist).empty());
    CHECK(warning(pixels, own).empty());
    CHECK(contains(warning(pixels, mnist + ", " + jitter), "there: put it before Normalize"));
    CHECK(contains(warning(pixels, data + ", " + mnist), "there: leave one Normalize out"));
  }
  CHECK(warning(numbers, data).empty());
  CHECK(warning(numbers, R"({"type": "Normalize", "mean": 128, "std": 64})").empty());
  REQUIRE(!warning(numbers, mnist).empty());
  CHECK(contains(run(dir, "train c.json").err, "data.train: transforms: preset"));
  // The mean and deviation of rare counts are shares, too.
  Tensor rare = zeros({80, 1, 12, 12});
  for (int64_t i = 0; i < 80; ++i) rare.select(0, i).select(1, i % 12).fill_(double(i % 3 == 0 ? 5 : 0));
  save_safetensors(dir / "rare.safetensors", {{"x", rare}, {"y", kinds(80)}});
  CHECK(warning(arrays + R"(rare.safetensors")", R"({"type": "Normalize", "mean": 0.14, "std": 0.8})").empty());
}

TEST_CASE("arrays: bytes of 0 and 1 are no pixels, from init to predict") {
  const TempDir dir;
  manual_seed(1);
  Tensor masks = randint(0, 2, {80, 9, 9}).to(DType::u8);
  for (int64_t i = 0; i < 80; i += 2) masks.select(0, i).fill_(1);
  save_safetensors(dir / "m.safetensors", {{"x", masks}, {"y", kinds(80)}});
  // Held-out bytes are what those of the training data are.
  save_safetensors(dir / "held.safetensors", {{"x", (masks * 200).to(DType::u8)}, {"y", kinds(80)}});
  const Ran init = run(dir, "init m.safetensors --out c.json");
  REQUIRE_MESSAGE(init.code == 0, init.err);
  CHECK(contains(init.err, "x has bytes of 0 and 1, which are no pixels, and stay as they are"));
  CHECK(contains(read(dir / "c.json"), R"("bytes": "numbers")"));
  REQUIRE(run(dir, "train c.json --quiet --set train.epochs=1").code == 0);
  const auto predict = [&](const Tensor& x, const std::string& model) {
    save_safetensors(dir / "new.safetensors", {{"x", x}});
    return run(dir, "predict runs/" + model + " new.safetensors");
  };
  const Tensor few = masks.narrow(0, 0, 6).contiguous();
  const Ran as_bytes = predict(few, "m");
  CHECK(as_bytes.code == 0);
  for (const DType dtype : {DType::f32, DType::boolean}) CHECK(as_bytes.out == predict(few.to(dtype), "m").out);
  CHECK(contains(predict((few * 255).to(DType::u8), "m").err, "the training data had numbers from 0 to 1, got uint8 from 0 to"));
  const Ran automatic = run(dir, "inspect data c.json --set data.bytes=auto --set data.val.path=held.safetensors --json");
  CHECK_MESSAGE(automatic.code == 0, automatic.err);
  CHECK_MESSAGE(contains(automatic.out, "200"), automatic.out);
  // And where the training data had pixels.
  save_safetensors(dir / "p.safetensors", {{"x", pictures(80)}, {"y", kinds(80)}});
  REQUIRE(run(dir, "init p.safetensors --out p.json").code == 0);
  REQUIRE(run(dir, "train p.json --quiet --set train.epochs=1").code == 0);
  const Tensor white = (pictures(6) >= 128).to(DType::u8);
  const Ran bits = predict(white, "p");
  CHECK_MESSAGE(contains(bits.err, "bytes of 0 and 1 are read as they are, not divided by 255"), bits.err);
  CHECK(bits.out == predict(white.to(DType::f32), "p").out);
}

TEST_CASE("arrays: numbers far from those of the training data") {
  const TempDir dir;
  manual_seed(1);
  const auto trained_on = [&](const Tensor& x) {
    fs::remove_all(dir / "runs");
    save_safetensors(dir / "d.safetensors", {{"x", x}, {"y", kinds(x.size(0))}});
    REQUIRE(run(dir, "init d.safetensors --out d.json --replace").code == 0);
    const Ran trained = run(dir, "train d.json --quiet --set train.epochs=1");
    REQUIRE_MESSAGE(trained.code == 0, trained.err);
  };
  const auto predict = [&](const Tensor& x) {
    save_safetensors(dir / "new.safetensors", {{"x", x}});
    return run(dir, "predict runs/d new.safetensors");
  };
  const Tensor flat = pictures(40).reshape({40, 144});
  trained_on(flat);  // numbers from 0 to 239
  CHECK(predict(flat.narrow(0, 0, 3)).code == 0);
  const Ran unit = predict(flat.narrow(0, 0, 3).to(DType::f32) / 255.0);
  CHECK(unit.code == 3);
  CHECK_MESSAGE(contains(unit.err, "the training data had whole numbers from 0 to"), unit.err);
  CHECK_MESSAGE(
      contains(predict(flat.narrow(0, 0, 3).to(DType::f32) * 1e4).err,
               "new.safetensors: 3 of 3 samples, the first is [0], have numbers far outside of the training data's, which go "
               "from 0 to"),
      predict(flat.narrow(0, 0, 3).to(DType::f32) * 1e4).err);
  trained_on(randn({40, 5}));
  Tensor some = randn({6, 5});
  CHECK(!contains(predict(some * 5.0).err, "far outside"));
  some.select(0, 4).mul_(1e5);
  const Ran far = predict(some);
  CHECK(far.code == 0);
  CHECK_MESSAGE(contains(far.err, "1 of 6 samples, the first is [4], have numbers far outside"), far.err);
  trained_on(flat.to(DType::f32) / 255.0);
  CHECK(predict(flat.narrow(0, 0, 3).to(DType::f32) / 255.0).code == 0);
  const Ran large = predict(flat.narrow(0, 0, 3));
  CHECK(large.code == 3);
  CHECK_MESSAGE(contains(large.err, "got uint8 from 0 to"), large.err);
  Tensor holes = (flat.narrow(0, 0, 3).to(DType::f32) / 255.0).contiguous();
  holes.data_ptr<float>()[144 + 7] = INFINITY;
  CHECK(contains(predict(holes).err, "1 of 3 samples hold NaN or infinity, the first is [1]"));
  holes.data_ptr<float>()[144 + 7] = NAN;
  const Ran warned = predict(holes);
  CHECK(warned.code == 0);
  CHECK_MESSAGE(contains(warned.err, "1 of 3 samples hold NaN or infinity, the first is [1]"), warned.err);
}

TEST_CASE("arrays: predict compares its answers with targets in the file") {
  const TempDir dir;
  manual_seed(2);
  const Tensor x = randn({60, 4}), classes = kinds(60), sums = x.sum({1});
  const auto trained_on = [&](const Tensor& y, const std::string& more = "") {
    fs::remove_all(dir / "runs");
    save_safetensors(dir / "d.safetensors", {{"images", x}, {"labels", y}});
    REQUIRE(run(dir, "init d.safetensors --out d.json --replace").code == 0);
    const Ran trained = run(dir, "train d.json --quiet --set train.epochs=1" + more);
    REQUIRE_MESSAGE(trained.code == 0, trained.err);
  };
  const auto predict = [&](const TensorMap& arrays, const std::string& more = "") {
    save_safetensors(dir / "new.safetensors", arrays);
    return run(dir, "predict runs/d new.safetensors" + more);
  };
  trained_on(classes);
  const Ran named = predict({{"images", x}, {"labels", classes}});
  CHECK_MESSAGE(contains(named.err, "60 with a known answer: accuracy "), named.err);
  for (const Tensor& y : {classes, classes.unsqueeze(1), one_hot(classes, 2), classes.to(DType::f32), classes.to(DType::boolean)}) {
    const Ran same = predict({{"x", x}, {"y", y}});
    CHECK_MESSAGE(same.err == named.err, same.err);
    CHECK(same.out == named.out);
  }
  Tensor other = classes.contiguous();
  other.data_ptr<int64_t>()[7] = 5;
  const Ran unknown = predict({{"x", x}, {"y", other}});
  CHECK(unknown.code == 0);
  CHECK_MESSAGE(contains(unknown.err, "1 answer is unknown and left out of the metrics, the first is [7]; the classes are 0 to 1"),
                unknown.err);
  CHECK_MESSAGE(contains(unknown.err, "59 with a known answer: accuracy "), unknown.err);
  CHECK(contains(predict({{"x", x}, {"y", rand({60, 7})}}).err, "the targets [60, 7] are not compared with the answers"));
  CHECK(contains(predict({{"x", x}, {"y", classes.narrow(0, 0, 9)}}).err, "there are 60 samples"));
  CHECK(!contains(predict({{"x", x}}).err, "known answer"));
  const Ran wrong = predict({{"x", x}, {"y", classes}}, " --wrong");
  CHECK(wrong.code == 0);
  // Numbers, one or several of a sample.
  trained_on(sums);
  CHECK_MESSAGE(contains(predict({{"x", x}, {"y", sums}}).err, "60 with a known answer: rmse "), "");
  trained_on(x * 2.0);
  CHECK_MESSAGE(contains(predict({{"x", x}, {"y", x * 2.0}}).err, "60 with a known answer: rmse "), "");
  const std::string zeros_of_numpy = halfstep::testing::npy("<f4", "(1, 4)", std::string(16, '\0'));
  write(dir / "new.npz", halfstep::testing::zip({{"images.npy", zeros_of_numpy}, {"labels.npy", zeros_of_numpy}}, true));
  CHECK_MESSAGE(contains(run(dir, "predict runs/d new.npz").err, "1 with a known answer: rmse "),
                run(dir, "predict runs/d new.npz").err);
}

TEST_CASE("arrays: channels that are last are guessed by init, named, and normalised each for itself") {
  const TempDir dir;
  manual_seed(3);
  Tensor x = rand({60, 8, 9, 3});
  x.select(3, 1).mul_(100), x.select(3, 2).add_(40);
  save_safetensors(dir / "d.safetensors", {{"x", x}, {"y", kinds(60)}});
  const Ran init = run(dir, "init d.safetensors --out d.json");
  REQUIRE_MESSAGE(init.code == 0, init.err);
  CHECK_MESSAGE(contains(init.err, "x [60, 8, 9, 3] seems to have its channels last, and is read as [N, C, H, W]; if not: "),
                init.err);
  CHECK(contains(init.err, "input [3, 8, 9]"));
  const std::string config = read(dir / "d.json");
  CHECK((contains(config, R"("channels_last": true)") && contains(config, R"("from": "data")") && !contains(config, "Permute")));
  REQUIRE(run(dir, "train d.json --quiet --set train.epochs=1").code == 0);
  const auto predict = [&](const Tensor& inputs) {
    save_safetensors(dir / "new.safetensors", {{"x", inputs}});
    return run(dir, "predict runs/d new.safetensors");
  };
  const Ran last = predict(x.narrow(0, 0, 5).contiguous()), first = predict(x.narrow(0, 0, 5).permute({0, 3, 1, 2}).contiguous());
  CHECK(last.code == 0);
  CHECK((last.out == first.out && std::count(last.out.begin(), last.out.end(), '\n') == 5));
  CHECK(contains(predict(rand({2, 9, 8, 3})).err, "of shape [3, 8, 9], or with their channels last, got [2, 9, 8, 3]"));
  const Ran one = predict(x.select(0, 3).contiguous());
  CHECK_MESSAGE(
      one.out.substr(one.out.find(": ")) == last.out.substr(last.out.find("[3]: ") + 3, one.out.size() - one.out.find(": ")),
      one.out, last.out);
  // By hand, without the key.
  const Ran plain =
      run(dir, R"(validate d.json --set data.channels_last=false --set 'model={"type": "MLP", "hidden": [7], "out_features": 2}')");
  CHECK_MESSAGE(contains(plain.out + plain.err, "inputs [60, 8, 9, 3] seem to have their channels last: "), plain.out, plain.err);
  // Series with a feature in each column.
  save_safetensors(dir / "s.safetensors", {{"x", rand({60, 30, 4})}, {"y", kinds(60)}});
  const Ran series = run(dir, "init s.safetensors");
  CHECK_MESSAGE(contains(series.err, "x [60, 30, 4] seems to have its channels last, and is read as [N, C, T]"), series.err);
  CHECK(contains(series.err, "input [4, 30]"));
}

TEST_CASE("arrays: labels that the loss ignores are said and left out, from validate to the report") {
  for (const int ignore : {-1, 9}) {
    const TempDir dir;
    manual_seed(4);
    const Tensor x = rand({80, 5});
    Tensor y = x.sum(1).gt(2.5).to(DType::i64).contiguous();
    for (int64_t i = 0; i < 80; i += 8) y.data_ptr<int64_t>()[i] = ignore;
    save_safetensors(dir / "d.safetensors", {{"x", x}, {"y", y}});
    const std::string number = std::to_string(ignore);
    const auto config = [&](const std::string& loss, const std::string& more = "") {
      write(dir / "c.json", R"({"name": "d", "train": {"epochs": 3}, "model": {"type": "MLP", "hidden": [8], "out_features": 2},
          "optimizer": {"type": "Adam", "lr": 0.02}, "metrics": ["confusion_matrix", "auroc"], "data": {"root": ".",
          "train": {"type": "Safetensors", "path": "d.safetensors", "range": [0, 0.5]},
          "val": {"type": "Safetensors", "path": "d.safetensors", "range": [0.5, 1]}, "loader": {"batch_size": 16)" +
                                more + R"(}}, "loss": {)" + loss + "}}");
    };
    config(R"("type": "CrossEntropyLoss")");
    const Ran refused = run(dir, "validate c.json");
    CHECK_MESSAGE(refused.code != 0, refused.out);
    if (ignore < 0)
      CHECK_MESSAGE(contains(refused.out + refused.err, "labels must be in 0..1, or -100, which is ignored, but label 0 is -1"),
                    refused.out, refused.err);
    const std::string line = "10 of 80 labels are " + number + ", which loss and metrics leave out";
    for (const char* type : {"NLLLoss", "CrossEntropyLoss"}) {
      config(std::string(R"("type": ")") + type + R"(", "weight": "balanced", "ignore_index": )" + number,
             R"(, "sampler": {"type": "weighted", "weights": "balanced"})");
      const Ran valid = run(dir, "validate c.json");
      CHECK_MESSAGE(contains(valid.out, "data.train: " + line), valid.out, valid.err);
      const Ran trained = run(dir, "train c.json --overwrite");
      REQUIRE_MESSAGE(trained.code == 0, trained.err);
      const std::string lines = trained.out + trained.err;  // of data.train and of data.val
      CHECK_MESSAGE(lines.find(line) != lines.rfind(line), lines);
    }
    const Ran eval = run(dir, "eval runs/d"), json = run(dir, "eval runs/d --json");
    const auto ignored = Json::parse(json.out)["ignored_labels"].get<int>();
    CHECK(Json::parse(json.out)["labels"] == 40);
    CHECK((ignored > 0 && ignored < 10));
    const std::string said = "40 samples, " + std::to_string(ignored) + " of 40 labels left out (loss.ignore_index): loss ";
    CHECK_MESSAGE(contains(eval.out, said), eval.out);
    const Ran predict = run(dir, "predict runs/d d.safetensors");
    CHECK_MESSAGE(contains(predict.err, "10 of 80 answers are " + number + ", which metrics leave out"), predict.err);
    CHECK(!contains(predict.err, "unknown"));
    CHECK_MESSAGE(contains(predict.err, "70 with a known answer: accuracy "), predict.err);
    const Ran report = run(dir, "report runs/d");
    CHECK_MESSAGE(report.code == 0, report.err);
  }
}

TEST_CASE("arrays: NaN and numbers that are no category of the training data's texts are refused") {
  const TempDir dir;
  const auto trained_on = [&](const std::string& soils, const std::string& categories) {
    std::string rows = "size,soil,y\n";  // soils: "|clay|peat" has an empty cell in the first of each three rows
    std::vector<std::string> names;
    std::istringstream in(soils);
    for (std::string soil; std::getline(in, soil, '|');) names.push_back(soil);
    for (size_t i = 0; i < 30; ++i) rows += joined(i, ",", names[i % 3], ",", i < 15 ? "low" : "high", "\n");
    write(dir / "t.csv", rows);
    write(dir / "t.json", R"({"name": "t", "output_dir": "r", "device": "cpu", "train": {"epochs": 1}, "optimizer": "SGD",
        "loss": "CrossEntropyLoss", "model": {"type": "MLP", "hidden": [4], "out_features": "auto"},
        "data": {"root": ".", "missing": "median", "categories": ")" +
                              categories + R"(",
                 "train": {"type": "CSV", "path": "t.csv", "target": "y"}, "loader": {"batch_size": 8}}})");
    const Ran trained = run(dir, "train t.json --quiet --overwrite");
    REQUIRE_MESSAGE(trained.code == 0, trained.err);
  };
  const auto predict = [&](const std::vector<float>& numbers, int64_t samples) {
    save_safetensors(dir / "new.safetensors", {{"x", from_vector(numbers, {samples, int64_t(numbers.size()) / samples})}});
    return run(dir, "predict r new.safetensors");
  };
  const auto refused = [&](const std::vector<float>& numbers, int64_t samples, const std::string& text) {
    const Ran r = predict(numbers, samples);
    CAPTURE(text);
    CHECK(r.code == 3);
    CHECK_MESSAGE(contains(r.err, text), r.err);
  };
  trained_on("clay|peat|sand", "index");
  CHECK(predict({1, 0, 2, 1, 3, 2}, 3).code == 0);
  const Ran filled = predict({1, 0, NAN, 1, 3, 2}, 3);  // a number, which the median replaces
  CHECK(filled.code == 0);
  CHECK_MESSAGE(contains(filled.err, "1 number is NaN, filled in as missing values"), filled.err);
  const std::string number = ": soil must be the number of a category from 0 to 2, got ";
  refused({1, 0, 2, NAN, 3, 2}, 3, "sample 1" + number + "NaN");
  refused({1, 0, 2, 1, 3, 3}, 3, "sample 2" + number + "3");
  refused({1, 0.5, 2, 1}, 2, "sample 0" + number + "0.5");
  refused({1, 0, 2, -1}, 2, "sample 1" + number + "-1");

  trained_on("|clay|peat", "index");  // a missing value is the first category
  const Ran missing = predict({1, NAN, 2, 1}, 2);
  CHECK(missing.code == 0);
  CHECK(missing.out == predict({1, 0, 2, 1}, 2).out);
  refused({1, NAN, 2, 3}, 2, "sample 1" + number + "3");

  trained_on("clay|peat|sand", "one_hot");
  CHECK(predict({1, 0, 1, 0, 2, 0, 0, 1}, 2).code == 0);
  const std::string inputs = ": the 3 inputs of soil must be 0, but 1 for its category, got ";
  refused({1, 0, NAN, 0}, 1, "sample 0" + inputs + "NaN");
  refused({1, 0, 1, 0, 2, NAN, NAN, NAN}, 2, "sample 1" + inputs + "NaN");
  refused({1, 0.25, 0.75, 0}, 1, "sample 0" + inputs + "0.25");
  refused({0, 1, 0, 1234.5}, 1, "sample 0" + inputs + "1234.5");  // columns in another order
  refused({1, 0, 1, 1}, 1, "sample 0" + inputs + "2 times 1");
  refused({1, 0, 0, -1}, 1, "sample 0" + inputs + "-1");
  refused({1, 0, 0, 0}, 1, "sample 0" + inputs + "0 for all");  // "unknown" is "refuse"

  trained_on("clay|peat|sand", R"(one_hot", "unknown": "missing)");  // of a new soil all inputs are 0, and no row lacks its soil
  write(dir / "new.csv", "size,soil\n1,loam\n");
  CHECK(predict({1, 0, 0, 0}, 1).out == predict({1, -0.0f, 0, 0}, 1).out);
  const auto answer = [](const Ran& r) { return r.out.substr(r.out.find(": ")); };
  CHECK(answer(predict({1, 0, 0, 0}, 1)) == answer(run(dir, "predict r new.csv")));

  trained_on("|clay|peat", "one_hot");  // a missing value is the first category
  write(dir / "new.csv", "size,soil\n1,\n");
  CHECK(answer(predict({1, 1, 0, 0}, 1)) == answer(run(dir, "predict r new.csv")));
  CHECK(predict({1, NAN, NAN, NAN}, 1).out == predict({1, 1, 0, 0}, 1).out);
  refused({1, NAN, 1, 0}, 1, "sample 0" + inputs + "NaN");
  refused({1, 0, 0, 0}, 1, "sample 0" + inputs + "0 for all");
}
