// SPDX-License-Identifier: Apache-2.0
// halfstep export: each way out of a run, and that an exported model proves itself. tests/interchange runs what it writes.
#include <doctest/doctest.h>

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "apps/export/preparation.h"
#include "apps/use/model_file.h"
#include "framework/data/formats/npy.h"
#include "framework/io/files/base64.h"
#include "framework/io/weights/safetensors.h"
#include "tests/apps/support.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

const char* const kTable = R"({"version": 1, "name": "trees", "output_dir": "trees", "seed": 1,
  "data": {"root": ".", "train": {"type": "CSV", "path": "trees.csv", "target": "kind", "standardize": true},
           "loader": {"batch_size": 4}},
  "model": {"type": "MLP", "hidden": [5]}, "loss": "CrossEntropyLoss", "optimizer": {"type": "Adam", "lr": 0.05},
  "train": {"epochs": 3}})";

// A run on a table, whose file is gone.
struct TableRun : TempDir {
  TableRun() {
    write(*this / "trees.csv",
          "height,width,kind\n1.5,10,oak\n2.5,11,elm\n1.4,9,oak\n2.6,12,elm\n1.6,10,oak\n2.4,13,elm\n1.3,8,oak\n2.7,12,elm\n");
    write(*this / "run.json", kTable);
    const Ran r = run(*this, "train run.json --quiet --threads 1");
    REQUIRE_MESSAGE(r.code == 0, r.err);
    fs::remove(*this / "trees.csv");
    write(*this / "new.csv", "width,height\n10,1.5\n12,2.6\n");
  }
  Ran operator()(const std::string& command) const { return run(*this, command); }
};

void check_ok(const Ran& r) { CHECK_MESSAGE(r.code == 0, r.err); }

// The file with one of its metadata changed, and with a digest that fits.
void set_metadata(const fs::path& file, const std::string& key, const std::string& value, bool with_digest = true) {
  TensorFile all = load_safetensors(file);
  all.metadata[key] = value;
  if (with_digest) all.metadata["halfstep.sha256"] = metadata_digest(all.metadata);
  save_safetensors(file, all.tensors, all.metadata);
}

}  // namespace

TEST_CASE("base64 is RFC 4648's, and other texts are refused") {
  const std::pair<const char*, const char*> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : vectors) {
    CHECK(to_base64(bytes) == text);
    CHECK(from_base64(text, "x") == bytes);
  }
  CHECK(from_base64(to_base64(std::string("\0\xff\x80", 3)), "x") == std::string("\0\xff\x80", 3));
  for (const char* text : {"Z", "Zg", "Zg=", "Zm9v!", "Zh==", "Zg==Zg=="}) CHECK_THROWS_AS(from_base64(text, "x"), IoError);
}

TEST_CASE("one file answers as the run does, in predict, eval, C++ and its proof") {
  const TableRun at;
  check_ok(at("export trees --to safetensors"));
  const Ran run_says = at("predict trees new.csv --json"), file_says = at("predict trees.safetensors new.csv --json");
  check_ok(file_says);
  CHECK(file_says.out == run_says.out);
  const Ran checked = at("predict trees.safetensors --check");
  check_ok(checked);
  CHECK(contains(checked.err, "3 golden samples: to the bit"));

  const TensorFile file = load_safetensors(at / "trees.safetensors");
  CHECK(file.metadata.at("format") == "pt");
  for (const char* key : {"halfstep", "halfstep.config", "halfstep.data", "halfstep.step", "halfstep.metrics", "halfstep.proof"})
    CHECK(file.metadata.contains(key));
  CHECK(file.tensors.contains("0.weight"));

  // An export of an export is the same model.
  check_ok(at("export trees.safetensors --to safetensors --out again.safetensors"));
  CHECK(at("predict again.safetensors new.csv --json").out == run_says.out);
}

