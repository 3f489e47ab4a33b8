// SPDX-License-Identifier: Apache-2.0
// The op table: every op with inputs that exercise it. Rows of elementwise.def bring their own cases; all others are in
// tests/ops/cases/*.json, one line for each case, which these tests and the scripts that run PyTorch read:
//
//   {"op": "conv2d", "name": "strides", "in": [[2, 3, 8, 8], [4, 3, 3, 3], [4]], "attrs": {"stride": 2}, "ulps": 2}
//
// in: the tensor arguments in call order, each one of
//   [2, 3]                                     that shape, uniform in [-2, 2], differentiated
//   {"shape": [2, 3], "lo": 0.1, "hi": 1}      other bounds; "grad": false: not differentiated; "distinct": true: values 0.05 apart
//   {"values": [1, 0, 2], "dtype": "int64"}    these values ("shape" unless 1-D); "grad": true differentiates floating ones
//   {"list": [...]}                            a list argument
//   null                                       left out
//   with "constant": true the tensor keeps its dtype and layout in the tests that change those of the inputs
// name: the case's specialty. attrs: the other arguments under PyTorch's names. gradient: false if there is none. ulps: allowed in
// 16-bit dtypes against the rounded float64 result (1). float64: true if the result is float64 for all inputs. sampled: true
// reseeds the generator before each call. torch: false if PyTorch lacks the op, torch_gradient: false if its gradient differs by
// design; slow_gradient: true skips second derivatives (they are checked on a smaller case). The drivers in this folder run each
// case as a gradient check, a second derivative check, on other layouts, in other dtypes, and compare the list with the registry.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "halfstep.h"

namespace halfstep::testing {

struct OpCase {
  std::string op;       // name in the registry
  std::string variant;  // the case's specialty, for messages
  std::function<Tensors(const Tensors&)> run;
  Tensors inputs;        // floating ones in float64; requires_grad if a gradient is checked
  bool gradient = true;  // false: no derivative (indices, tests)
  bool second_gradient = true;
  bool constants = false;  // has tensors that are not inputs
  double ulps = 1;         // allowed in 16-bit dtypes against the rounded float64 result
  bool always_f64 = false;  // the result is float64 for all inputs
};

// Returns the cases with inputs and constants on `device`; values are the same on every device. HALFSTEP_OP in the environment
// keeps only ops whose name contains it.
std::vector<OpCase> op_cases(Device device = Device::cpu);

// Layouts that an op must treat like contiguous memory; they require grad if t does.
Tensor spread_out(const Tensor& t);  // with gaps: every dimension doubled, every second element used
Tensor reversed(const Tensor& t);    // dimensions stored in reverse order
Tensor channels_last(const Tensor& t);  // for 4 and 5 dimensions; else t itself

// Returns "conv2d, strides".
std::string title(const OpCase& c);
// Returns the inputs as leaves, with the floating ones in `dtype`; they require grad as before.
Tensors in_dtype(const Tensors& in, DType dtype);

}  // namespace halfstep::testing
