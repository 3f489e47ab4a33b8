// SPDX-License-Identifier: Apache-2.0
#include "framework/interchange/onnx_call.h"

#include <algorithm>
#include <numeric>

#include "framework/ops/ops.h"

namespace halfstep {
namespace {

Ints ints_of(const Dims& dims) { return {dims.begin(), dims.end()}; }

double number_of(const Tensor& t) { return t.is_floating_point() ? t.item<double>() : double(t.item<int64_t>()); }

constexpr const char* kNoOp =
    "it reads values that depend on the input, the number of samples or a random draw by something that is no op";

}  // namespace

OnnxValue value_of(const TraceTensor& t) {
  const Tensor& x = t.tensor;
  return {x.storage().get(), x.const_data_ptr(), ints_of(x.shape()), ints_of(x.strides()), x.dtype(), t.version};
}

bool same_values(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  const Tensor differs = ne(a, b);
  return !any(a.is_floating_point() ? logical_and(differs, logical_or(eq(a, a), eq(b, b))) : differs, Dims{}, false).item<bool>();
}

std::string OnnxGraph::samples() {
  if (samples_.empty()) {
    file.layer("");
    samples_ = file.node("Slice", {file.node("Shape", {batch_input}), file.ints({batch_dim}), file.ints({batch_dim + 1})});
  }
  return samples_;
}

bool OnnxCall::has(std::string_view name) const {
  return std::any_of(a_.attributes.begin(), a_.attributes.end(), [&](const Attribute& x) { return x.name == name; });
}

OnnxSize OnnxCall::size(int64_t a, int64_t b) const {
  if (a == b) return {a};
  if (a % graph_.samples_a != 0 || a / graph_.samples_a * graph_.samples_b != b)
    refuse("a size of it is ", a, " with ", graph_.samples_a, " samples and ", b, " with ", graph_.samples_b,
           ", which is no multiple of their number");
  return {a, true};
}
std::pair<int64_t, int64_t> OnnxCall::in_both(std::string_view name) const {
  const auto *a = find_attribute<int64_t>(a_.attributes, name), *b = find_attribute<int64_t>(b_.attributes, name);
  if (!a || !b) refuse("it says nothing of ", name);
  return {*a, *b};
}
OnnxSize OnnxCall::size(std::string_view name) const {
  const auto [a, b] = in_both(name);
  return size(a, b);
}
std::vector<OnnxSize> OnnxCall::sizes(std::string_view name) const {
  const auto *a = find_attribute<Ints>(a_.attributes, name), *b = find_attribute<Ints>(b_.attributes, name);
  if (!a || !b || a->size() != b->size()) refuse("it says nothing of ", name);
  std::vector<OnnxSize> out;
  for (size_t i = 0; i < a->size(); ++i) out.push_back(size((*a)[i], (*b)[i]));
  return out;
}
std::vector<OnnxSize> OnnxCall::result_shape(size_t i) const {
  const Shape &a = a_.outputs[i].tensor.shape(), &b = b_.outputs[i].tensor.shape();
  std::vector<OnnxSize> out;
  for (int d = 0; d < a.size(); ++d) out.push_back(size(a[d], b[d]));
  return out;
}

bool OnnxCall::varies(size_t i) const { return has_input(i) && graph_.varying.contains(value_of(a_.inputs[i])); }
bool OnnxCall::any_varies() const {
  for (size_t i = 0; i < a_.inputs.size(); ++i)
    if (varies(i)) return true;
  return false;
}
bool OnnxCall::is_number(size_t i) const { return has_input(i) && x(i).impl()->wrapped_number && !varies(i); }

std::string OnnxCall::in(size_t i) {
  if (!has_input(i)) return "";
  const auto found = graph_.varying.find(value_of(a_.inputs[i]));
  return found != graph_.varying.end() ? found->second : constant_of(i);
}
std::string OnnxCall::in(size_t i, DType dtype) {
  if (is_number(i)) {
    const double a = number_of(x(i)), b = number_of(x_of_b(i));
    if (a != b && (a == a || b == b)) refuse(kNoOp);
    return number(a, dtype);
  }
  return x(i).dtype() == dtype ? in(i) : cast(in(i), dtype);
}

// Returns the name of a constant: a tensor that no op made from the inputs, such as a weight, a mask or a position.
std::string OnnxCall::constant_of(size_t i) {
  const Tensor &a = x(i), &b = x_of_b(i);
  const OnnxValue value = value_of(a_.inputs[i]);
  if (const auto found = graph_.constants.find(value); found != graph_.constants.end()) return found->second;
  const auto named = graph_.parameters.find(value);
  std::string out;
  if (a.shape() == b.shape()) {
    if (!same_values(a, b)) refuse(kNoOp);
    out = graph_.file.constant(a, named == graph_.parameters.end() ? "" : named->second);
  } else {  // a slice per sample: all must be equal
    int d = 0;
    while (a.dim() == b.dim() && d < a.dim() && a.size(d) == b.size(d)) ++d;
    if (a.dim() != b.dim() || d == a.dim()) refuse(kNoOp);
    const OnnxSize batch_size = size(a.size(d), b.size(d));
    const Tensor first = a.narrow(d, 0, 1).contiguous();
    Shape b_with_size_of_a = b.shape();
    b_with_size_of_a[d] = a.size(d);
    if (b_with_size_of_a != a.shape() || !same_values(first.expand(a.shape()), a) || !same_values(first.expand(b.shape()), b))
      refuse(kNoOp);
    std::vector<OnnxSize> shape;
    for (int k = 0; k < a.dim(); ++k) shape.push_back(k == d ? batch_size : OnnxSize{a.size(k)});
    out = node("Expand", {graph_.file.constant(first), shape_in(shape)});
  }
  graph_.constants[value] = out;
  return out;
}

std::string OnnxCall::shape_in(const std::vector<OnnxSize>& sizes) {
  if (std::none_of(sizes.begin(), sizes.end(), [](const OnnxSize& s) { return s.batch; })) {
    Ints all;
    for (const OnnxSize& s : sizes) all.push_back(s.value);
    return ints_in(all);
  }
  OnnxNames parts;
  for (const OnnxSize& s : sizes) {
    const int64_t factor = s.value / graph_.samples_a;
    parts.push_back(!s.batch      ? ints_in({s.value})
                    : factor == 1 ? graph_.samples()
                                  : node("Mul", {graph_.samples(), ints_in({factor})}));
  }
  return parts.size() == 1 ? parts[0] : node("Concat", parts, {{"axis", int64_t(0)}});
}

std::string OnnxCall::reshape(const std::string& value, const std::vector<OnnxSize>& sizes) {
  const auto batch_sizes = std::count_if(sizes.begin(), sizes.end(), [](const OnnxSize& s) { return s.batch; });
  const bool has_zero = std::any_of(sizes.begin(), sizes.end(), [](const OnnxSize& s) { return s.value == 0; });
  if (batch_sizes > 1 || has_zero) return node("Reshape", {value, shape_in(sizes)}, {{"allowzero", int64_t(1)}});
  Ints shape;
  for (const OnnxSize& s : sizes) shape.push_back(s.batch ? -1 : s.value);
  return node("Reshape", {value, ints_in(shape)});
}

std::string OnnxCall::slice(const std::string& value, int64_t dim, int64_t from, int64_t to, int64_t step) {
  return node("Slice", {value, ints_in({from}), ints_in({to}), ints_in({dim}), ints_in({step})});
}

std::string OnnxCall::multiply_along(const std::string& value, int64_t dim, int rank, const Tensor& matrix) {
  Ints order(size_t(rank), 0);
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[size_t(dim)], order.back());
  const bool last = dim == rank - 1;
  const std::string transposed = last ? value : node("Transpose", {value}, {{"perm", order}});
  const std::string out = node("MatMul", {transposed, constant(matrix.t().contiguous().to(x(0).dtype()))});
  return last ? out : node("Transpose", {out}, {{"perm", order}});
}

}  // namespace halfstep
