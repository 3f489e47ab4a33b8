// SPDX-License-Identifier: Apache-2.0
// A function of tensors as an ONNX file, opset 17. Modules: layers/export.h.
//
// The function is called with two samples and with three, of different values, and both calls are traced
// (framework/backend/graph_trace.h). The traces must be the same calls. A size that differs between them must be a multiple of
// the number of samples: so the file takes any number of them. A tensor that no op made from the inputs is a constant, and must be
// equal in both traces, or the same for every sample. What does not fit is refused: values that are read on the host, random draws,
// the number of samples as a value. A branch that neither call took cannot be seen this way.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/backend/export_error.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

struct OnnxOptions {
  std::vector<std::string> input_names{};   // empty: "input", or "input0", "input1" ...
  std::vector<std::string> output_names{};  // empty: "output", or "output0" ...
  int batch_dim = 0;                        // of inputs and outputs that have samples
  bool external = false;                    // tensors in a file of their own beside it: path + ".data"; always above 2 GiB
  std::map<std::string, std::string> metadata{};
};

struct OnnxSummary {
  std::map<std::string, int64_t> ops;  // nodes by kind
  int64_t bytes = 0;                   // written
};

using OnnxFunction = std::function<Tensors(const Tensors&)>;

// names: of parameters and buffers, for the constants that they become. examples: the function's inputs, on the CPU; dimension
// batch_dim of the first is the number of samples, and so of the others that have the same size there. From them come the samples
// of the two calls, in other orders. Throws ExportError, which names op and layer, and IoError.
OnnxSummary export_onnx(const std::filesystem::path& path, const OnnxFunction& function,
                        const std::vector<std::pair<std::string, Tensor>>& names, const Tensors& examples,
                        const OnnxOptions& options = {});

}  // namespace halfstep