TEST_CASE("an exported model that was changed is refused, with the first sample that differs") {
  const TableRun at;
  const auto exported = [&](const char* name) {
    check_ok(at(std::string("export trees --to safetensors --out ") + name));
    return at / name;
  };
  const auto refuses = [&](const char* name, const std::string& why) {
    const Ran r = at(std::string("predict ") + name + " new.csv --check");
    CAPTURE(r.err);
    CHECK(r.code == 3);
    CHECK(contains(r.err, why));
    CHECK(r.out.empty());
  };
  const fs::path weights = exported("w.safetensors");
  TensorFile all = load_safetensors(weights);
  all.tensors["0.weight"].data_ptr<float>()[0] += 0.5f;
  save_safetensors(weights, all.tensors, all.metadata);
  refuses("w.safetensors", "[check] w.safetensors: golden sample ");

  const fs::path config = exported("c.safetensors");
  std::string text = load_safetensors(config).metadata.at("halfstep.config");
  text.replace(text.find("\"ReLU\""), 6, "\"Tanh\"");
  set_metadata(config, "halfstep.config", text, false);
  refuses("c.safetensors", "its metadata are not those that halfstep export wrote");
  set_metadata(config, "halfstep.config", text);
  refuses("c.safetensors", "machine and build are the same: weights, config or data of the file were changed");

  const fs::path proof = exported("p.safetensors");
  set_metadata(proof, "halfstep.proof", "{}");
  refuses("p.safetensors", "golden samples");
  set_metadata(proof, "halfstep.proof", "no json");
  refuses("p.safetensors", "cannot be read");

  const fs::path cut = exported("cut.safetensors");
  fs::resize_file(cut, fs::file_size(cut) - 10);
  CHECK(at("predict cut.safetensors new.csv").code != 0);
  const fs::path newer = exported("newer.safetensors");
  set_metadata(newer, "halfstep.file", "2");
  refuses("newer.safetensors", "the file is of version 2");
  set_metadata(newer, "halfstep.file", "1");
  set_metadata(newer, "halfstep.data", "{");
  refuses("newer.safetensors", "halfstep.data in its metadata is no JSON");

  save_safetensors(at / "plain.safetensors", {{"0.weight", ones({2, 2})}});
  refuses("plain.safetensors", "holds weights alone");
  const Ran run_has_none = at("predict trees --check");
  CHECK(run_has_none.code == 2);
  CHECK(contains(run_has_none.err, "has no golden samples"));
}

TEST_CASE("a folder has a model card, and answers as the run does") {
  const TableRun at;
  check_ok(at("export trees --to dir --out card"));
  CHECK(at("predict card new.csv --json").out == at("predict trees new.csv --json").out);
  const std::string card = read(at / "card/README.md");
  for (const char* part :
       {"library_name: halfstep", "# trees", "columns `height`, `width`", "2 classes: elm, oak", "CSV, trees.csv"})
    CHECK_MESSAGE(contains(card, part), card);
  CHECK(fs::exists(at / "card/config.json"));
  CHECK(Json::parse(read(at / "card/data.json")).contains("form"));
}

TEST_CASE("weights of 16 bits halve the file, and its golden samples are its own") {
  const TableRun at;
  check_ok(at("export trees --to safetensors --dtype bfloat16 --out half.safetensors"));
  CHECK(load_safetensors(at / "half.safetensors").tensors.at("0.weight").dtype() == DType::bf16);
  const Ran r = at("predict half.safetensors new.csv --check");
  check_ok(r);
  CHECK(contains(r.err, "to the bit"));
}

TEST_CASE("code in PyTorch and C++ has the layers, the scaling and the class names") {
  const TableRun at;
  check_ok(at("export trees --to torch --out t"));
  const std::string python = read(at / "t/model.py");
  for (const char* part :
       {"class MLP(nn.Sequential)", "nn.Linear(in_features=2, out_features=5)", "nn.ReLU()", "CLASSES = [\"elm\",\"oak\"]",
        "This file is yours", "input 0: height", "answers: a number for each class", "x.double() - mean"})
    CHECK_MESSAGE(contains(python, part), python);
  CHECK(contains(at("predict t --check").err, "to the bit"));
  check_ok(at("export trees --to cpp --out c"));
  const std::string code = read(at / "c/main.cpp");
  for (const char* part :
       {"class Mlp : public Sequential", "Linear(2, 5)", "ReLU()", "load(*model, folder + \"/model.safetensors\")"})
    CHECK_MESSAGE(contains(code, part), code);
  CHECK(load_safetensors(at / "c/proof.safetensors").tensors.at("input").shape() == Shape{3, 2});
}

TEST_CASE("ONNX has the preparation inside, classes and proof in its metadata, and test data") {
  const TableRun at;
  check_ok(at("export trees --to onnx --test-data 2"));
  const std::string with = read(at / "trees.onnx");
  for (const char* part : {"Sub", "Div", "Gemm", "halfstep.proof", "[\"elm\",\"oak\"]"}) CHECK(contains(with, part));
  CHECK(fs::exists(at / "test_data_set_1/output_0.pb"));
  check_ok(at("export trees --to onnx --raw --probabilities --out raw.onnx"));
  const std::string raw = read(at / "raw.onnx");
  CHECK(!contains(raw, "Div"));
  CHECK(contains(raw, "Softmax"));
}

