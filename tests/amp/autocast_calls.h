// SPDX-License-Identifier: Apache-2.0
// One call for each op, taken from the op table, for tests of dtypes in a region.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "amp/autocast/autocast.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/ops.h"
#include "tests/ops/op_cases.h"

namespace halfstep::calls {

struct OpCall {
  std::string op;
  Tensors inputs;  // floating ones in float64
  std::function<Tensors(const Tensors&)> invoke;
  // Returns the first floating output, or else the first.
  Tensor run(const Tensors& in) const {
    const Tensors out = invoke(in);
    for (const Tensor& t : out)
      if (t.is_floating_point()) return t;
    return out.at(0);
  }
};

// Returns the first case of each op whose tensors are all inputs.
inline const std::vector<OpCall>& all() {
  static const std::vector<OpCall> list = [] {
    std::vector<OpCall> l;
    for (const testing::OpCase& c : testing::op_cases()) {
      if (c.constants || c.inputs.empty() || c.op == "to_device" || (!l.empty() && l.back().op == c.op)) continue;
      bool known = false;
      for (const OpCall& o : l) known = known || o.op == c.op;
      if (known) continue;
      Tensors inputs;
      for (const Tensor& t : c.inputs) inputs.push_back(t.detach());
      l.push_back({c.op, inputs, c.run});
    }
    return l;
  }();
  return list;
}

inline const OpCall* find(std::string_view op) {
  for (const OpCall& c : all())
    if (c.op == op) return &c;
  return nullptr;
}

inline Tensors cast(const Tensors& in, DType dtype) {
  Tensors out;
  for (const Tensor& t : in) out.push_back(t.is_floating_point() ? t.to(dtype) : t);
  return out;
}
// Returns the inputs with floating ones in `dtype`.
inline Tensors draw(const OpCall& call, DType dtype) { return cast(call.inputs, dtype); }

// Returns whether dtype, shape and bits are equal.
inline bool bitwise(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
  const Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  return x.numel() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
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
