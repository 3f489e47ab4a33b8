// SPDX-License-Identifier: Apache-2.0
// The file that describes a sweep (docs/configs.md#sweeps): a config, and the values that some of its keys take.
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
  std::string name;                  // left out: the file's
  std::filesystem::path output_dir;  // left out: runs/ and the name
  std::filesystem::path base;        // of the config, relative to the working directory; empty: `config`
  Json config;
  Settings fixed;                 // "set": the same for all members
  std::vector<std::string> keys;  // that members differ in, in the order of the file
  std::vector<Settings> members;  // of a grid, the values of its last key change first; each draw has a whole grid
};

// Throws ConfigError that lists all that is wrong, each with its line.
SweepFile read_sweep(const std::filesystem::path& path);

// The sweep over a config's keys that a command line spells: "seed=0,1,2", "optimizer.lr=[0.1,0.01]", "data.fold=[0,5],[1,5]" or
// "optimizer=SGD,AdamW", each a key of a grid. It is named as the config and the keys: runs/iris-seed. Throws as read_sweep.
SweepFile sweep_of(const std::filesystem::path& config, const std::vector<std::string>& lists);

// The config of a member: that of the file, with `fixed`, `values` and then `sets` (a.b=c). Throws ConfigError.
Config sweep_config(const SweepFile& sweep, const Settings& values, const std::vector<std::string>& sets);

}  // namespace halfstep::app
