// SPDX-License-Identifier: Apache-2.0
// Gradients through regions: dtypes, accumulation, grad modes, memory.
#include <doctest/doctest.h>

#include "amp/step/custom.h"
#include "framework/autograd/autograd.h"
#include "framework/tensor/memory.h"
#include "layers/layers.h"
#include "tests/amp/autocast_calls.h"

using namespace halfstep;
using namespace halfstep::calls;

namespace {

size_t live(MemoryTag tag) { return allocator(Device::cpu).stats().live_by_tag[size_t(tag)]; }
size_t live() { return allocator(Device::cpu).stats().live; }

// y = x w^T; its backward uses w in a region again.
struct UsesTwice : Function<UsesTwice> {
  static Tensors forward(FunctionContext& ctx, const Tensors& in) {
    ctx.save(in);
    return {linear(in[0], in[1])};
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& g) {
    const Tensors in = ctx.saved();
    const Autocast region(Device::cpu);
    return {mm(g[0], in[1]), mm(g[0].t(), in[0])};
  }
};

}  // namespace

TEST_CASE("amp 40: a weight used in forward and in a region in backward is cast once") {
  const Tensor x = leaf({4, 8}), w = leaf({8, 8});
  Tensor y;
  const uint64_t before = autocast::cast_count();
  {
    const Autocast region(Device::cpu);
    y = UsesTwice::apply({x, w})[0];
  }
  CHECK(autocast::cast_count() - before == 2);  // x and w: both are leaves that require grad
  y.backward(ones_like(y));
  CHECK(autocast::cast_count() - before == 2);
  CHECK(w.grad().dtype() == DType::f32);
}

TEST_CASE("amp 42: under no_grad repeated linear calls do not grow memory") {
  const Tensor x = rand({16, 32}), w = leaf({32, 32}), b = leaf({32});
  const Autocast region(Device::cpu);
  const NoGrad off;
  linear(x, w, b);
  const size_t before = live();
  for (int i = 0; i < 10; ++i) linear(x, w, b);
  CHECK(live() == before);
}

TEST_CASE("amp 43: a first use under no_grad does not lose the weight's gradient") {
  const Tensor x = rand({4, 8}), w = leaf({3, 8}), b = leaf({3});
  const Autocast region(Device::cpu);
  {
    const NoGrad off;
    CHECK(!linear(x, w, b).requires_grad());
  }
  const Tensor y = linear(x, w, b);
  CHECK(y.requires_grad());
  CHECK(y.node() != nullptr);
  sum(y).backward();
  CHECK(w.grad().dtype() == DType::f32);
  CHECK(b.grad().dtype() == DType::f32);
  CHECK(b.grad()[0].item<float>() == 4);
}

TEST_CASE("amp 44: no_grad and grad in turn; backward inside the region") {
  const Tensor x = rand({4, 8}), w = leaf({3, 8});
  const Autocast region(Device::cpu);
  Tensor total;
  for (int i = 0; i < 4; ++i) {
    const GradMode mode(i % 2 == 1);
    const Tensor y = linear(x, w);
    CHECK(y.requires_grad() == (i % 2 == 1));
    CHECK(y.dtype() == DType::bf16);
    if (i % 2 == 1) total = total.defined() ? total + sum(y) : sum(y);
  }
  total.backward();
  CHECK(w.grad().defined());
}

TEST_CASE("amp 45: inference mode gives the low dtype without a graph and spoils nothing") {
  const Tensor x = rand({4, 8}), w = leaf({3, 8});
  {
    const Autocast region(Device::cpu);
    {
      const InferenceMode inference;
      const Tensor y = linear(x, w);
      CHECK(y.dtype() == DType::bf16);
      CHECK(!y.requires_grad());
    }
    sum(linear(x, w)).backward();
    CHECK(w.grad().defined());
  }
  const InferenceMode inference;
  const Autocast region(Device::cpu, DType::f16);
  CHECK(linear(x, w).dtype() == DType::f16);
}

TEST_CASE("amp 46: three forwards share one weight copy and all three backwards run") {
  const Tensor x = rand({4, 8}), w = leaf({3, 8});
  Tensor y[3];
  {
    const Autocast region(Device::cpu);
    const uint64_t before = autocast::cast_count();
    for (Tensor& t : y) t = linear(x, w);
    CHECK(autocast::cast_count() - before == 4);  // x each time, w once
  }
  Tensor first;
  for (const Tensor& t : y) {
    CHECK(t.node() != nullptr);
    w.zero_grad();
    sum(t).backward();
    if (!first.defined()) first = w.grad();
    CHECK(bitwise(w.grad(), first));
  }
}

TEST_CASE("amp 48: float32 parameters have float32 gradients") {
  manual_seed(10);
  for (DType low : {DType::bf16, DType::f16}) {
    Sequential net(std::make_shared<Linear>(8, 16), std::make_shared<ReLU>(), std::make_shared<Linear>(16, 3));
    const Tensor x = rand({4, 8});
    Tensor loss;
    {
      const Autocast region(Device::cpu, low);
      loss = cross_entropy(net(x), randint(0, 3, {4}));
    }
    loss.backward();
    for (const Tensor& p : net.parameters()) {
      CHECK(p.dtype() == DType::f32);
      CHECK(p.grad().dtype() == DType::f32);
      CHECK(p.grad().shape() == p.shape());
    }
  }
}

