// SPDX-License-Identifier: Apache-2.0
// The file of a sweep (docs/configs.md#sweeps): a config, and values for some of its keys.
//
//   {"name": "rates", "base": "mnist.json", "set": {"train.epochs": 3},
//    "grid": {"optimizer.lr": [0.1, 0.01], "data.loader.batch_size": {"from": 32, "to": 128, "step": 32}},
//    "random": {"draws": 20, "seed": 0, "keys": {"optimizer.weight_decay": {"from": 1e-5, "to": 0.1, "scale": "log"}}}}
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "apps/schema/json.h"
#include "apps/sweep/search_space.h"

namespace halfstep::app {

struct SweepFile {
  std::filesystem::path path;
  std::string name;                  // omitted: the file's
  std::filesystem::path output_dir;  // omitted: runs/ and the name
  std::filesystem::path base;        // of the config, relative to the working directory; empty: `config`
  Json config;
  Settings fixed;                 // "set": for all members
  std::vector<std::string> keys;  // in which members differ: of "random", then of "grid", in the file's order
  std::vector<Settings> members;  // in a grid, the last key changes fastest; each draw has a whole grid
};

// Throws ConfigError that lists all errors with their lines.
SweepFile read_sweep(const std::filesystem::path& path);

// Makes a sweep from a command line: "seed=0,1,2", "optimizer.lr=[0.1,0.01]", "data.fold=[0,5],[1,5]" or "optimizer=SGD,AdamW",
// each a key of a grid. Its name is that of the config and the last parts of the keys, "iris-seed"; its folder is runs/iris-seed.
// Throws as read_sweep.
SweepFile sweep_of(const std::filesystem::path& config, const std::vector<std::string>& lists);

// Returns the config of a member: the file's, with `fixed`, `values` and then `sets` (a.b=c). Throws ConfigError.
Config sweep_config(const SweepFile& sweep, const Settings& values, const std::vector<std::string>& sets);

}  // namespace halfstep::app
