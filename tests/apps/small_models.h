// SPDX-License-Identifier: Apache-2.0
// Runs of small models of each kind, for tests of models in use.
#pragma once

#include <cstdint>
#include <string>

#include "apps/use/predictor.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"

namespace halfstep::app::testing {

struct SmallModel {
  const char *name, *input, *layers;
};
inline constexpr SmallModel kSmallModels[] = {
    {"mlp", "[1, 4, 4]", R"("Flatten", {"type": "Linear", "out_features": 24}, "ReLU", {"type": "Dropout", "p": 0.5})"},
    {"lenet", "[1, 12, 12]",
     R"({"type": "Conv2d", "out_channels": 4, "kernel_size": 5, "padding": 2}, "ReLU", {"type": "MaxPool2d", "kernel_size": 2},
        {"type": "Conv2d", "out_channels": 6, "kernel_size": 3}, "BatchNorm2d", "ReLU", {"type": "MaxPool2d", "kernel_size": 2},
        "Flatten", {"type": "Linear", "out_features": 16}, "ReLU", {"type": "Dropout", "p": 0.5})"},
    {"lstm", "[5, 6]", R"({"type": "LSTM", "hidden_size": 8, "num_layers": 2, "dropout": 0.5, "output": "last"})"},
    {"transformer", "[5, 8]",
     R"({"type": "PositionEmbedding", "max_len": 5},
        {"type": "TransformerEncoder", "num_layers": 2, "nhead": 2, "dim_feedforward": 16, "dropout": 0.5, "is_causal": true},
        "Flatten")"},
};

// Returns the config of a run of two steps on the CPU, whose folder is "out" beside it.
inline std::string config_of(const SmallModel& model, bool amp, int seed = 3) {
  return R"({"version": 1, "name": "small", "output_dir": "out", "device": "cpu", "seed": )" + std::to_string(seed) +
         R"(, "model": {"type": "Sequential", "layers": [)" + model.layers + R"(, {"type": "Linear", "out_features": 3}]},
    "loss": "CrossEntropyLoss", "optimizer": {"type": "SGD", "lr": 0.1},
    "amp": {"enabled": )" +
         (amp ? "true" : "false") + R"(, "dtype": "bfloat16"},
    "data": {"train": {"type": "Random", "num_batches": 2, "input_shape": )" +
         model.input + R"(, "classes": 3},
             "loader": {"batch_size": 4}}, "train": {"epochs": 1}})";
}

// Draws inputs for the model; equal seeds give equal inputs.
inline Tensor inputs_for(const Predictor& model, int64_t count, uint64_t seed = 7) {
  Generator generator(seed);
  Shape shape{count};
  for (const int64_t size : model.form().input) shape.push_back(size);
  return randn(shape, {.device = Device::cpu}, &generator);
}

}  // namespace halfstep::app::testing
