// SPDX-License-Identifier: Apache-2.0
// `weights` and `tie` of a config: files that do not fit, each with the line that makes it fit.
#include "apps/catalog/weights.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "apps/catalog/modules.h"
#include "apps/config/config.h"
#include "framework/data/formats/npy.h"
#include "framework/io/weights/safetensors.h"
#include "framework/ops/ops.h"
#include "layers/module/save.h"
#include "tests/apps/support.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

// A body "conv", "bn" and a head "fc" of four classes.
Json model_with(const Json& weights) {
  return {{"type", "Sequential"},
          {"weights", weights},
          {"layers",
           {{{"type", "Conv2d"}, {"name", "conv"}, {"out_channels", 3}, {"kernel_size", 3}},
            {{"type", "BatchNorm2d"}, {"name", "bn"}},
            "Flatten",
            {{"type", "Linear"}, {"name", "fc"}, {"out_features", "auto"}}}}};
}
Json config_of(const Json& model, const Json& train = {{"type", "Random"}, {"input_shape", {2, 4, 4}}, {"classes", 4}}) {
  return {{"model", model},
          {"loss", "CrossEntropyLoss"},
          {"optimizer", "SGD"},
          {"device", "cpu"},
          {"data", {{"train", train}, {"loader", {{"batch_size", 4}}}}},
          {"train", {{"epochs", 1}}}};
}

TensorMap file_of(int64_t classes) {
  return {{"conv.weight", ones({3, 2, 3, 3})},
          {"conv.bias", zeros({3})},
          {"bn.weight", ones({3})},
          {"bn.bias", zeros({3})},
          {"bn.running_mean", zeros({3})},
          {"bn.running_var", ones({3})},
          {"fc.weight", ones({classes, 12})},
          {"fc.bias", zeros({classes})},
          {"bn.num_batches_tracked", zeros({}, {.dtype = DType::i64})}};
}

// What loading says, or its error.
std::string loaded(const TempDir& dir, const Json& model) {
  const Config c = load_config(write(dir / "config.json", config_of(model).dump()));
  try {
    std::string out;
    for (const std::string& line : load_weights(*build_model(c.model), c.model, "model")) out += line + '\n';
    return out;
  } catch (const ConfigError& e) { return e.what(); }
}

// `weights` as the help of an error says.
Json advised(const std::string& error, Json weights) {
  const size_t help = error.find("\nhelp: ");
  REQUIRE_MESSAGE(help != std::string::npos, error);
  const auto value = [&](size_t at) {
    int depth = 0;
    size_t end = at;
    do depth += error[end] == '{' || error[end] == '[' ? 1 : error[end] == '}' || error[end] == ']' ? -1 : 0;
    while (++end < error.size() && depth > 0);
    return Json::parse(error.substr(at, end - at));
  };
  const std::string whole = "\"weights\": {", skip = "\"skip\": [";
  if (const size_t at = error.find(whole, help); at != std::string::npos) return value(at + whole.size() - 1);
  const size_t at = error.find(skip, help);
  REQUIRE_MESSAGE(at != std::string::npos, error);
  weights["skip"] = value(at + skip.size() - 1);
  return weights;
}

}  // namespace

