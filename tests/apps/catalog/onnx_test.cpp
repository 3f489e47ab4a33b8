// SPDX-License-Identifier: Apache-2.0
// Every golden case of the layers as an ONNX file. tests/interchange/onnx_check.py runs this test with HALFSTEP_ONNX_FOLDER, where
// the files then stay, and compares what onnxruntime answers with what the layers do.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "framework/autograd/grad_mode.h"
#include "layers/export.h"
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

}  // namespace

TEST_CASE("every layer's golden case has a form in ONNX, or is refused with its reason") {
  const char* const kept = std::getenv("HALFSTEP_ONNX_FOLDER");
  const TempDir temp;
  const fs::path folder = kept ? fs::path(kept) : temp.path();
  manual_seed(1);
  int number = 0, exported = 0, refused = 0;
  Json index = Json::object();
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
      export_onnx(folder / (name + ".onnx"), *module, samples_like(x, batch, 4), {.batch_dim = batch});
      ++exported;
    } catch (const ExportError& e) {
      ++refused;
      const bool writes = args.contains("max_norm");  // into its weights, at each call
      CHECK_MESSAGE(writes, std::string(e.what()));
      CHECK(std::string(e.what()).starts_with("[export] "));
      continue;
    }
    if (!kept) continue;
    const NoGrad off;
    TensorMap io;
    for (const int64_t n : {2, 3, 5, 0}) {
      const Tensor in = n ? samples_like(x, batch, n) : x;
      io["x" + std::to_string(n)] = in.contiguous();
      io["y" + std::to_string(n)] = (*module)(in).contiguous();
    }
    save_safetensors(folder / (name + ".safetensors"), io);
    index[name] = g.key;
  }
  if (kept) std::ofstream(folder / "index.json") << index.dump(1);
  MESSAGE(exported, " of ", number, " cases exported");
  CHECK(refused <= 2);
}
