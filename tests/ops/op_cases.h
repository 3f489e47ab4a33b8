// THE op table: every op with inputs that exercise it. The drivers in this folder run each case as a gradient check, a second
// derivative check, on other layouts, in other dtypes, and hold the list against the registry.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "halfstep.h"

namespace halfstep::testing {

struct OpCase {
  std::string op;                                 // name in the registry
  std::string variant;                            // what is special, for messages
  std::function<Tensors(const Tensors&)> run;
  Tensors inputs;                                 // float64 where floating; requires_grad where a gradient is checked
  bool gradient = true;                           // false: no derivative (indices, tests)
  bool sampled = false;                           // values depend on layout or dtype by design (dropout)
  double ulps = 1;                                // allowed in 16-bit dtypes against the rounded float64 result
};

// With inputs and constants on `device`; the values are the same on every device.
std::vector<OpCase> op_cases(Device device = Device::cpu);

// Layouts that an op must take as it takes contiguous memory; they require grad where t does.
Tensor spread_out(const Tensor& t);  // the same values with gaps: every dimension doubled, every second element used
Tensor reversed(const Tensor& t);    // dimensions stored in reverse order

}  // namespace halfstep::testing
