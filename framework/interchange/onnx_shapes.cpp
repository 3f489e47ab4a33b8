// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "framework/interchange/onnx_rows.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {
namespace row {  // separate from the ops of these names

// Ends of a slice: behind the last element, and before the first one for steps backward.
constexpr int64_t kEnd = std::numeric_limits<int64_t>::max(), kBegin = std::numeric_limits<int64_t>::min();

OnnxNames expand(OnnxCall& c) {
  std::vector<OnnxSize> to = c.sizes("shape");
  const Shape& from = c.x().shape();
  for (size_t i = 0; i < to.size(); ++i) {
    const int d = int(i) - int(to.size()) + from.size();
    if (to[i].batch && d >= 0 && from[d] == to[i].value) to[i] = {1};  // keeps the size of the input
  }
  return {c.node("Expand", {c.in(0), c.shape_in(to)})};
}

OnnxNames slice(OnnxCall& c) {
  const int64_t dim = c.integer("dim"), step = c.integer("step");
  const auto [from_a, from_b] = c.in_both("start");
  const auto [count_a, count_b] = c.in_both("count");
  const int64_t to_a = from_a + (count_a - 1) * step + 1, to_b = from_b + (count_b - 1) * step + 1;
  const bool to_end = to_a + step > c.x().size(int(dim)) && to_b + step > c.x_of_b().size(int(dim));
  const std::string end = to_end ? c.ints_in({kEnd}) : c.shape_in({c.size(to_a, to_b)});
  return {c.node("Slice", {c.in(0), c.shape_in({c.size(from_a, from_b)}), end, c.ints_in({dim}), c.ints_in({step})})};
}

// Exports split and unbind, whose sizes along the dimension do not depend on the number of samples.
OnnxNames split(OnnxCall& c) {
  const int64_t dim = c.integer("dim");
  OnnxNames out;
  int64_t at = 0;
  for (const int64_t size : c.ints("sizes")) {
    const std::string part = c.slice(c.in(0), dim, at, at + size);
    out.push_back(c.op() == "unbind" ? c.squeeze(part, dim) : part);
    at += size;
  }
  return out;
}

OnnxNames flip(OnnxCall& c) {
  std::string v = c.in(0);
  for (const int64_t d : c.ints("dims")) v = c.slice(v, d, -1, kBegin, -1);
  return {v};
}

OnnxNames roll(OnnxCall& c) {
  const int64_t dim = c.integer("dim"), shift = c.integer("shift");  // moves the last `shift` elements to the front
  return {c.node("Concat", {c.slice(c.in(0), dim, -shift, kEnd), c.slice(c.in(0), dim, 0, -shift)}, {{"axis", dim}})};
}

// Returns the dimensions counted from the front.
Ints positive_dims(const OnnxCall& c, Ints dims) {
  for (int64_t& d : dims) d = d < 0 ? d + c.x().dim() : d;
  return dims;
}

// Exports a reduction. Until opset 18, only ReduceSum takes its dimensions as an input.
OnnxNames reduce(OnnxCall& c, const char* op) {
  const Ints dims = positive_dims(c, c.ints("dims"));
  const bool as_input = std::string_view(op) == "ReduceSum";
  OnnxFile::Named a{{"keepdims", int64_t(c.flag("keepdim"))}};
  OnnxNames in{c.in(0, c.y().dtype())};
  if (!dims.empty() && as_input) in.push_back(c.ints_in(dims));
  if (!dims.empty() && !as_input) a.push_back({"axes", dims});
  return {c.node(op, in, a)};
}

OnnxNames any_or_all(OnnxCall& c) {
  const Ints dims = positive_dims(c, c.ints("dims"));
  OnnxFile::Named a{{"keepdims", int64_t(c.flag("keepdim"))}};
  if (!dims.empty()) a.push_back({"axes", dims});
  const std::string bits = c.cast(c.in(0, DType::boolean), DType::i32);
  return {c.cast(c.node(c.op() == "any" ? "ReduceMax" : "ReduceMin", {bits}, a), c.y().dtype())};
}

OnnxNames cat(OnnxCall& c) {
  OnnxNames in;
  for (size_t i = 0; i < c.inputs(); ++i)
    if (c.x(i).numel() > 0) in.push_back(c.in(i, c.y().dtype()));
  return {c.node("Concat", in, {{"axis", c.integer("dim")}})};
}

OnnxNames scatter(OnnxCall& c) {
  OnnxFile::Named a{{"axis", c.integer("dim")}};
  if (c.op() == "scatter_add") a.push_back({"reduction", std::string("add")});
  const DType t = c.y().dtype();
  return {c.node("ScatterElements", {c.in(0, t), c.in(1), c.in(2, t)}, a)};
}

// Returns a row that gathers along the op's dimension, or along `fixed_axis`, at the indices in input `index`.
OnnxRow gather_row(const char* op, size_t index, int64_t fixed_axis = -1) {
  return {[=](OnnxCall& c) {
    return OnnxNames{c.node(op, {c.in(0), c.in(index)}, {{"axis", fixed_axis >= 0 ? fixed_axis : c.integer("dim")}})};
  }};
}

}  // namespace row
}  // namespace

void add_shape_rows(OnnxRows& rows) {
  rows["view"] = {[](OnnxCall& c) { return OnnxNames{c.reshape(c.in(0), c.sizes("shape"))}; }};
  rows["permute"] = {[](OnnxCall& c) { return OnnxNames{c.node("Transpose", {c.in(0)}, {{"perm", c.ints("dims")}})}; }};
  rows["expand"] = {row::expand};
  rows["slice"] = {row::slice};
  rows["split"] = rows["unbind"] = {row::split};
  rows["flip"] = {row::flip};
  rows["roll"] = {row::roll};
  rows["cat"] = {row::cat};
  for (const auto& [ours, theirs] : {std::pair("sum", "ReduceSum"), std::pair("mean", "ReduceMean"), std::pair("amax", "ReduceMax"),
                                     std::pair("amin", "ReduceMin")})
    rows[ours] = {[op = theirs](OnnxCall& c) { return row::reduce(c, op); }};
  rows["any"] = rows["all"] = {row::any_or_all};
  for (const auto& [ours, theirs] : {std::pair("argmax", "ArgMax"), std::pair("argmin", "ArgMin")}) {
    rows[ours] = {[op = theirs](OnnxCall& c) {
      return OnnxNames{c.node(op, {c.in(0)}, {{"axis", c.integer("dim")}, {"keepdims", int64_t(c.flag("keepdim"))}})};
    }};
  }
  rows["embedding"] = row::gather_row("Gather", 1, 0);
  rows["index_select"] = row::gather_row("Gather", 1);
  rows["gather"] = row::gather_row("GatherElements", 1);
  rows["scatter"] = rows["scatter_add"] = {row::scatter};
}

const OnnxRows& onnx_rows() {
  static const OnnxRows all = [] {
    OnnxRows rows;
    add_elementwise_rows(rows);
    add_product_rows(rows);
    add_window_rows(rows);
    add_shape_rows(rows);
    add_recurrent_rows(rows);
    return rows;
  }();
  return all;
}

}  // namespace halfstep
