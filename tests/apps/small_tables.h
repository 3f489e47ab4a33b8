// SPDX-License-Identifier: Apache-2.0
// Small tables, and runs that are trained on them.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "tests/apps/support.h"

namespace halfstep::app::testing {

const std::string kSquared = R"("loss": "MSELoss")";

// Trains r on a file; `data` are keys of data.train, `rest` the loss and what else the config has.
inline void train_on(const TempDir& dir, const std::string& data, const std::string& rest = kSquared) {
  write(dir / "c.json", R"({"output_dir": "r", "model": {"type": "MLP", "hidden": [4]}, "optimizer": {"type": "AdamW", "lr": 0.02},
    "train": {"epochs": 2}, "data": {"root": ".", "train": {)" +
                            data + R"(}, "loader": {"batch_size": 16}}, )" + rest + "}");
  const Ran r = run(dir, "train c.json --quiet --overwrite");
  REQUIRE_MESSAGE(r.code == 0, r.err);
}

inline std::string table_of(const std::string& head, int n, const std::function<std::string(int)>& row) {
  std::string out = head;
  for (int i = 0; i < n; ++i) out += row(i) + '\n';
  return out;
}

}  // namespace halfstep::app::testing
