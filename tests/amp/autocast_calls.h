// One call per op that a region casts: what to draw as inputs and how to run it. The tests walk the registry and fail on an op
// that has a policy but no line here.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "amp/autocast.h"
#include "framework/ops/ops.h"
#include "framework/ops/registry.h"

namespace halfstep::calls {

struct Input {
  Shape shape;
  double lo = -1, hi = 1;
  bool classes = false;  // int64 in [0, 3) instead of a floating tensor
};
using Run = Tensor (*)(const Tensors&);
struct OpCall {
  std::string_view op;
  std::vector<Input> inputs;
  Run run;
};

inline const std::vector<OpCall>& all() {
  static const std::vector<OpCall> list = {
#define HS_UNARY(name, policy, kind, saves, forward, derivative, lo, hi, doc) \
  {#name, {{{4, 8}, lo, hi}}, [](const Tensors& in) { return halfstep::name(in[0]); }},
#define HS_BINARY(name, policy, kind, forward, da, db, lo, hi, doc) \
  {#name, {{{4, 8}, lo, hi}, {{8}, lo, hi}}, [](const Tensors& in) { return halfstep::name(in[0], in[1]); }},
#define HS_TEST(...)
#include "framework/math/elementwise.def"
#undef HS_UNARY
#undef HS_BINARY
#undef HS_TEST
      {"mm", {{{8, 8}}, {{8, 8}}}, [](const Tensors& in) { return mm(in[0], in[1]); }},
      {"bmm", {{{2, 8, 8}}, {{2, 8, 8}}}, [](const Tensors& in) { return bmm(in[0], in[1]); }},
      {"matmul", {{{2, 4, 8}}, {{8, 3}}}, [](const Tensors& in) { return matmul(in[0], in[1]); }},
      {"addmm", {{{8}}, {{8, 8}}, {{8, 8}}}, [](const Tensors& in) { return addmm(in[0], in[1], in[2], 0.5, 2.0); }},
      {"linear", {{{4, 8}}, {{3, 8}}, {{3}}}, [](const Tensors& in) { return linear(in[0], in[1], in[2]); }},
      {"mlp", {{{4, 8}}, {{3, 8}}, {{3}}, {{2, 3}}},
       [](const Tensors& in) { return mlp(in[0], {{in[1], in[2], Activation::relu}, {in[3]}}); }},
      {"sum", {{{4, 8}}}, [](const Tensors& in) { return sum(in[0], {1}); }},
      {"softmax", {{{4, 8}}}, [](const Tensors& in) { return softmax(in[0], 1); }},
      {"log_softmax", {{{4, 8}}}, [](const Tensors& in) { return log_softmax(in[0], 1); }},
      {"cross_entropy", {{{4, 3}}, {{4}, 0, 3, true}}, [](const Tensors& in) { return cross_entropy(in[0], in[1]); }},
      {"nll_loss", {{{4, 3}}, {{4}, 0, 3, true}}, [](const Tensors& in) { return nll_loss(in[0], in[1]); }},
      {"mse_loss", {{{4, 8}}, {{4, 8}}}, [](const Tensors& in) { return mse_loss(in[0], in[1]); }},
      {"cat", {{{4, 8}}, {{2, 8}}}, [](const Tensors& in) { return cat({in[0], in[1]}); }},
      {"stack", {{{4, 8}}, {{4, 8}}}, [](const Tensors& in) { return stack({in[0], in[1]}); }},
      {"scatter_add", {{{3, 8}}, {{3, 8}}},
       [](const Tensors& in) { return scatter_add(in[0], 0, zeros({3, 8}, {.dtype = DType::i64, .device = in[0].device()}), in[1]); }},
  };
  return list;
}

inline const OpCall* find(std::string_view op) {
  for (const OpCall& c : all())
    if (c.op == op) return &c;
  return nullptr;
}

// Fresh inputs: floating ones in `dtype`.
inline Tensors draw(const OpCall& call, DType dtype) {
  Tensors out;
  for (const Input& i : call.inputs) {
    if (i.classes) out.push_back(randint(int64_t(i.lo), int64_t(i.hi), i.shape));
    else out.push_back((rand(i.shape) * (i.hi - i.lo) + i.lo).to(dtype));
  }
  return out;
}

inline Tensors cast(const Tensors& in, DType dtype) {
  Tensors out;
  for (const Tensor& t : in) out.push_back(t.is_floating_point() ? t.to(dtype) : t);
  return out;
}

// Same dtype, shape and bits.
inline bool bitwise(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
  const Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  return x.numel() == 0 || std::memcmp(x.data(), y.data(), x.nbytes()) == 0;
}

inline std::vector<OpInfo> with_policy(CastPolicy policy) {
  std::vector<OpInfo> out;
  for (const Op& op : all_ops())
    if (op.policy == policy && op.alias_of.empty()) out.push_back(op);
  return out;
}

inline bool enabled() { return autocast::is_enabled(Device::Type::cpu); }
inline DType low_dtype() { return autocast::dtype(Device::Type::cpu); }
inline Tensor leaf(const Shape& shape, DType dtype = DType::f32) { return randn(shape).to(dtype).detach().set_requires_grad(); }

}  // namespace halfstep::calls