TEST_CASE("weights: what does not fit is listed, and the line in the help makes it fit") {
  const TempDir dir;
  const std::string path = (dir / "w.safetensors").string();
  const Json plain = {{"path", path}};
  // The error has `problem`; with the advice, the file is read as `then` says.
  const auto mended = [&](const TensorMap& file, const Json& weights, const std::string& problem, const std::string& then) {
    save_safetensors(path, file);
    const std::string error = loaded(dir, model_with(weights));
    CAPTURE(error);
    CHECK(error.starts_with("[model.weights] " + path + ": [load"));
    CHECK(contains(error, problem));
    CHECK(loaded(dir, model_with(advised(error, weights))) == "weights: " + path + ": " + then + "\n");
  };
  const auto named = [&](const auto& rename) {
    TensorMap out;
    for (const auto& [name, t] : file_of(4)) out[rename(name)] = t;
    return out;
  };
  const std::string fresh = "7 tensors; fc.weight, fc.bias keep their first values";
  mended(file_of(10), plain, "shape: fc.weight must be [4, 12], got [10, 12]", fresh);
  TensorMap headless = file_of(4);
  headless.erase("fc.weight"), headless.erase("fc.bias");
  mended(headless, plain, "missing: fc.weight\n  missing: fc.bias", fresh);
  TensorMap more = file_of(4);
  more["anchors"] = zeros({5});
  mended(more, plain, "unexpected: anchors", "9 tensors");
  mended(named([](const std::string& n) { return "module." + n; }), plain, "missing: conv.weight", "9 tensors");
  mended(named([](const std::string& n) { return n.starts_with("conv") ? "stem" + n.substr(4) : n; }), plain,
         "unexpected: stem.weight", "9 tensors");
  mended(named([](const std::string& n) { return n.starts_with("fc") ? "old" + n.substr(2) : n; }), plain, "unexpected: old.weight",
         "9 tensors");  // it has the shape of fc
  TensorMap headed = headless;
  headed["classifier.weight"] = ones({10, 12}), headed["classifier.bias"] = zeros({10});
  mended(headed, plain, "unexpected: classifier.weight", fresh);
  TensorMap turned = file_of(4);
  turned["fc.weight"] = ones({12, 4});
  mended(turned, plain, "shape: fc.weight must be [4, 12], got [12, 4]", "9 tensors");
  // What the config has already remains.
  mended(headless, {{"path", path}, {"skip", "^bn\\."}}, "missing: fc.weight",
         "2 tensors; bn.weight, bn.bias, bn.running_mean, bn.running_var and 3 more keep their first values");

  Json inner = model_with(nullptr);
  inner["layers"] = Json::array({{{"type", "Sequential"}, {"name", "body"}, {"layers", model_with(nullptr)["layers"]}}});
  save_safetensors(path, file_of(4));
  inner["weights"] = plain;
  const std::string error = loaded(dir, inner);
  inner["weights"] = advised(error, plain);
  CHECK(loaded(dir, inner) == "weights: " + path + ": 9 tensors\n");
}

TEST_CASE("weights: the help turns only the matrices that do not fit, and none that is square or has another shape") {
  const TempDir dir;
  const std::string path = (dir / "w.safetensors").string();
  const auto model = [](const Json& weights) {
    const Json layers = Json::parse(R"(["Flatten", {"type": "Linear", "out_features": 32}, {"type": "LayerNorm"},
      {"type": "Linear", "out_features": 5}, {"type": "Linear", "out_features": "auto"}])");
    return Json{{"type", "Sequential"}, {"weights", weights}, {"layers", layers}};
  };
  const TensorMap file = {{"1.weight", reshape(arange(1024.0), {32, 32}).to(DType::f32)},
                          {"1.bias", zeros({32})},
                          {"2.weight", ones({32})},
                          {"2.bias", zeros({32})},
                          {"3.weight", ones({32, 5})},
                          {"3.bias", zeros({5})},
                          {"4.weight", ones({5, 4})},
                          {"4.bias", zeros({4})}};
  save_safetensors(path, file);
  const Json plain = {{"path", path}};
  const std::string error = loaded(dir, model(plain));
  const Json weights = advised(error, plain);
  CHECK(weights["transpose"] == Json({"^3\\.weight$", "^4\\.weight$"}));
  const Config c = load_config(write(dir / "c.json", config_of(model(weights)).dump()));
  const auto built = build_model(c.model);
  load_weights(*built, c.model, "model");
  CHECK(built->parameters()[0].to_vector<float>() == file.at("1.weight").to_vector<float>());
}

TEST_CASE("weights: values from which PyTorch computes a weight are named, with what makes the weight") {
  const TempDir dir;
  const std::string path = (dir / "w.safetensors").string();
  const auto help_of = [&](const std::vector<std::string>& parts) {
    TensorMap file = file_of(4);
    file.erase("fc.weight");
    for (const std::string& part : parts) file["fc." + part] = ones({4, 12});
    save_safetensors(path, file);
    const std::string error = loaded(dir, model_with({{"path", path}}));
    return error.substr(std::min(error.find("\nhelp: "), error.size()));
  };
  CHECK(contains(help_of({"weight_orig", "weight_mask"}),
                 "fc.weight_orig is pruned by a mask; in Python, torch.nn.utils.prune.remove("));
  CHECK(contains(help_of({"weight_orig", "weight_u"}), "torch.nn.utils.remove_spectral_norm(layer, \"weight\")"));
  CHECK(contains(help_of({"parametrizations.weight.original", "parametrizations.weight.0.base"}),
                 "torch.nn.utils.parametrize.remove_parametrizations(layer, \"weight\")"));
  CHECK(!contains(help_of({"weight_orig", "weight_mask"}), "skip"));
}

