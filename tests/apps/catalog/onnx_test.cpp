// SPDX-License-Identifier: Apache-2.0
// Every golden case of the layers as an ONNX file, and models of several of them. tests/interchange/onnx_check.py runs these tests
// with HALFSTEP_ONNX_FOLDER, where the files then stay, and compares what onnxruntime answers with what the layers do.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "framework/autograd/grad_mode.h"
#include "layers/module/export.h"
#include "tests/apps/catalog/layer_goldens.h"
#include "tests/apps/support.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

namespace fs = std::filesystem;

// Is its input one sample, without a batch?
bool is_unbatched(const Golden& g) {
  const std::string type = g.type();
  const int64_t dims = g.tensors.at("x").dim();
  const auto has = [&](const char* part) { return type.find(part) != std::string::npos; };
  return (has("1d") && dims == 2 && type != "BatchNorm1d") || (has("2d") && dims == 3) || (has("3d") && dims == 4) ||
         ((type == "RNN" || type == "LSTM" || type == "GRU") && dims == 2) || (type.ends_with("Cell") && dims == 1);
}

// The layer's input with n samples in dimension `batch`, of the values that the case has.
Tensor samples_like(const Tensor& x, int batch, int64_t n) {
  Shape shape = x.shape();
  shape[batch] = n;
  if (x.is_floating_point()) return randn(shape) * 1.5;
  const Tensor line = x.reshape({-1});
  return index_select(line, 0, randint(0, line.numel(), {numel(shape)})).reshape(shape);
}

// Where exported files go, with inputs and outputs beside them if they stay.
struct Kept {
  TempDir temp;
  const char* given = std::getenv("HALFSTEP_ONNX_FOLDER");
  fs::path folder = given ? fs::path(given) : temp.path();
  Json index = Json::object();

  void add(const std::string& name, const std::string& what, Module& module, const Tensors& inputs) {
    if (!given) return;
    const NoGrad off;
    TensorMap io;
    for (size_t i = 0; i < inputs.size(); ++i) {
      io["x" + std::to_string(i)] = inputs[i].contiguous();
      io["y" + std::to_string(i)] = module(inputs[i]).contiguous();
    }
    save_safetensors(folder / (name + ".safetensors"), io);
    index[name] = what;
  }
  ~Kept() {
    if (!given) return;
    Json all = fs::exists(folder / "index.json") ? Json::parse(read(folder / "index.json")) : Json::object();
    all.update(index);
    write(folder / "index.json", all.dump(1));
  }
};

// Of [N, F] such a layer takes the samples for the steps of one sequence.
bool reads_sequences(const std::string& type) {
  for (const char* kind : {"RNN", "LSTM", "GRU", "MultiheadAttention", "Transformer", "Position", "Rotary"})
    if (type.starts_with(kind)) return !type.ends_with("Cell");
  return false;
}

// A model of two to five layers of the goldens that fit each other, with widths taken from the data; nothing if they do not fit.
std::optional<Json> draw_model(const DataFacts& facts, Generator& generator) {
  const auto whole = [&](int64_t n) { return randint(0, n, {1}, {.dtype = DType::i64}, &generator).item<int64_t>(); };
  const std::vector<Golden>& all = goldens("layer");
  Json layers = Json::array();
  const int64_t wanted = 2 + whole(4);
  std::optional<Json> fits;
  Shape current = facts.input;  // of a sample
  for (int64_t tries = 0; tries < 60 && int64_t(layers.size()) < wanted; ++tries) {
    const Golden& g = all[size_t(whole(int64_t(all.size())))];
    if (g.random() || g.json["args"].contains("max_norm")) continue;
    if (g.type().starts_with("LPPool")) continue;  // NaN for negative sums, which runtimes' recurrent layers lose
    if (current.size() < 2 && reads_sequences(g.type())) continue;
    Json layer = g.json["args"];
    layer["type"] = g.type();
    for (const Field& f : module_family().find(g.type())->fields)
      if (f.from_input != 0 || f.key == "batch_first") layer.erase(f.key);
    Json more = layers;
    more.push_back(layer);
    Issues issues;
    const Json model =
        validate(Json{{"type", "Sequential"}, {"layers", more}}, component("model", module_family(), ""), "model", issues);
    if (!issues.list().empty()) continue;
    const InferredModel inferred = infer_model(model, facts, {}, "model", issues);
    if (!issues.list().empty()) continue;
    layers = more;
    fits = inferred.model;
    current = *inferred.output;
  }
  return layers.size() >= 2 ? fits : std::nullopt;
}

}  // namespace

TEST_CASE("every layer's golden case has a form in ONNX, or is refused with its reason") {
  Kept kept;
  manual_seed(1);
  int number = 0, exported = 0, refused = 0;
  for (const Golden& g : goldens("layer")) {
    if (is_unbatched(g)) continue;
    CAPTURE(g.json.dump());
    const auto module = make(g, DType::f32);
    module->eval();
    const Tensor x = g.at("x", DType::f32);
    const Json& args = g.json["args"];
    const int batch = args.contains("batch_first") && args["batch_first"] == false && x.dim() > 1 ? 1 : 0;
    const std::string name = std::to_string(number++);
    try {
      export_onnx(kept.folder / (name + ".onnx"), *module, samples_like(x, batch, 4), {.batch_dim = batch});
      ++exported;
    } catch (const ExportError& e) {
      ++refused;
      const bool writes = args.contains("max_norm");  // into its weights, at each call
      CHECK_MESSAGE(writes, std::string(e.what()));
      CHECK(std::string(e.what()).starts_with("[export] "));
      continue;
    }
    kept.add(name, g.key, *module, {samples_like(x, batch, 2), samples_like(x, batch, 3), samples_like(x, batch, 5), x});
  }
  MESSAGE(exported, " of ", number, " cases exported");
  CHECK(refused <= 2);
}

// HALFSTEP_ONNX_MODELS: how many; 40 without it.
TEST_CASE("models of several layers that a config may have are exported") {
  Kept kept;
  const char* const count = std::getenv("HALFSTEP_ONNX_MODELS");
  const int64_t models = count ? std::stoll(count) : 40;
  Generator generator(7);
  manual_seed(7);
  const Shape inputs[] = {{20}, {3, 12, 12}, {8, 12}, {2, 6, 6, 6}};
  int64_t made = 0;
  for (int64_t drawn = 0; drawn < 20 * models && made < models; ++drawn) {
    const Shape& input = inputs[size_t(drawn) % std::size(inputs)];
    const std::optional<Json> model = draw_model({input, {}, 3, 64}, generator);
    if (!model) continue;
    const std::string text = model->dump();
    CAPTURE(text);
    const auto module = build_model(*model);
    module->eval();
    const std::string name = "model" + std::to_string(made++);
    CHECK_NOTHROW(export_onnx(kept.folder / (name + ".onnx"), *module, randn(with_batch(4, input))));
    kept.add(name, text, *module, {randn(with_batch(2, input)), randn(with_batch(5, input))});
  }
  CHECK(made == models);
}
