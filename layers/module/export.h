// SPDX-License-Identifier: Apache-2.0
// Models for other runtimes.
//
//   export_onnx("digits.onnx", net, rand({1, 1, 28, 28}));  // any number of samples: onnxruntime, TensorRT, browsers ...
//
// The module is exported in evaluation mode, and is in the mode that it was in afterwards. Layers with states begin at zero. What
// the file computes is what the module does in a region of the caller's: float32, or float16 inside an Autocast of that dtype.
#pragma once

#include <filesystem>

#include "framework/interchange/onnx_export.h"
#include "layers/module/module.h"

namespace halfstep {

// example: inputs [N, ...] whose values differ, on the CPU, like the module. Throws ExportError
// (framework/interchange/onnx_export.h).
OnnxSummary export_onnx(const std::filesystem::path& path, Module& module, const Tensor& example, const OnnxOptions& options = {});
// Of a module with other arguments: `forward` calls it.
//   export_onnx("m.onnx", net, [&](const Tensors& in) { return Tensors{net(in[0], in[1])}; }, {x, y});
OnnxSummary export_onnx(const std::filesystem::path& path, Module& module, const OnnxFunction& forward, const Tensors& examples,
                        const OnnxOptions& options = {});

}  // namespace halfstep
