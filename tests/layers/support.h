// SPDX-License-Identifier: Apache-2.0
// Helpers of tests of layers.
#pragma once

#include <string>
#include <vector>

#include "layers/module/module.h"

namespace halfstep::testing {

inline std::vector<std::string> names(const std::vector<NamedTensor>& list) {
  std::vector<std::string> out;
  for (const NamedTensor& n : list) out.push_back(n.name);
  return out;
}
inline double largest(const Tensor& t) { return t.detach().abs().max().item<double>(); }

}  // namespace halfstep::testing
