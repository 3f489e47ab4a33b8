// SPDX-License-Identifier: Apache-2.0
// Exports a function of tensors as an ONNX file, opset 17. For modules: layers/module/export.h.
//
// Calls the function once without a trace, so that layers make what they keep. Then calls it with two samples and with three, of
// different values, and traces both calls (framework/backend/graph_trace.h). The traces must contain the same calls. A size that
// differs between them must be a multiple of the number of samples, so that the file accepts any number of them. A tensor that no
// op made from the inputs is a constant; it must be equal in both traces, or the same for every sample. Refuses everything else:
// values read on the host, random draws, the number of samples as a value. It cannot see a branch that neither call took.
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
  int batch_dim = 0;                        // of inputs and outputs with samples
  bool external = false;                    // whether tensors go into a separate file path + ".data"; always above 2 GiB
  std::map<std::string, std::string> metadata{};
};

struct OnnxSummary {
  std::map<std::string, int64_t> ops;  // number of nodes of each kind
  int64_t bytes = 0;                   // bytes written
};

using OnnxFunction = std::function<Tensors(const Tensors&)>;

// Writes the file. names: of parameters and buffers, for their constants. examples: the function's inputs, on the CPU; dimension
// batch_dim of the first one is the number of samples, and so is that of others with the same size there. The samples of both
// calls are made from them: of the second in another order, or with other values if all are equal. Throws ExportError, which names
// op and layer, and IoError.
OnnxSummary export_onnx(const std::filesystem::path& path, const OnnxFunction& function,
                        const std::vector<std::pair<std::string, Tensor>>& names, const Tensors& examples,
                        const OnnxOptions& options = {});

}  // namespace halfstep
