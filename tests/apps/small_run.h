// SPDX-License-Identifier: Apache-2.0
// A small run for tests of the program.
#pragma once

#include <string>

#include "framework/io/checkpoint/checkpoint.h"
#include "framework/io/files/checksum.h"
#include "tests/apps/support.h"

namespace halfstep::app::testing {

// A small config with everything that has state: dropout, moments, a schedule, shuffling, accumulation with a short last window, a
// scaler that skips its first steps and grows later.
inline const char* kSmall = R"({
  "name": "small", "seed": 3, "device": "cpu",
  "model": {"type": "MLP", "hidden": [24], "out_features": "auto", "dropout": 0.1},
  "loss": "CrossEntropyLoss",
  "optimizer": {"type": "AdamW", "lr": 0.003},
  "scheduler": {"type": "CosineAnnealingLR", "warmup_steps": 5},
  "amp": {"dtype": "float16", "scaler": {"init_scale": 1e8, "growth_interval": 6}},
  "data": {"train": {"type": "Digits", "size": 200}, "val": {"type": "Digits", "size": 64}, "loader": {"batch_size": 16}},
  "train": {"epochs": 4, "accumulate_steps": 2, "clip_grad_norm": 1.0, "limit_batches": 11},
  "logging": {"every": "3 steps"}
})";

// Returns everything in a run's newest checkpoint except times and threads.
inline std::string identity(const fs::path& run) {
  const CheckpointContents c = load_checkpoint(run);
  nlohmann::json meta = *c.meta;
  meta["trainer"].erase("seconds");
  meta.erase("config");
  meta.erase("written_by");  // has the number of threads
  return sha256(c.model) + sha256(c.state) + meta.dump();
}

}  // namespace halfstep::app::testing
