// SPDX-License-Identifier: Apache-2.0
// Exports a trained model: as an ONNX file, as one safetensors file, as a folder with a model card, as PyTorch and as C++ code.
// Each export has golden samples (apps/use/golden_samples.h).
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
  DType dtype = DType::f32;    // f16: in ONNX computes as mixed precision does; in safetensors the dtype of stored weights
  bool raw = false;            // ONNX: no preparation, and numbers as the model returns them
  bool probabilities = false;  // ONNX: appends the loss's activation to the model
  bool external = false;       // ONNX: tensors in a separate file
  int64_t test_data = 0;       // ONNX: number of folders test_data_set_0 ... with inputs and outputs
  bool averages = true;        // use averaged weights, if the run has them
  bool replace = false;        // replace an existing export
};

// What an export has written.
struct Exported {
  std::filesystem::path path;
  int64_t bytes = 0;
  std::string notes{};  // lines about special properties
  std::string use{};    // a command or a line of code that uses it
};

// Throws as Predictor, ExportError for a model that cannot be exported in this form, ConfigError for conflicting options, and
// IoError.
Exported export_model(const std::filesystem::path& model, const ExportOptions& options);

// ---- parts of an export

// The model to export.
struct ExportSource {
  StoredModel stored;
  Predictor model;  // on the CPU, in float32
  Json data;        // form and transforms

  ExportSource(const std::filesystem::path& run_or_file, bool averages);
  ModelFile as_file() const;
  // Returns the proof of the model with these weights in the run's precision.
  Proof proof_as_run(const TensorMap& weights) const;
  std::string command() const;  // that uses it: "predict" or "generate"
};
Exported export_onnx_model(const ExportSource& source, const ExportOptions& options);
Exported export_safetensors(const ExportSource& source, const ExportOptions& options);
Exported export_folder(const ExportSource& source, const ExportOptions& options);
Exported export_torch(const ExportSource& source, const ExportOptions& options);
Exported export_cpp(const ExportSource& source, const ExportOptions& options);

// Writes files of code, with the weights and golden samples that they read.
struct Preparation;
Exported write_code(const ExportSource& source, const ExportOptions& options, const Preparation& prepare,
                    const std::map<std::string, std::string>& files);

// Returns the README.md of a folder: the model, its metrics, its data, and how to use it in each language.
std::string model_card(const ExportSource& source);

}  // namespace halfstep::app
