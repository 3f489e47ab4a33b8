// SPDX-License-Identifier: Apache-2.0
#include "amp/step/custom.h"

#include <doctest/doctest.h>

using namespace halfstep;

namespace {

// The state that a function found when it ran.
struct Seen {
  bool enabled;
  DType autocast, input;
};
Seen forward_saw, backward_saw;

Seen look(const Tensor& x) { return {autocast::is_enabled(Device::Type::cpu), autocast::dtype(Device::Type::cpu), x.dtype()}; }

struct Product : Function<Product> {
  static Tensors forward(FunctionContext& ctx, const Tensors& in) {
    return custom_fwd(ctx, Device::cpu, in, [&](const Tensors& x) {
      forward_saw = look(x[0]);
      ctx.save(x);
      return Tensors{mm(x[0], x[1])};
    });
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& g) {
    return custom_bwd(ctx, [&] {
      const Tensors x = ctx.saved();
      const Tensors out{mm(g[0], x[1].t()), mm(x[0].t(), g[0])};
      backward_saw = look(out[0]);
      return out;
    });
  }
};

struct Float32Product : Function<Float32Product> {
  static Tensors forward(FunctionContext& ctx, const Tensors& in) {
    return custom_fwd(ctx, Device::cpu, DType::f32, in, [&](const Tensors& x) {
      forward_saw = look(x[0]);
      ctx.save({x[0], x[1]});
      ctx.state = x;  // all of them, for the test
      return Tensors{mm(x[0], x[1])};
    });
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& g) {
    return custom_bwd(ctx, [&] {
      const Tensors x = ctx.saved();
      Tensors out{mm(g[0], x[1].t()), mm(x[0].t(), g[0])};
      backward_saw = look(out[0]);
      const Tensors all = std::any_cast<Tensors>(ctx.state);
      for (size_t i = 2; i < all.size(); ++i) CHECK(all[i].dtype() == (all[i].dtype() == DType::f64 ? DType::f64 : DType::i64));
      out.resize(all.size());
      return out;
    });
  }
};

Tensor leaf(DType dtype) { return randn({4, 4}).to(dtype).detach().set_requires_grad(); }

}  // namespace

TEST_CASE("amp 52: custom_fwd without a dtype runs under the caller's autocast, and backward under the same") {
  for (DType low : {DType::f16, DType::bf16}) {
    CAPTURE(low);
    const Tensor x = leaf(DType::f32), y = leaf(DType::f32);
    Tensor out;
    {
      const Autocast region(Device::cpu, low);
      out = Product::apply({x, y})[0];
      CHECK(forward_saw.enabled);
      CHECK(forward_saw.autocast == low);
      CHECK(forward_saw.input == DType::f32);
    }
    CHECK(out.dtype() == low);
    out.sum().backward();
    CHECK(backward_saw.enabled);
    CHECK(backward_saw.autocast == low);
    CHECK(backward_saw.input == low);
    CHECK(x.grad().dtype() == DType::f32);
    CHECK(y.grad().dtype() == DType::f32);
    CHECK(!autocast::is_enabled(Device::Type::cpu));
  }
}

TEST_CASE("amp 53: custom_fwd with a dtype casts floating inputs and runs with autocast off, forward and backward") {
  const Tensor x = leaf(DType::f16), y = leaf(DType::f16);
  const Tensor wide = ones({2}, {.dtype = DType::f64}), index = arange(3);
  Tensor out;
  {
    const Autocast region(Device::cpu, DType::f16);
    out = Float32Product::apply({x, y, wide, index})[0];
    CHECK(autocast::is_enabled(Device::Type::cpu));
  }
  CHECK(!forward_saw.enabled);
  CHECK(forward_saw.input == DType::f32);
  CHECK(out.dtype() == DType::f32);
  {
    const Autocast region(Device::cpu, DType::f16);
    out.sum().backward();
  }
  CHECK(!backward_saw.enabled);
  CHECK(backward_saw.input == DType::f32);
  CHECK(x.grad().dtype() == DType::f16);  // converted back by the engine
  CHECK(y.grad().dtype() == DType::f16);
}

TEST_CASE("amp 54: outside a region custom_fwd casts nothing") {
  const Tensor x = leaf(DType::f16), y = leaf(DType::f16);
  const Tensor out = Float32Product::apply({x, y})[0];
  CHECK(forward_saw.input == DType::f16);
  CHECK(out.dtype() == DType::f16);
  out.sum().backward();
  CHECK(!backward_saw.enabled);
  CHECK(x.grad().dtype() == DType::f16);
}

TEST_CASE("custom_bwd without custom_fwd says so") {
  struct Half : Function<Half> {
    static Tensors forward(FunctionContext&, const Tensors& in) { return {in[0] * 1.0}; }
    static Tensors backward(FunctionContext& ctx, const Tensors& g) {
      return custom_bwd(ctx, [&] { return g; });
    }
  };
  const Tensor x = leaf(DType::f32);
  CHECK_THROWS_WITH_AS(Half::apply({x})[0].sum().backward(),
                       "[custom_bwd] needs the state that custom_fwd records: call custom_fwd in forward", AmpError);
}
