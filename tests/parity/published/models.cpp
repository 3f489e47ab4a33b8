// SPDX-License-Identifier: Apache-2.0
// The published models of published.py that no config can express, under the names of their files:
//   published_models silero|beatnet WEIGHTS INPUT.pt OUTPUT.safetensors float32|bfloat16|float16
#include <functional>
#include <iostream>
#include <map>
#include <string>

#include "halfstep.h"

using namespace halfstep;

// Of chunks of 576 samples, one after the other: the spectrum by a convolution, four convolutions, and a cell with a state.
struct Silero : Module {
  Part<Conv1d> stft_conv{this, "stft_conv", 1, 258, 256, Conv1d::Options{.stride = 128, .bias = false}};
  Part<Conv1d> conv1{this, "conv1", 129, 128, 3, Conv1d::Options{.padding = 1}};
  Part<Conv1d> conv2{this, "conv2", 128, 64, 3, Conv1d::Options{.stride = 2, .padding = 1}};
  Part<Conv1d> conv3{this, "conv3", 64, 64, 3, Conv1d::Options{.stride = 2, .padding = 1}};
  Part<Conv1d> conv4{this, "conv4", 64, 128, 3, Conv1d::Options{.padding = 1}};
  Part<LSTMCell> lstm_cell{this, "lstm_cell", 128, 128};
  Part<Conv1d> final_conv{this, "final_conv", 128, 1, 1};

  Tensor forward(const Tensor& chunks) override {
    LSTMState state;
    Tensors voices;
    for (int64_t i = 0; i < chunks.size(0); ++i) {
      const Tensor s = stft_conv(pad(chunks.slice(0, i, i + 1).unsqueeze(1), {0, 64}, "reflect")).to(DType::f32);
      Tensor y = sqrt(square(s.slice(1, 0, 129)) + square(s.slice(1, 129, 258)));
      for (Conv1d* conv : {&*conv1, &*conv2, &*conv3, &*conv4}) y = relu((*conv)(y));
      state = lstm_cell(y.select(2, 0), state);
      voices.push_back(sigmoid(final_conv(relu(state.h).unsqueeze(2))).flatten());
    }
    return stack(voices);
  }
  std::string describe() const override { return "Silero"; }
};

// Of spectra [N, T, 272]: a convolution over the bands of each, and an LSTM.
struct BeatNet : Module {
  Part<Conv1d> conv1{this, "conv1", 1, 2, 10};
  Part<Linear> linear0{this, "linear0", 262, 150};
  Part<LSTM> lstm{this, "lstm", 150, 150, LSTM::Options{.num_layers = 2, .batch_first = true}};
  Part<Linear> linear{this, "linear", 150, 3};

  Tensor forward(const Tensor& x) override {
    const Tensor bands = max_pool1d(relu(conv1(x.reshape({-1, 1, 272}))), 2).flatten(1);
    return linear(lstm(linear0(bands).reshape({x.size(0), x.size(1), 150})).output).transpose(1, 2);
  }
  std::string describe() const override { return "BeatNet"; }
};

int main(int argc, char** argv) {
  try {
    const std::map<std::string, std::function<std::shared_ptr<Module>()>> models{{"silero", [] { return make<Silero>(); }},
                                                                                 {"beatnet", [] { return make<BeatNet>(); }}};
    check<ValueError>(argc == 6 && models.contains(argv[1]), "published_models",
                      "must be given silero or beatnet, weights, an input, an output and a dtype");
    const std::shared_ptr<Module> model = models.at(argv[1])();
    load(*model, argv[2]);
    model->eval();
    const std::string dtype = argv[5];
    const Tensor x = load_torch_file(argv[3]).tensors.at("x");
    const InferenceMode inference;
    const Autocast region(Device::cpu, dtype == "bfloat16" ? DType::bf16 : DType::f16, dtype != "float32");
    save(StateDict{{"y", (*model)(x).to(DType::f32)}}, argv[4]);
  } catch (const Error& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
}
