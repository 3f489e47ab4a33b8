// SPDX-License-Identifier: Apache-2.0
// An ONNX model under construction: nodes, constants and the file.
// Format: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "framework/interchange/protobuf.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

// Versions that onnxruntime 1.12 (2022) and TensorRT 8.6 support; runtimes refuse files of later versions.
inline constexpr int64_t kOnnxOpset = 17, kOnnxIrVersion = 8;

// Returns the number of a dtype in TensorProto.DataType. Throws ExportError for bfloat16, in which runtimes do not compute.
int64_t onnx_type(DType dtype);

// Returns the bytes of a TensorProto, as in the input_0.pb of a test_data_set.
std::string onnx_tensor(const Tensor& value, const std::string& name);

class OnnxFile {
 public:
  using Value = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<std::string>>;
  using Named = std::vector<std::pair<std::string, Value>>;
  using Names = std::vector<std::string>;

  // Adds a node; returns the names of its outputs. "" omits an input.
  Names nodes(const std::string& op, const Names& inputs, const Named& attributes, int outputs);
  std::string node(const std::string& op, const Names& inputs, const Named& attributes = {}) {
    return nodes(op, inputs, attributes, 1)[0];
  }
  // Adds a tensor to the file; returns its name, which is `name` unless that is empty or in use.
  std::string constant(const Tensor& value, const std::string& name = "");
  // Add a list of int64, or a number, as a constant that all nodes with the same one share; return its name.
  std::string ints(const std::vector<int64_t>& values);
  std::string number(double value, DType dtype);

  // Adds an input. batch: the dimension of any size; -1: none.
  void input(const std::string& name, DType dtype, const Shape& shape, int batch);
  // Makes a value an output of that name.
  void result(const std::string& value, const std::string& name, DType dtype, const Shape& shape, int batch);
  // Sets the layer of the following nodes, for their names.
  void layer(const std::string& path) { layer_ = path; }
  const std::map<std::string, int64_t>& ops() const { return ops_; }

  // Writes path and, with `external` or if one file would exceed the format's 2 GiB, the tensors to path + ".data". Returns the
  // bytes written. Throws IoError.
  int64_t save(const std::filesystem::path& path, const std::map<std::string, std::string>& metadata, bool external) const;

 private:
  struct Constant {
    std::string name;
    Tensor value;
  };
  // Returns `name`, or the name with a number that makes it unused, and notes that it is used.
  std::string unused(const std::string& name);

  std::string nodes_, inputs_and_outputs_;  // fields of a GraphProto
  std::vector<Constant> constants_;
  std::map<std::string, std::string> shared_constants_;  // names of lists and numbers, by content
  std::map<std::string, int64_t> ops_;                   // number of nodes of each kind
  std::map<std::string, int64_t> names_;                 // how often unused() was called with each name
  std::string layer_;
};

}  // namespace halfstep
