// SPDX-License-Identifier: Apache-2.0
// The tuner's verdicts, kept from run to run: a text file with a line for each kind of product on each combination of GPU, driver
// and library, and for each kind of convolution (cuda/dnn/library.h), whose rungs are `cudnn` and `unfold`.
//
//   halfstep products 1
//   <device> TAB <kind of product> TAB <rung> <candidate> <algorithm> <milliseconds>
//
// HALFSTEP_TUNE_FILE in the environment names it; set but empty: none is kept. Else $XDG_CACHE_HOME/halfstep/products.txt, or
// ~/.cache/halfstep/products.txt. What cannot be read is passed over, and a file that is no such list is left as it is, each with
// a warning.
#pragma once

#include <optional>
#include <string>

namespace halfstep::cuda {

struct Verdict {
  std::string rung;
  int candidate = 0, algorithm = -1;  // of those that the library offered for the rung, and its number
  double ms = 0;
};

// `device`: everything besides the product that a verdict depends on, in one line.
std::optional<Verdict> recall_verdict(const std::string& device, const std::string& product);
void remember_verdict(const std::string& device, const std::string& product, const Verdict& verdict);

// Where they are kept now; empty: nowhere.
std::string verdict_file();

}  // namespace halfstep::cuda
