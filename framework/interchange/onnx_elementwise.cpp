// SPDX-License-Identifier: Apache-2.0
#include "framework/interchange/onnx_rows.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {
namespace row {  // separate from the ops of these names

constexpr std::pair<const char*, const char*> kUnary[] = {{"neg", "Neg"},           {"abs", "Abs"},
                                                          {"sign", "Sign"},         {"relu", "Relu"},
                                                          {"floor", "Floor"},       {"ceil", "Ceil"},
                                                          {"round", "Round"},       {"reciprocal", "Reciprocal"},
                                                          {"sqrt", "Sqrt"},         {"exp", "Exp"},
                                                          {"log", "Log"},           {"sin", "Sin"},
                                                          {"cos", "Cos"},           {"tan", "Tan"},
                                                          {"asin", "Asin"},         {"acos", "Acos"},
                                                          {"atan", "Atan"},         {"sinh", "Sinh"},
                                                          {"cosh", "Cosh"},         {"tanh", "Tanh"},
                                                          {"erf", "Erf"},           {"asinh", "Asinh"},
                                                          {"acosh", "Acosh"},       {"atanh", "Atanh"},
                                                          {"sigmoid", "Sigmoid"},   {"hardswish", "HardSwish"},
                                                          {"softsign", "Softsign"}, {"clone", "Identity"}};
constexpr std::pair<const char*, const char*> kBinary[] = {{"add", "Add"}, {"sub", "Sub"},     {"mul", "Mul"},    {"div", "Div"},
                                                           {"pow", "Pow"}, {"maximum", "Max"}, {"minimum", "Min"}};
constexpr std::pair<const char*, const char*> kComparisons[] = {{"eq", "Equal"},   {"lt", "Less"},           {"le", "LessOrEqual"},
                                                                {"gt", "Greater"}, {"ge", "GreaterOrEqual"}, {"ne", "Equal"}};
constexpr std::pair<const char*, const char*> kLogical[] = {{"logical_and", "And"}, {"logical_or", "Or"}, {"logical_xor", "Xor"}};

// Returns the dtype in which an op with results of `dtype` computes: ONNX has no arithmetic of bools.
DType computation_dtype(DType dtype) { return dtype == DType::boolean ? DType::i32 : dtype; }

OnnxNames compare(OnnxCall& c, const char* op) {
  const DType dtype = computation_dtype(c.x(c.is_number(0) ? 1 : 0).dtype());
  const std::string y = c.node(op, {c.in(0, dtype), c.in(1, dtype)});
  return {c.op() == "ne" ? c.node("Not", {y}) : y};
}

std::string in_as_bool(OnnxCall& c, size_t i) { return c.in(i, DType::boolean); }

// Exports 0.5 x (1 + erf(x / sqrt(2))).
OnnxNames gelu(OnnxCall& c) {
  constexpr double kInverseSqrt2 = 0.70710678118654752;
  const DType t = c.y().dtype();
  const std::string erf = c.node("Erf", {c.node("Mul", {c.in(0), c.number(kInverseSqrt2, t)})});
  return {c.node("Mul", {c.node("Mul", {c.in(0), c.number(0.5, t)}), c.node("Add", {erf, c.number(1, t)})})};
}

// Exports log(1 + exp(p x)) / p, or x itself where p x exceeds the threshold q.
OnnxNames softplus(OnnxCall& c) {
  const DType t = c.x().dtype();
  const std::string scaled = c.node("Mul", {c.in(0), c.number(c.real("p"), t)});
  const std::string soft = c.node("Div", {c.node("Softplus", {scaled}), c.number(c.real("p"), t)});
  return {c.node("Where", {c.node("Greater", {scaled, c.number(c.real("q"), t)}), c.in(0), soft})};
}

// Exports a sigmoid(b), with the halves a and b of x along a dimension.
OnnxNames glu(OnnxCall& c) {
  const int64_t dim = c.integer("dim"), half = c.x().size(int(dim)) / 2;
  const std::string gate = c.node("Sigmoid", {c.slice(c.in(0), dim, half, 2 * half)});
  return {c.node("Mul", {c.slice(c.in(0), dim, 0, half), gate})};
}

}  // namespace row
}  // namespace

void add_elementwise_rows(OnnxRows& rows) {
  for (const auto& [ours, theirs] : row::kUnary)
    rows[ours] = {[op = theirs](OnnxCall& c) { return OnnxNames{c.node(op, {c.in(0, c.y().dtype())})}; }};
  for (const auto& [ours, theirs] : row::kBinary) {
    rows[ours] = {[op = theirs](OnnxCall& c) {
      const DType t = row::computation_dtype(c.y().dtype());
      const std::string out = c.node(op, {c.in(0, t), c.in(1, t)});
      return OnnxNames{t == c.y().dtype() ? out : c.cast(out, c.y().dtype())};
    }};
  }
  for (const auto& [ours, theirs] : row::kComparisons) rows[ours] = {[op = theirs](OnnxCall& c) { return row::compare(c, op); }};
  for (const auto& [ours, theirs] : row::kLogical)
    rows[ours] = {[op = theirs](OnnxCall& c) { return OnnxNames{c.node(op, {row::in_as_bool(c, 0), row::in_as_bool(c, 1)})}; }};
  rows["square"] = {[](OnnxCall& c) { return OnnxNames{c.node("Mul", {c.in(0), c.in(0)})}; }};
  rows["expm1"] = {[](OnnxCall& c) { return OnnxNames{c.node("Sub", {c.node("Exp", {c.in(0)}), c.number(1, c.x().dtype())})}; }};
  rows["log1p"] = {[](OnnxCall& c) { return OnnxNames{c.node("Log", {c.node("Add", {c.in(0), c.number(1, c.x().dtype())})})}; }};
  rows["erfc"] = {[](OnnxCall& c) { return OnnxNames{c.node("Sub", {c.number(1, c.x().dtype()), c.node("Erf", {c.in(0)})})}; }};
  rows["logsigmoid"] = {[](OnnxCall& c) { return OnnxNames{c.node("Neg", {c.node("Softplus", {c.node("Neg", {c.in(0)})})})}; }};
  rows["mish"] = {[](OnnxCall& c) { return OnnxNames{c.node("Mul", {c.in(0), c.node("Tanh", {c.node("Softplus", {c.in(0)})})})}; }};
  rows["gelu"] = {row::gelu};
  rows["leaky_relu"] = {[](OnnxCall& c) { return OnnxNames{c.node("LeakyRelu", {c.in(0)}, {{"alpha", c.real("p")}})}; }};
  rows["elu"] = {[](OnnxCall& c) { return OnnxNames{c.node("Elu", {c.in(0)}, {{"alpha", c.real("p")}})}; }};
  rows["softplus"] = {row::softplus};
  rows["glu"] = {row::glu};
  rows["where"] = {[](OnnxCall& c) {
    return OnnxNames{c.node("Where", {row::in_as_bool(c, 0), c.in(1, c.y().dtype()), c.in(2, c.y().dtype())})};
  }};
  const auto to = [](OnnxCall& c) {
    return OnnxNames{c.x().dtype() == c.y().dtype() ? c.node("Identity", {c.in(0)}) : c.cast(c.in(0), c.y().dtype())};
  };
  rows["to"] = rows["copy_"] = {to};
}

}  // namespace halfstep
