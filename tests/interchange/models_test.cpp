// SPDX-License-Identifier: Apache-2.0
// Models of the examples, written in C++, as ONNX files. onnx_check.py runs this test with HALFSTEP_ONNX_FOLDER, where the files
// then stay, with inputs and outputs beside them.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>

#include "examples/gpt2.h"
#include "examples/resnet18.h"
#include "framework/autograd/grad_mode.h"
#include "layers/module/export.h"

namespace {

namespace fs = std::filesystem;

struct CharLstm : Module {
  Part<Embedding> embedding{this, "embedding", 30, 16};
  Part<LSTM> lstm{this, "lstm", 16, 24, LSTMOptions{.num_layers = 2, .batch_first = true}};
  Part<Linear> head{this, "head", 24, 30};
  Tensor forward(const Tensor& ids) override {
    const auto [y, state] = lstm(embedding(ids));
    return head(y);
  }
};

void check(const std::string& name, Module& net, const std::function<Tensor(int64_t samples)>& draw) {
  const char* const kept = std::getenv("HALFSTEP_ONNX_FOLDER");
  std::string temporary = (fs::temp_directory_path() / "halfstep-onnx-XXXXXX").string();
  const fs::path folder = kept ? kept : mkdtemp(temporary.data());
  const OnnxSummary made = export_onnx(folder / (name + ".onnx"), net, draw(4));
  CHECK(made.bytes > 0);
  if (!kept) {
    fs::remove_all(folder);
    return;
  }
  const NoGrad off;
  net.eval();
  TensorMap io;
  for (const int64_t n : {1, 2, 5}) {
    const Tensor x = draw(n);
    io["x" + std::to_string(n)] = x;
    io["y" + std::to_string(n)] = net(x).contiguous();
  }
  save_safetensors(folder / (name + ".safetensors"), io);
}

}  // namespace

TEST_CASE("ResNet-18, a recurrent model of characters and GPT-2, written in C++, are exported") {
  manual_seed(3);
  ResNet18 images(10, 16);
  check("resnet18", images, [](int64_t n) { return randn({n, 3, 64, 64}); });
  CharLstm letters;
  check("char_lstm", letters, [](int64_t n) { return randint(0, 30, {n, 12}); });
  Gpt2 text({.tokens = 100, .positions = 32, .width = 48, .blocks = 2, .heads = 4});
  check("gpt2", text, [](int64_t n) { return randint(0, 100, {n, 20}); });
}