TEST_CASE("amp 49: a lowered linear saves its input in 16 bits") {
  constexpr int64_t n = 256;
  const Tensor x = rand({n, n}), w = leaf({n, n});
  const Autocast region(Device::cpu);
  { linear(x, w); }  // makes the weight's copy
  const size_t before = live();
  const Tensor y = linear(x, w);
  CHECK(live() - before == 2 * n * n * 2);  // x and y, two bytes each
  CHECK(y.nbytes() == n * n * 2);
}

TEST_CASE("amp 50: backward inside a region equals backward outside") {
  manual_seed(11);
  const Tensor x = leaf({6, 8}), w = leaf({8, 8}), b = leaf({8}), base = leaf({3, 8}, DType::bf16);
  const Tensor index = randint(0, 3, {6, 8}), target = randint(0, 8, {9});
  auto loss = [&] {
    const Autocast region(Device::cpu);
    const Tensor h = relu(linear(x, w, b));
    const Tensor moved = scatter_add(base, 0, index, h);        // promote
    const Tensor joined = cat({h, atan2(moved, moved + 2.0)});  // promote
    return cross_entropy(addmm(b, joined, w), target) + sum(pow(h, 2.0));
  };
  auto gradients = [&](bool inside) {
    for (const Tensor& t : {x, w, b, base}) t.zero_grad();
    const Tensor l = loss();
    CHECK(l.dtype() == DType::f32);
    {
      const Autocast region(Device::cpu, AutocastOptions{.dtype = DType::f16, .enabled = inside});
      l.backward();
      CHECK(enabled() == inside);
    }
    return Tensors{x.grad(), w.grad(), b.grad(), base.grad()};
  };
  const Tensors outside = gradients(false), inside = gradients(true);
  for (size_t i = 0; i < outside.size(); ++i) {
    CAPTURE(i);
    CHECK(bitwise(outside[i], inside[i]));
  }
  CHECK(inside[3].dtype() == DType::bf16);
}

TEST_CASE("the gradients of all uses of a weight are summed in float32") {
  // d y_i / d w = x_i: 256, then four times 1. In bfloat16 256 + 1 rounds back to 256.
  const Tensor w = ones({1, 1}, {.requires_grad = true});
  const Tensor big = full({1, 1}, 256.0), one = ones({1, 1});
  CHECK((big.to(DType::bf16) + one.to(DType::bf16)).item<float>() == 256.0f);
  Tensor total;
  {
    const Autocast region(Device::cpu);
    total = sum(linear(one, w));
    for (int i = 1; i < 4; ++i) total = total + sum(linear(one, w));
    total = total + sum(linear(big, w));  // newest first: its gradient is the first to arrive
  }
  total.backward();
  CHECK(w.grad().item<float>() == 260.0f);

  // What summing in the low dtype would have given.
  const Tensor low = w.detach().to(DType::bf16).set_requires_grad();
  Tensor rough = sum(linear(one.to(DType::bf16), low));
  for (int i = 1; i < 4; ++i) rough = rough + sum(linear(one.to(DType::bf16), low));
  rough = rough + sum(linear(big.to(DType::bf16), low));
  rough.backward();
  CHECK(low.grad().item<float>() == 256.0f);
}

TEST_CASE("a gradient too large for float16 reaches a float32 weight whole") {
  const Tensor w = ones({1, 512}, {.requires_grad = true}), x = full({64, 512}, 2048.0);
  Tensor y;
  {
    const Autocast region(Device::cpu, DType::f16);
    y = linear(x * 0.0078125, w);  // 16
  }
  y.backward(full({64, 1}, 128, {.dtype = DType::f16}));
  CHECK(w.grad()[0][0].item<float>() == 64 * 16 * 128.0f);  // 131072 > 65504
}

TEST_CASE("double backward through a region") {
  manual_seed(12);
  const Tensor x = leaf({4, 8}), w = leaf({8, 8});
  Tensor loss;
  {
    const Autocast region(Device::cpu);
    loss = sum(pow(linear(x, w), 2.0));
  }
  const Tensor g = grad({loss}, {w}, {}, {.create_graph = true})[0];
  CHECK(g.dtype() == DType::f32);
  CHECK(g.requires_grad());
  Tensor penalty;
  {
    const Autocast region(Device::cpu);
    penalty = sum(pow(g, 2.0));
  }
  CHECK(penalty.dtype() == DType::f32);
  penalty.backward();
  CHECK(x.grad().dtype() == DType::f32);
  CHECK(w.grad().dtype() == DType::f32);
  // The same in float64: d(penalty)/dw of loss = |x w^T|^2.
  const Tensor x64 = x.detach().to(DType::f64).set_requires_grad(), w64 = w.detach().to(DType::f64).set_requires_grad();
  const Tensor g64 = grad({sum(pow(linear(x64, w64), 2.0))}, {w64}, {}, {.create_graph = true})[0];
  sum(pow(g64, 2.0)).backward();
  const double error = (w.grad().to(DType::f64) - w64.grad()).abs().max().item<double>() / w64.grad().abs().max().item<double>();
  CHECK(error < 0.02);
}

TEST_CASE("memory: a region's graph is freed by backward") {
  const Tensor x = rand({64, 64}), w = leaf({64, 64});
  auto step = [&] {
    Tensor loss;
    {
      const Autocast region(Device::cpu);
      loss = sum(relu(linear(relu(linear(x, w)), w)));
    }
    loss.backward();
  };
  step();
  const size_t before = live(), shadows = live(MemoryTag::shadows);
  step();
  CHECK(live() == before);
  CHECK(live(MemoryTag::shadows) == shadows);
}