TEST_CASE("columns and targets of which float32 lacks the digits: float64 in every export, and a line for arrays in float32") {
  const TempDir at;
  std::string table = "counter,heat,meter\n";
  std::vector<double> inputs;
  for (int i = 0; i < 40; ++i) {
    const double counter = 300000000.0 + i, heat = 0.1 * (i * 7 % 11);
    table += joined(300000000 + i, ',', heat, ',', 5000000000 + i * 2, '\n');
    inputs.insert(inputs.end(), {counter, heat});
  }
  write(at / "m.csv", table);
  write(at / "m.json", R"({"version": 1, "name": "m", "output_dir": "m", "seed": 1,
    "data": {"root": ".", "train": {"type": "CSV", "path": "m.csv", "target": "meter", "task": "regression", "standardize": true,
      "standardize_target": true, "missing": "median"}, "loader": {"batch_size": 8}},
    "model": {"type": "MLP", "hidden": [5]}, "loss": "MSELoss", "optimizer": {"type": "Adam", "lr": 0.05},
    "train": {"epochs": 3}})");
  check_ok(run(at, "train m.json --quiet --threads 1"));

  const std::string column = "float32 does not have the digits of \"counter\" (mean 3e+08, deviation 11.";
  const Ran onnx = run(at, "export m --to onnx");
  check_ok(onnx);
  CHECK_MESSAGE(contains(onnx.err, "note: the input is float64, since " + column), onnx.err);
  CHECK(contains(onnx.err, "note: the output is float64"));
  CHECK(contains(onnx.out + onnx.err, "numpy.float64"));
  const Ran torch = run(at, "export m --to torch --out t"), cpp = run(at, "export m --to cpp --out c");
  CHECK_MESSAGE(contains(torch.err, "note: give inputs in float64, since " + column), torch.err);
  CHECK(contains(read(at / "t/model.py"), "raise TypeError(\"inputs must be float64"));
  CHECK(contains(read(at / "t/model.py"), "y = model(prepare(x)).double()"));
  CHECK(contains(read(at / "c/main.cpp"), "check<ValueError>(x.dtype() != DType::f32"));
  const TensorMap proof = load_safetensors(at / "t/proof.safetensors").tensors;
  CHECK(proof.at("input").dtype() == DType::f64);
  CHECK(proof.at("output").dtype() == DType::f64);

  const Tensor x = from_vector(inputs, {40, 2}, Device::cpu);
  write(at / "wide.npy", npy_bytes(x));
  write(at / "narrow.npy", npy_bytes(x.to(DType::f32)));
  const Ran wide = run(at, "predict m wide.npy"), narrow = run(at, "predict m narrow.npy");
  CHECK(!contains(wide.err, "float32"));
  CHECK_MESSAGE(contains(narrow.err, "narrow.npy: " + column), narrow.err);

  const TableRun usual;  // columns near 0 stay float32, and nothing is said
  const Ran small = usual("export trees --to onnx");
  CHECK(!contains(small.out + small.err, "float64"));
  CHECK(contains(small.out + small.err, "numpy.float32"));
}

TEST_CASE("NaN in a category's place is the missing value where that is one, else no category, in every export") {
  const TempDir at;
  const auto train_on = [&](const std::string& soils, const std::string& categories) {  // "|clay": each second cell is empty
    std::string rows = "size,soil,y\n";
    std::vector<std::string> names;
    std::istringstream in(soils);
    for (std::string soil; std::getline(in, soil, '|');) names.push_back(soil);
    for (size_t i = 0; i < 30; ++i) rows += joined(i, ',', names[i % 3], ',', i % 3 * 10 + i, '\n');
    write(at / "t.csv", rows);
    write(at / "t.json", R"({"name": "t", "output_dir": "r", "device": "cpu", "train": {"epochs": 2}, "optimizer": "Adam",
        "loss": "MSELoss", "model": {"type": "MLP", "hidden": [4], "out_features": "auto"},
        "data": {"root": ".", "missing": "mean", "standardize": true, "categories": ")" +
                             categories + R"(",
                 "train": {"type": "CSV", "path": "t.csv", "target": "y", "task": "regression"}, "loader": {"batch_size": 8}}})");
    check_ok(run(at, "train t.json --quiet --overwrite"));
  };
  const auto answers = [&](const Tensor& x) {
    const NoGrad off;
    const Predictor model(at / "r");
    return prepared_output(model, Preparation(model), x).to_vector<double>();
  };
  const auto of_code = [&](const std::string& to) {
    check_ok(run(at, "export r --to " + to + " --out " + to + " --replace"));
    return read(at / to / (to == "cpp" ? "main.cpp" : "model.py"));
  };
  train_on("clay|peat|sand", "index");
  const std::vector<double> bare = answers(tensor({2, 0, NAN, 0, 2, NAN}).reshape({3, 2}));
  CHECK(std::isfinite(bare[0]));
  CHECK(std::isfinite(bare[1]));  // a number, which the mean replaces
  CHECK(std::isnan(bare[2]));
  CHECK(contains(of_code("torch"), R"(, float("nan")])"));
  CHECK(contains(of_code("cpp"), ", NAN}"));
  check_ok(run(at, "export r --to onnx"));

  train_on("clay|peat|sand", "one_hot");
  CHECK(std::isnan(answers(tensor({2, NAN, NAN, NAN}).reshape({1, 4}))[0]));

  train_on("|clay|peat", "one_hot");
  const std::vector<double> row = answers(tensor({2, NAN, NAN, NAN, 2, 1, 0, 0, 2, 0, 0, 0}).reshape({3, 4}));
  CHECK(row[0] == row[1]);
  CHECK(row[0] != row[2]);
  CHECK(!contains(of_code("torch"), "float(\"nan\")"));

  train_on("|clay|peat", "index");
  const std::vector<double> number = answers(tensor({2, NAN, 2, 0, 2, 1}).reshape({3, 2}));
  CHECK(number[0] == number[1]);
  CHECK(number[0] != number[2]);
  CHECK(contains(of_code("torch"), "or NaN for a missing value"));
}

