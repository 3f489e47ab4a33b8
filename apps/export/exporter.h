// SPDX-License-Identifier: Apache-2.0
// A trained model on its way out: as an ONNX file, as one safetensors file, as a folder with a model card, as PyTorch and as C++
// code. Each carries golden samples (apps/use/golden_samples.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "apps/use/model_file.h"
#include "apps/use/predictor.h"

namespace halfstep::app {

struct ExportOptions {
  std::string to = "onnx";     // onnx, safetensors, dir, torch or cpp
  std::filesystem::path out;   // empty: named after the run, in the current folder
  DType dtype = DType::f32;    // f16: of ONNX, computed as mixed precision does; of safetensors, as the weights are stored
  bool raw = false;            // ONNX: without preparation, and with numbers as the model gives them
  bool probabilities = false;  // ONNX: the loss's last step behind the model
  bool external = false;       // ONNX: tensors in a file of their own
  int64_t test_data = 0;       // ONNX: so many folders test_data_set_0 ... with inputs and outputs
  bool averages = true;        // averaged weights, where the run has them
  bool replace = false;        // what is at `out`
};

struct Exported {
  std::filesystem::path path;
  int64_t bytes = 0;
  std::string notes{};  // lines about what is special
  std::string use{};    // a command or a line that uses it
};

// Throws as Predictor, ExportError for a model that has no such form, ConfigError for options that do not fit each other, and
// IoError.
Exported export_model(const std::filesystem::path& model, const ExportOptions& options);

// ---- the parts of it
struct ExportSource {
  std::filesystem::path path;  // the checkpoint or file
  StoredModel stored;
  Predictor model;  // on the CPU, in float32
  Json data;        // form and transforms

  ExportSource(const std::filesystem::path& at, bool averages);
  ModelFile as_file() const;
  // Of the model with these weights as the run computes it: in mixed precision, if it used that.
  Proof proof_as_run(const TensorMap& weights) const;
  std::string use_by_name() const;  // "predict" or "generate"
};
Exported export_onnx_model(const ExportSource& source, const ExportOptions& options);
Exported export_safetensors(const ExportSource& source, const ExportOptions& options);
Exported export_folder(const ExportSource& source, const ExportOptions& options);
Exported export_torch(const ExportSource& source, const ExportOptions& options);
Exported export_cpp(const ExportSource& source, const ExportOptions& options);

// Writes files of code with the weights and golden samples that they read.
struct Preparation;
Exported write_code(const ExportSource& source, const ExportOptions& options, const Preparation& prepare,
                    const std::map<std::string, std::string>& files);

// The README.md of a folder: what the model is, how good, on what data, and how to use it from each side.
std::string model_card(const ExportSource& source);

}  // namespace halfstep::app
