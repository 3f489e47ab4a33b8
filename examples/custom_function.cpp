// SPDX-License-Identifier: Apache-2.0
// A differentiable function of your own, checked against finite differences, and its behaviour in an autocast region.
#include "amp/step/custom.h"
#include "examples/claim.h"
#include "halfstep.h"

using namespace halfstep;

namespace {

// y = log(1 + e^x) with a hand-written gradient.
struct LogOnePlusExp : Function<LogOnePlusExp> {
  static Tensors forward(FunctionContext& ctx, const Tensors& in) {
    ctx.save({in[0]});
    return {clamp(in[0], 0.0, {}) + log1p(exp(-abs(in[0])))};
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& g) { return {g[0] * sigmoid(ctx.saved()[0])}; }
};

// x where |x| <= bound, and its sign times the bound beyond, with a gradient of 1 everywhere. Arguments that are not tensors follow
// the tensors.
struct StraightClip : Function<StraightClip> {
  static Tensors forward(FunctionContext&, const Tensors& in, double bound) { return {clamp(in[0], -bound, bound)}; }
  static Tensors backward(FunctionContext&, const Tensors& g) { return {g[0]}; }
};

// An example of a kernel that exists for float32 only: in a region its inputs are cast, and autocast is off inside.
struct OnlyFloat32 : Function<OnlyFloat32> {
  static Tensors forward(FunctionContext& ctx, const Tensors& in) {
    return custom_fwd(ctx, Device::cpu, DType::f32, in, [&](const Tensors& x) {
      ctx.save(x);
      return Tensors{mm(x[0], x[1])};
    });
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& g) {
    return custom_bwd(ctx, [&] {
      const Tensors x = ctx.saved();
      return Tensors{mm(g[0], x[1].t()), mm(x[0].t(), g[0])};
    });
  }
};

}  // namespace

int main() {
  manual_seed(5);
  const Tensor x = randn({3, 4}, {.dtype = DType::f64}).set_requires_grad();
  const auto f = [](const Tensors& in) { return LogOnePlusExp::apply(in); };
  try {
    gradcheck(f, {x});
    gradgradcheck(f, {x});
    claim(true, "first and second derivatives agree with differences");
  } catch (const AutogradError& e) { claim(false, e.what()); }

  const Tensor far = tensor({-3, 0.5, 7}).set_requires_grad(), near = StraightClip::apply({far}, 2.0)[0];
  near.sum().backward();
  claim(equal(near, tensor({-2, 0.5, 2})) && equal(far.grad(), ones({3})), "a function with a number beside its tensors");

  const Tensor a = randn({2, 3}, {.dtype = DType::f16}).set_requires_grad(), b = randn({3, 2}).set_requires_grad();
  Tensor product;
  {
    const Autocast region(Device::cpu, DType::f16);
    claim(mm(a, b).dtype() == DType::f16, "mm gives float16 in a region");
    product = OnlyFloat32::apply({a, b})[0];
  }
  claim(product.dtype() == DType::f32, "the custom function gives float32");
  product.sum().backward();
  claim(a.grad().dtype() == DType::f16 && b.grad().dtype() == DType::f32, "gradients have the dtypes of the inputs");
  return failed_claims;
}