TEST_CASE("layers that share a tensor share it in the code, and numbers go through the loss's last step") {
  const TempDir at;
  std::string text;
  for (int i = 0; i < 40; ++i) text += "the cat sat on the mat\n";
  write(at / "t.txt", text);
  write(at / "tied.json", R"({"version": 1, "name": "tied", "output_dir": "tied", "data": {"root": ".",
    "train": {"type": "Text", "path": "t.txt", "seq_len": 8}, "loader": {"batch_size": 16}},
    "model": {"type": "Sequential", "tie": ["emb", "head"], "layers": [
    {"type": "Embedding", "name": "emb", "num_embeddings": "auto", "embedding_dim": 8},
    {"type": "TransformerEncoder", "nhead": 2, "num_layers": 1, "dim_feedforward": 16, "activation": "gelu_tanh"},
    {"type": "Linear", "name": "head", "out_features": "auto", "bias": false}]},
    "loss": "CrossEntropyLoss", "optimizer": "Adam", "amp": true, "train": {"epochs": 1}})");
  check_ok(run(at, "train tied.json --quiet"));
  check_ok(run(at, "export tied --to torch --out t"));
  check_ok(run(at, "export tied --to cpp --out c"));
  const std::string python = read(at / "t/model.py"), code = read(at / "c/main.cpp");
  CHECK(contains(python, R"(TIED = {"head.weight":"emb.weight"})"));
  CHECK(contains(python, "activation=gelu_tanh"));
  CHECK(contains(code, R"(tensors.emplace("head.weight", tensors.at("emb.weight"));)"));
  const Ran checked = run(at, "predict t --check");  // in mixed precision, as the run computes
  CHECK(contains(checked.err, "to the bit"));
  CHECK(run(at, "predict t --check --no-amp").code == 2);

  write(at / "counts.json", R"({"version": 1, "name": "counts", "output_dir": "counts", "data": {
    "train": {"type": "Random", "num_batches": 3, "input_shape": [4], "target_shape": [1]}, "loader": {"batch_size": 8}},
    "model": {"type": "Linear", "out_features": "auto"}, "loss": "PoissonNLLLoss", "optimizer": "SGD", "train": {"epochs": 1}})");
  check_ok(run(at, "train counts.json --quiet"));
  check_ok(run(at, "export counts --to onnx"));
  CHECK(run(at, "generate counts").code == 2);  // the other command is right
  CHECK(run(at, "predict tied x").code == 2);
  CHECK(contains(read(at / "counts.onnx"), "Exp"));
  check_ok(run(at, "export counts --to torch --out ct"));
  CHECK(contains(read(at / "ct/model.py"), "model(prepare(x)).exp()"));
}

TEST_CASE("a layer's name that PyTorch uses itself is refused") {
  const TempDir at;
  write(at / "run.json", R"({"version": 1, "name": "n", "output_dir": "n", "data": {
    "train": {"type": "Random", "num_batches": 1, "input_shape": [4], "target_shape": [1]}, "loader": {"batch_size": 8}},
    "model": {"type": "Sequential", "layers": [{"type": "Linear", "name": "type", "out_features": "auto"}]},
    "loss": "MSELoss", "optimizer": "SGD", "train": {"epochs": 1}})");
  check_ok(run(at, "train run.json --quiet"));
  const Ran r = run(at, "export n --to torch");
  CHECK(r.code == 2);
  CHECK(contains(r.err, "a layer is called \"type\""));
  check_ok(run(at, "export n --to onnx"));
}