TEST_CASE("weights: arrays of NumPy and HDF5 files get the line that makes safetensors of them") {
  const TempDir dir;
  const auto refused = [&](const std::string& name) { return loaded(dir, model_with({{"path", (dir / name).string()}})); };
  write_npz(dir / "w.npz", {{"fc.weight", ones({4, 12})}});
  const std::string npz = refused("w.npz");
  CHECK_MESSAGE(contains(npz, "the file is an archive of NumPy's arrays (.npz)\nhelp: with the package safetensors"), npz);
  CHECK(contains(npz, "s.save_file(dict(numpy.load('" + (dir / "w.npz").string() + "')), '"));
  CHECK(!contains(npz, "\"type\""));
  write(dir / "keras.h5", "\x89HDF\r\n\x1a\n" + std::string(100, ' '));
  CHECK(contains(refused("keras.h5"), "h5py.File("));
  CHECK(!contains(refused("keras.h5"), "savez"));
}

TEST_CASE("weights: skip keeps first values, transpose turns matrices; others are read as ever") {
  const TempDir dir;
  const std::string path = (dir / "w.safetensors").string();
  TensorMap file = file_of(4);
  file["fc.weight"] = reshape(arange(48.0), {12, 4}).to(DType::f32);
  save_safetensors(path, file);
  const Config c = load_config(
      write(dir / "c.json", config_of(model_with({{"path", path}, {"transpose", "fc.weight"}, {"skip", "^conv\\."}})).dump()));
  const auto model = build_model(c.model);
  const auto conv = model->parameters()[0].to_vector<float>();
  load_weights(*model, c.model, "model");
  CHECK(model->parameters()[0].to_vector<float>() == conv);
  for (const NamedTensor& n : model->named_parameters()) {
    if (n.name == "fc.weight") CHECK(n.tensor[1][2].item<float>() == 2 * 4 + 1);
  }
  const std::string error = loaded(dir, model_with({{"path", path}, {"transpose", "^fc"}}));
  CHECK(contains(error, "[load] fc.bias must be a matrix to be transposed, got [4]"));
}

TEST_CASE("weights: with strict false it is said what was read, and reading nothing is an error") {
  const TempDir dir;
  TensorMap some = file_of(4);
  some.erase("fc.bias");
  some["extra"] = ones({2});
  save_safetensors(dir / "some.safetensors", some);
  const std::string said = loaded(dir, model_with({{"path", (dir / "some.safetensors").string()}, {"strict", false}}));
  CHECK(contains(said, "8 tensors; fc.bias keeps its first values; 1 of the file are not in the model"));
  save_safetensors(dir / "other.safetensors", {{"a", ones({2})}, {"b", ones({2})}});
  const std::string none = loaded(dir, model_with({{"path", (dir / "other.safetensors").string()}, {"strict", false}}));
  CHECK(contains(none, "nothing would be read"));
}

TEST_CASE("weights: damaged files, other kinds of numbers and absent files end with code 2") {
  const TempDir dir;
  const std::string path = (dir / "w.safetensors").string();
  write(dir / "run.json", config_of(model_with(path)).dump());
  const auto refused = [&](const std::string& text) {
    for (const std::string command : {"train run.json", "validate run.json"}) {
      const Ran r = run(dir, command);
      CHECK_MESSAGE(r.code == 2, r.out);
      CHECK_MESSAGE(contains(r.err, text), r.err);
    }
    CHECK_FALSE(fs::exists(dir / "runs"));
  };
  TensorMap file = file_of(4);
  file["fc.weight"] = ones({4, 12}, {.dtype = DType::i8});
  save_safetensors(path, file);
  refused("dtype: fc.weight must be floating, got int8");
  for (const DType low : {DType::f16, DType::bf16, DType::f64}) {
    file["fc.weight"] = ones({4, 12}, {.dtype = low});
    save_safetensors(path, file);
    CHECK(run(dir, "validate run.json").code == 0);
  }
  fs::resize_file(path, fs::file_size(path) - 5);
  refused("[model.weights] [safetensors] " + path);
  fs::resize_file(path, 4);
  refused("[model.weights] [safetensors] " + path);
  fs::copy_file(fs::path(halfstep_source_dir()) / "tests/apps/fine_tune/resnet18.pt", path, fs::copy_options::overwrite_existing);
  fs::resize_file(path, 5000);
  refused("[model.weights] [zip] " + path + ": the file is no zip archive, or is cut off");
  write(path, "{}");
  refused("[model.weights] [safetensors] " + path);
  const auto other = [&](const std::string& name, const std::string& text) {
    write(dir / name, "{}");
    const Ran r = run(dir, "train run.json --set model.weights.path=" + name);
    CHECK(r.code == 2);
    CHECK_MESSAGE(contains(r.err, text), r.err);
  };
  other("w.json", "[model.weights] [weights] w.json must be a file of safetensors or of torch.save, the index of several");
  other("model.safetensors.index.json", "index.json: must have \"weight_map\" with the file of each tensor");
  fs::create_directory(dir / "folder");
  save_safetensors(dir / "folder/model.safetensors", file_of(4));
  CHECK(contains(run(dir, "validate run.json --set model.weights.path=folder").out, "weights: folder: 9 tensors"));
  fs::remove(path);
  CHECK(contains(run(dir, "validate run.json").out, "weights: " + path + " is not there, and was not checked"));
  for (const std::string command : {"train", "lr-find"}) {
    const Ran r = run(dir, command + " run.json");
    CHECK(r.code == 2);
    CHECK(contains(r.err, "[model.weights] [safetensors] " + path + ": cannot read: No such file or directory"));
  }
}

