// SPDX-License-Identifier: Apache-2.0
// The tuner's results, stored between runs: a text file with a line for each kind of product on each combination of GPU, driver
// and library, and for each kind of convolution (cuda/dnn/library.h), whose rungs are `cudnn` and `unfold`.
//
//   halfstep products 1
//   <device> TAB <kind of product> TAB <rung> <candidate> <algorithm> <milliseconds>
//
// HALFSTEP_TUNE_FILE in the environment names it; set but empty: none. Otherwise $XDG_CACHE_HOME/halfstep/products.txt, or
// ~/.cache/halfstep/products.txt. Unreadable lines are skipped, and a file that is not such a list is not changed, each with a
// warning.
#pragma once

#include <optional>
#include <string>

namespace halfstep::cuda {

struct TuningResult {
  std::string rung;
  int candidate = 0, algorithm = -1;  // index among the candidates for the rung, and the library's number of the algorithm
  double ms = 0;
};

// Returns the stored result. `device`: everything besides the product on which it depends, in one line.
std::optional<TuningResult> recall_tuning(const std::string& device, const std::string& product);
// Stores a result in the file; a failure is a warning.
void remember_tuning(const std::string& device, const std::string& product, const TuningResult& result);

// Returns the file in use; empty: none.
std::string tuning_file();

}  // namespace halfstep::cuda
