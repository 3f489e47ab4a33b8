// SPDX-License-Identifier: Apache-2.0
#include "framework/interchange/onnx_rows.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {
namespace row {  // separate from the ops of these names

// Exports x W^T + b.
OnnxNames linear(OnnxCall& c) {
  OnnxNames in{c.in(0), c.in(1)};
  if (c.has_input(2)) in.push_back(c.in(2));
  const std::string y = c.node("Gemm", in, {{"transB", int64_t(1)}});
  return {c.flag("relu") ? c.node("Relu", {y}) : y};
}

// Exports beta * input + alpha * (a b).
OnnxNames addmm(OnnxCall& c) {
  const DType t = c.y().dtype();
  const auto scaled = [&](const std::string& v, double by) { return by == 1 ? v : c.node("Mul", {v, c.number(by, t)}); };
  const std::string product = scaled(c.node("MatMul", {c.in(1), c.in(2)}), c.real("alpha"));
  return {c.real("beta") == 0 ? product : c.node("Add", {scaled(c.in(0), c.real("beta")), product})};
}

// Rounds the result of a normalisation, which computes in float32 for every smaller dtype, to the dtype of the op's result.
OnnxNames round_result(OnnxCall& c, const std::string& y) {
  return {c.y().dtype() == DType::f32 || c.y().dtype() == DType::f64 ? y : c.cast(y, c.y().dtype())};
}
DType computation_dtype_of(const OnnxCall& c) { return c.x().dtype() == DType::f64 ? DType::f64 : DType::f32; }

OnnxNames batch_norm(OnnxCall& c) {
  enum { kX, kMean, kVar, kWeight, kBias };
  const DType t = computation_dtype_of(c);
  const auto input_or_full = [&](size_t i, double value) {
    return c.has_input(i) ? c.in(i, t) : c.constant(full({c.x().size(1)}, value, {.dtype = t}));
  };
  const OnnxNames y = round_result(
      c, c.node("BatchNormalization",
                {c.in(kX, t), input_or_full(kWeight, 1), input_or_full(kBias, 0), input_or_full(kMean, 0), input_or_full(kVar, 1)},
                {{"epsilon", c.real("eps")}}));
  return c.flag("relu") ? OnnxNames{c.node("Relu", {y[0]})} : y;
}

OnnxNames layer_norm(OnnxCall& c) {
  const Ints& shape = c.ints("normalized_shape");
  const DType t = computation_dtype_of(c);
  OnnxNames in{c.in(0, t), c.has_input(1) ? c.in(1, t) : c.constant(ones(Shape(shape), {.dtype = t}))};
  if (c.has_input(2)) in.push_back(c.in(2, t));
  return round_result(c, c.node("LayerNormalization", in, {{"axis", -int64_t(shape.size())}, {"epsilon", c.real("eps")}}));
}

bool by_running_statistics(const Attributes& a, std::span<const Tensor>) {
  const bool* const training = find_attribute<bool>(a, "training");
  return training && !*training;
}

}  // namespace row
}  // namespace

void add_product_rows(OnnxRows& rows) {
  rows["linear"] = {row::linear};
  rows["addmm"] = rows["baddbmm"] = {row::addmm};
  rows["mm"] = rows["bmm"] = rows["mv"] = {[](OnnxCall& c) { return OnnxNames{c.node("MatMul", {c.in(0), c.in(1)})}; }};
  rows["batch_norm"] = rows["instance_norm"] = {row::batch_norm, row::by_running_statistics};
  rows["layer_norm"] = {row::layer_norm};
  for (const auto& [ours, theirs] : {std::pair("softmax", "Softmax"), std::pair("log_softmax", "LogSoftmax")}) {
    rows[ours] = {[op = theirs](OnnxCall& c) {
      return OnnxNames{c.node(op, {c.in(0, c.y().dtype())}, {{"axis", c.integer("dim")}})};
    }};
  }
}

}  // namespace halfstep
