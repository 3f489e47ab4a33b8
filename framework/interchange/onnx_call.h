// SPDX-License-Identifier: Apache-2.0
// One op call of a model during its export to ONNX. It was traced twice, as `a` and `b`, with different numbers of samples. A row
// (onnx_rows.h) turns it into nodes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "framework/backend/graph_trace.h"
#include "framework/interchange/onnx_file.h"

namespace halfstep {

using OnnxNames = std::vector<std::string>;
using Ints = std::vector<int64_t>;

// A size, as in trace a.
struct OnnxSize {
  int64_t value;
  bool batch = false;  // whether it is a multiple of the number of samples
};

// A value: elements of memory as a handle shows them, until an op writes there.
using OnnxValue = std::tuple<const void*, const void*, Ints, Ints, DType, uint64_t>;
OnnxValue value_of(const TraceTensor& t);

// The values of the file that have names, while calls are added in order.
struct OnnxGraph {
  OnnxFile file;
  int64_t samples_a = 0, samples_b = 0;
  std::string batch_input;  // the input and dimension whose size is the number of samples
  int64_t batch_dim = 0;
  std::map<OnnxValue, std::string> varying;     // values that depend on the inputs
  std::map<OnnxValue, std::string> constants;   // values in the file that do not depend on them
  std::map<OnnxValue, std::string> parameters;  // parameters and buffers, which become constants of these names

  // Returns the name of the number of samples, a tensor of one element. Adds its nodes at the first call.
  std::string samples();

 private:
  std::string samples_;
};

class OnnxCall {
 public:
  OnnxCall(OnnxGraph& graph, const TraceCall& a, const TraceCall& b) : graph_(graph), a_(a), b_(b) {}

  const std::string& op() const { return a_.op; }
  // Throws ExportError with the op and layer.
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail<ExportError>("export", joined(parts...), ": op ", a_.op, a_.layer.empty() ? "" : " of layer " + a_.layer);
  }

  // ---- attributes; except for sizes(), they must be the same for any number of samples
  bool has(std::string_view name) const;
  bool flag(std::string_view name) const { return get<bool>(name); }
  int64_t integer(std::string_view name) const { return get<int64_t>(name); }
  double real(std::string_view name) const { return get<double>(name); }
  const std::string& word(std::string_view name) const { return get<std::string>(name); }
  const Ints& ints(std::string_view name) const { return get<Ints>(name); }
  std::vector<OnnxSize> sizes(std::string_view name) const;
  OnnxSize size(std::string_view name) const;
  std::pair<int64_t, int64_t> in_both(std::string_view name) const;  // in traces a and b
  // Returns the size that is `a` in trace a and `b` in trace b. Refuses one that is no multiple of the number of samples.
  OnnxSize size(int64_t a, int64_t b) const;

  // ---- tensors
  size_t inputs() const { return a_.inputs.size(); }
  bool has_input(size_t i) const { return i < a_.inputs.size() && a_.inputs[i].tensor.defined(); }
  const Tensor& x(size_t i = 0) const { return a_.inputs[i].tensor; }  // as in trace a
  const Tensor& y(size_t i = 0) const { return a_.outputs[i].tensor; }
  const Tensor& x_of_b(size_t i = 0) const { return b_.inputs[i].tensor; }  // as in trace b
  std::vector<OnnxSize> result_shape(size_t i = 0) const;
  bool varies(size_t i) const;  // whether input i depends on the model's inputs
  bool any_varies() const;
  bool is_number(size_t i) const;  // whether input i is a C++ number

  // ---- nodes; these functions add them, and return the name of the result
  OnnxFile& file() { return graph_.file; }
  std::string node(const std::string& op, const OnnxNames& in, const OnnxFile::Named& attributes = {}) {
    return graph_.file.node(op, in, attributes);
  }
  std::string in(size_t i);               // input i; "" if it is omitted
  std::string in(size_t i, DType dtype);  // input i, converted to this dtype
  std::string cast(const std::string& value, DType dtype) { return node("Cast", {value}, {{"to", onnx_type(dtype)}}); }
  std::string ints_in(const Ints& values) { return graph_.file.ints(values); }
  std::string number(double value, DType dtype) { return graph_.file.number(value, dtype); }
  std::string constant(const Tensor& value) { return graph_.file.constant(value); }
  std::string shape_in(const std::vector<OnnxSize>& sizes);  // a shape as a tensor of int64
  std::string reshape(const std::string& value, const std::vector<OnnxSize>& sizes);
  std::string slice(const std::string& value, int64_t dim, int64_t from, int64_t to, int64_t step = 1);
  std::string squeeze(const std::string& value, int64_t dim) { return node("Squeeze", {value, ints_in({dim})}); }
  std::string unsqueeze(const std::string& value, int64_t dim) { return node("Unsqueeze", {value, ints_in({dim})}); }
  // Applies a matrix [out, in] along a dimension of `value`, which has `rank` dimensions.
  std::string multiply_along(const std::string& value, int64_t dim, int rank, const Tensor& matrix);

 private:
  template <class T>
  const T& get(std::string_view name) const {
    const T *a = find_attribute<T>(a_.attributes, name), *b = find_attribute<T>(b_.attributes, name);
    if (!a || !b) refuse("it says nothing of ", name);
    if (*a != *b) refuse("its ", name, " changes with the number of samples");
    return *a;
  }
  std::string constant_of(size_t i);

  OnnxGraph& graph_;
  const TraceCall &a_, &b_;
};

// Returns whether both have one shape and equal elements; NaN equals NaN.
bool same_values(const Tensor& a, const Tensor& b);

}  // namespace halfstep
