// SPDX-License-Identifier: Apache-2.0
// Exports modules for other runtimes.
//
//   export_onnx("digits.onnx", net, rand({1, 1, 28, 28}));  // any number of samples: onnxruntime, TensorRT, browsers ...
//
// Exports the module in evaluation mode, and restores its mode. Layers with states begin at zero. The file computes in float32, or
// in float16 if the caller is in an Autocast region of that dtype.
#pragma once

#include <filesystem>

#include "framework/interchange/onnx_export.h"
#include "layers/module/module.h"

namespace halfstep {

// example: inputs [N, ...] with distinct values, on the CPU, like the module. Throws ExportError
// (framework/interchange/onnx_export.h).
OnnxSummary export_onnx(const std::filesystem::path& path, Module& module, const Tensor& example, const OnnxOptions& options = {});
// Exports a module with other arguments, which `forward` calls.
//   export_onnx("m.onnx", net, [&](const Tensors& in) { return Tensors{net(in[0], in[1])}; }, {x, y});
OnnxSummary export_onnx(const std::filesystem::path& path, Module& module, const OnnxFunction& forward, const Tensors& examples,
                        const OnnxOptions& options = {});

}  // namespace halfstep
