// SPDX-License-Identifier: Apache-2.0
// A short run, for tests with several processes.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>

#include "framework/io/checkpoint/checkpoint.h"
#include "tests/apps/tiny_run.h"

namespace halfstep::app::testing {

inline const char* kRun = R"({
  "name": "ranks", "output_dir": "r", "device": "cpu",
  "model": {"type": "Sequential", "layers": [{"type": "Linear", "out_features": 24}, "Tanh", {"type": "Dropout", "p": 0.1},
                                             {"type": "Linear", "out_features": "auto"}]},
  "loss": "CrossEntropyLoss", "optimizer": {"type": "AdamW", "lr": 0.01},
  "data": {"train": {"type": "Random", "num_batches": 6, "input_shape": [13], "classes": 3},
           "val": {"type": "Random", "num_batches": 1, "input_shape": [13], "classes": 3}, "loader": {"batch_size": 16}},
  "train": {"epochs": 3}, "logging": {"every": 1}, "checkpoint": {"keep_last": 0, "every": "5 steps"}
})";
// Options for a run that continues until it is ended.
inline const char* kForever = R"(--set train.epochs=100000000 --set checkpoint.every="20 steps" --set checkpoint.keep_last=2)";

inline std::string step_name(int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%08lld", (long long)step);
  return name;
}

// Returns a checkpoint's model, optimizer and random numbers.
inline std::string contents(const fs::path& run, int64_t step) {
  const fs::path at = run / step_name(step);
  Json state = Json::parse(read(at / "state.json"));
  for (const char* key : {"config", "trainer"}) state.erase(key);  // have times, and how the batch was divided
  state.erase("loader");
  return read(at / "model.safetensors") + read(at / "state.safetensors") + state.dump();
}

inline int complete_lines(const fs::path& file) {
  const std::string text = read(file);
  return int(std::count(text.begin(), text.end(), '\n'));
}

template <class F>
bool wait_until(const F& f) {
  for (int i = 0; i < 1500; ++i) {
    if (f()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace halfstep::app::testing
