// SPDX-License-Identifier: Apache-2.0
// THE op table: every op with inputs that exercise it. Rows of elementwise.def bring their own cases; all others are in
// tests/ops/cases/*.json, one line a case, read by these tests and by the scripts that ask PyTorch:
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
// name: what is special. attrs: the other arguments under PyTorch's names. gradient: false where there is none. ulps: allowed in
// 16-bit dtypes against the rounded float64 result (1). float64: true where the result is float64 whatever the inputs are.
// sampled: true reseeds the generator before each call.
// torch: false where PyTorch has no such op, torch_gradient: false where its gradient differs by design; slow_gradient: true skips
// second derivatives (they are checked on a smaller case). The drivers in this folder run each case as a gradient check, a second
// derivative check, on other layouts, in other dtypes, and hold the list against the registry.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "halfstep.h"

namespace halfstep::testing {

struct OpCase {
  std::string op;       // name in the registry
  std::string variant;  // what is special, for messages
  std::function<Tensors(const Tensors&)> run;
  Tensors inputs;        // float64 where floating; requires_grad where a gradient is checked
  bool gradient = true;  // false: no derivative (indices, tests)
  bool second_gradient = true;
  bool constants = false;  // has tensors that are no inputs
  double ulps = 1;         // allowed in 16-bit dtypes against the rounded float64 result
  bool always_f64 = false;  // the result is float64, whatever the inputs are
};

// With inputs and constants on `device`; the values are the same on every device. HALFSTEP_OP in the environment keeps only the
// ops whose name contains it.
std::vector<OpCase> op_cases(Device device = Device::cpu);

// Layouts that an op must take as it takes contiguous memory; they require grad where t does.
Tensor spread_out(const Tensor& t);  // the same values with gaps: every dimension doubled, every second element used
Tensor reversed(const Tensor& t);    // dimensions stored in reverse order
Tensor channels_last(const Tensor& t);  // of 4 and 5 dimensions: in that memory format; else t itself

// "conv2d, strides"
std::string title(const OpCase& c);
// The inputs with the floating ones in `dtype`; leaves, which require grad where they did.
Tensors in_dtype(const Tensors& in, DType dtype);

}  // namespace halfstep::testing
