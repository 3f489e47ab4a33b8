// SPDX-License-Identifier: Apache-2.0
// Mixed precision for user-defined functions: the counterpart of PyTorch's custom_fwd and custom_bwd.
//
//   struct MyMatmul : Function<MyMatmul> {
//     static Tensors forward(FunctionContext& ctx, const Tensors& in) {
//       return custom_fwd(ctx, Device::cpu, in, [&](const Tensors& x) { ctx.save(x); return Tensors{x[0].mm(x[1])}; });
//     }
//     static Tensors backward(FunctionContext& ctx, const Tensors& g) {
//       return custom_bwd(ctx, [&] { ... });
//     }
//   };
//
// Without a dtype, forward runs under the caller's autocast state with its inputs unchanged, and backward under the same state.
// With a dtype (for a kernel that supports one only) and autocast on, floating inputs on `device`, except float64, are cast to it,
// and autocast is off in forward and backward. With autocast off nothing is cast. The casts are part of the function: the engine
// converts its gradients back to the inputs' dtypes.
#pragma once

#include <utility>

#include "amp/autocast/autocast.h"
#include "framework/autograd/function.h"
#include "framework/ops/ops.h"

namespace halfstep {

// body: Tensors(const Tensors& inputs)
template <class Body>
Tensors custom_fwd(FunctionContext& ctx, Device, const Tensors& inputs, Body&& body) {
  ctx.amp = autocast::regions();  // backward runs in them
  return std::forward<Body>(body)(inputs);
}

template <class Body>
Tensors custom_fwd(FunctionContext& ctx, Device device, DType cast_inputs, const Tensors& inputs, Body&& body) {
  check<DTypeError>(is_floating(cast_inputs), "custom_fwd", "cast_inputs must be floating point, got ", cast_inputs);
  const DType dtype = autocast::dtype(device.type);
  autocast::Regions regions = autocast::regions();
  regions.by_device[size_t(device.type)].mode = autocast::Mode::off;
  ctx.amp = regions;
  if (!autocast::is_enabled(device.type)) return std::forward<Body>(body)(inputs);
  const Autocast off(device, dtype, /*enabled=*/false);
  Tensors cast;
  cast.reserve(inputs.size());
  for (const Tensor& x : inputs) {
    const bool eligible = x.defined() && x.is_floating_point() && x.dtype() != DType::f64 && x.device().type == device.type;
    cast.push_back(eligible ? to(x, cast_inputs) : x);
  }
  return std::forward<Body>(body)(cast);
}

// body: Tensors()
template <class Body>
Tensors custom_bwd(FunctionContext& ctx, Body&& body) {
  const auto* const regions = std::any_cast<autocast::Regions>(&ctx.amp);
  check<AmpError>(regions != nullptr, "custom_bwd", "needs the state that custom_fwd records: call custom_fwd in forward");
  const autocast::AsIn region(*regions);
  return std::forward<Body>(body)();
}

}  // namespace halfstep