TEST_CASE("transforms that change sizes stay outside: the exported model takes what they give") {
  const TempDir at;
  write(at / "run.json", R"({"version": 1, "name": "small", "output_dir": "small", "data": {
    "train": {"type": "Digits", "size": 64,
              "transforms": [{"type": "Resize", "size": 14}, {"type": "Normalize", "mean": 0.1, "std": 0.3}]},
    "loader": {"batch_size": 16}},
    "model": {"type": "Sequential", "layers": ["Flatten", {"type": "Linear", "out_features": "auto"}]},
    "loss": "CrossEntropyLoss", "optimizer": "SGD", "train": {"epochs": 1}})");
  check_ok(run(at, "train run.json --quiet"));
  const Ran onnx = run(at, "export small --to onnx --test-data 1"), raw = run(at, "export small --to onnx --raw --out raw.onnx");
  check_ok(onnx);
  check_ok(raw);
  CHECK(contains(onnx.err, "note: Resize {"));
  CHECK(contains(raw.err, "note: Normalize {"));
  const std::string file = read(at / "small.onnx");
  CHECK(contains(file, "Div"));
  CHECK(contains(file, R"("outside":[{)"));
  check_ok(run(at, "export small --to torch --out t"));
  CHECK(contains(read(at / "t/model.py"), "Done before: Resize {"));
  CHECK(load_safetensors(at / "t/proof.safetensors").tensors.at("input").shape() == Shape{3, 1, 14, 14});
  check_ok(run(at, "export small --to safetensors"));  // all of it is in there
  CHECK(contains(run(at, "predict small.safetensors --check").err, "to the bit"));
}

TEST_CASE("options that do not fit, and what is there already, are refused before anything is written") {
  const TableRun at;
  const auto refuses = [&](const std::string& options, int code, const std::string& why) {
    const Ran r = at("export " + options);
    CAPTURE(r.err);
    CHECK(r.code == code);
    CHECK(contains(r.err, why));
  };
  refuses("trees --to torch --raw", 2, "are for --to onnx, got --to torch");
  refuses("trees --to dir --dtype float16", 2, "--dtype is for --to onnx and --to safetensors");
  refuses("trees --to onnx --dtype bfloat16", 2, "ONNX runtimes do not compute in bfloat16");
  refuses("trees --to tflite", 2, "--to: tflite not in");
  refuses("nothing --to onnx", 3, "no such file or directory");
  write(at / "there.onnx", "mine");
  refuses("trees --to onnx --out there.onnx", 2, "there.onnx exists");
  CHECK(read(at / "there.onnx") == "mine");
  check_ok(at("export trees --to onnx --out there.onnx --replace"));
  refuses("trees --to safetensors --out trees --replace", 2, "--out must end in .safetensors");
  refuses("trees --to onnx --out trees --replace", 2, "is a folder");
  refuses("trees --to dir --out trees --replace", 2, "is a run or a checkpoint");
  check_ok(at("export trees --to onnx --out other.onnx --test-data 1"));
  refuses("trees --to onnx --out third.onnx --test-data 1", 2, "test_data_set_0 exists");
  fs::create_symlink("nowhere", at / "link.onnx");
  refuses("trees --to onnx --out link.onnx --replace", 2, "a link or device");
  const Ran not_a_model = at("predict there.onnx new.csv");
  CHECK(not_a_model.code == 3);
  CHECK(contains(not_a_model.err, "a model in ONNX, which halfstep export writes and nothing reads"));

  write(at / "bag.json", R"({"version": 1, "name": "bag", "output_dir": "bag", "data": {
    "train": {"type": "CopyTask", "size": 32, "length": 2, "wait": 2}, "loader": {"batch_size": 8}},
    "model": {"type": "Sequential", "layers": [{"type": "Embedding", "num_embeddings": "auto", "embedding_dim": 4, "max_norm": 1.0},
    {"type": "Linear", "out_features": "auto"}]}, "loss": "CrossEntropyLoss", "optimizer": "SGD", "train": {"epochs": 1}})");
  check_ok(at("train bag.json --quiet"));
  refuses("bag --to onnx", 2, "layer");
  CHECK(!fs::exists(at / "bag.onnx"));
}