TEST_CASE("tie: an embedding and a head are one tensor, trained, counted and saved once") {
  const TempDir dir;
  const auto model = [](const Json& tie, int64_t head = 9) {
    return Json{{"type", "Sequential"},
                {"tie", tie},
                {"layers",
                 {{{"type", "Embedding"}, {"name", "in"}, {"num_embeddings", 9}, {"embedding_dim", 5}},
                  "Tanh",
                  {{"type", "Linear"}, {"name", "out"}, {"out_features", head}, {"bias", false}}}}};
  };
  const Json text = {{"type", "Text"}, {"path", (dir / "t.txt").string()}, {"seq_len", 8}};
  std::string letters;
  for (int i = 0; i < 2000; ++i) letters += char('a' + (i * i + i / 9) % 9);
  write(dir / "t.txt", letters);
  const auto config = [&](const Json& m) { return config_of(m, text).dump(); };
  const auto fault = [&](const Json& m) {
    try {
      load_config(write(dir / "c.json", config(m)));
    } catch (const ConfigError& e) { return std::string(e.what()); }
    return std::string();
  };
  CHECK(
      contains(fault(model({"in", "head"})), "model.tie: [tie] \"head\" must be the name of a layer in this one, but is of none"));
  CHECK(contains(fault(model({"in", "1"})), "model.tie: [tie] \"1\" must be an Embedding or a Linear, got Tanh"));
  CHECK(contains(fault(model({"in", "out"}, 8)),
                 "model.tie: [tie] \"out\" must have a weight of shape [9, 5], as \"in\", got [8, 5]"));
  CHECK(contains(fault(model({"in"})), "model.tie"));
  const auto tied = build_model(load_config(write(dir / "c.json", config(model({"in", "out"})))).model);
  CHECK(tied->parameter_count() == 45);
  CHECK(tied->parameters().size() == 1);

  const std::string file = (dir / "w.safetensors").string();
  Json both = model({"in", "out"});
  both["weights"] = file;
  const Config c = load_config(write(dir / "c.json", config(both)));
  save_safetensors(file, {{"in.weight", ones({9, 5})}});
  CHECK(load_weights(*build_model(c.model), c.model, "model").size() == 1);
  Json untied = both;
  untied.erase("tie");
  const Config without = load_config(write(dir / "c.json", config(untied)));
  CHECK_THROWS_WITH_AS(
      load_weights(*build_model(without.model), without.model, "model"),
      doctest::Contains("help: if the model has one matrix for both: \"tie\": [\"in\",\"out\"] beside \"weights\""), ConfigError);
  save_safetensors(file, {{"in.weight", ones({9, 5})}, {"out.weight", ones({9, 5})}});
  CHECK(load_weights(*build_model(c.model), c.model, "model").size() == 1);
  save_safetensors(file, {{"in.weight", ones({9, 5})}, {"out.weight", zeros({9, 5})}});
  CHECK_THROWS_WITH_AS(load_weights(*build_model(c.model), c.model, "model"),
                       doctest::Contains("in.weight and out.weight are one tensor in the model, but differ in the file"),
                       ConfigError);
  save_safetensors(file, {{"in.weight", ones({12, 5})}});
  CHECK_THROWS_WITH_AS(
      load_weights(*build_model(c.model), c.model, "model"),
      doctest::Contains("help: the file has 12 tokens, and in has 9: take the tokenizer of the file's model; where that "
                        "one has fewer tokens than its model, \"vocab_size\": 12 in data"),
      ConfigError);
}
