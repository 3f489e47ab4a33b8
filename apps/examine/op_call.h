// SPDX-License-Identifier: Apache-2.0
// Calls one op by name on tensors of a file: `halfstep op`, for reproducing errors and for comparing ops with another framework.
//
// Input file: tensors "0", "1", ... are the tensor arguments in order, "1.0", "1.1", ... a list argument; a missing one is an
// omitted argument. Optionally "w" (or "w.0", ... for several outputs) weighs the outputs for the gradient.
// Output file: "out" (or "out.0", "out.1", ... for several), and with `grad` the gradient of the sum of w * out over all floating
// outputs, for each floating input, as "grad." and the input's name; an input without a gradient is missing.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/schema/json.h"
#include "framework/base/device.h"
#include "framework/base/dtype.h"
#include "framework/io/weights/tensor_map.h"

namespace halfstep::app {

struct OpCall {
  std::string op;
  std::filesystem::path in = {};  // empty: no tensors
  nlohmann::json attrs = nlohmann::json::object();
  std::optional<DType> autocast = {};
  Device device = Device::cpu;
  bool grad = false;
  std::filesystem::path out = {};  // empty: do not write results
};

// Parses a line of a batch: {"op": "conv2d", "in": "c7.safetensors", "attrs": {"stride": 2}, "autocast": "float16", "device":
// "cpu", "grad": true, "out": "o7.safetensors"}; all except "op" may be omitted or null. Throws ConfigError.
OpCall read_op_call(std::string_view line);
// Parses a JSON object of attributes. Throws ConfigError.
nlohmann::json read_attributes(std::string_view text);
// Parses the region's dtype; throws ConfigError unless it is float16 or bfloat16.
DType autocast_dtype(const std::string& name);

// Runs the op, writes `out`, and returns the tensors written. Throws as the op does.
TensorMap run_op_call(const OpCall& call);

// Returns {"ok": true, "outputs": [{"name": "out", "dtype": "float32", "shape": [2, 3]}]}.
Json describe_outputs(const TensorMap& outputs);
// Describes the exception being handled, of any type: {"ok": false, "type": "ShapeError", "error": "[conv2d] ..."}.
Json describe_exception();

}  // namespace halfstep::app
