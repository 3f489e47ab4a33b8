// SPDX-License-Identifier: Apache-2.0
// Hooks and retained gradients.
#include <doctest/doctest.h>

#include "framework/autograd/autograd.h"
#include "framework/ops/ops.h"
#include "tests/support/doubles.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("a hook sees the whole gradient once, and may replace it") {
  const Tensor x = leaf({1, 2});
  const Tensor h = x * 2.0;
  V seen;
  int calls = 0;
  h.register_hook([&](const Tensor& g) {
    ++calls;
    seen = values(g);
    CHECK(!grad_enabled());
    return g * 10.0;
  });
  sum(h * 3.0 + h).backward();  // two uses, one call
  CHECK(calls == 1);
  CHECK(seen == V{4, 4});
  CHECK(values(x.grad()) == V{80, 80});
}

TEST_CASE("hooks of a leaf act before the gradient is added") {
  const Tensor x = leaf({1, 2});
  const uint64_t key = x.register_hook([](const Tensor& g) { return g * 2.0; });
  sum(x).backward();
  CHECK(values(x.grad()) == V{2, 2});
  sum(x).backward();
  CHECK(values(x.grad()) == V{4, 4});  // not the old value
  x.remove_hook(key);
  sum(x).backward();
  CHECK(values(x.grad()) == V{5, 5});
}

TEST_CASE("a hook on a leaf may come before or after its use") {
  const Tensor x = leaf({1});
  const Tensor y = x * 2.0;
  x.register_hook([](const Tensor& g) { return g * 10.0; });
  y.backward();
  CHECK(values(x.grad()) == V{20});
}

TEST_CASE("a leaf's hook sees its whole gradient while the rest of the backward is still to come") {
  const Tensor x = leaf({1}), first = leaf({2}), shared = leaf({3}), last = leaf({5});
  std::string order;
  for (int pass = 0; pass < 2; ++pass) {  // a second step, where the leaves have been in a graph before
    order.clear();
    const auto note = [&](const char* name, double gradient) {
      return [&order, name, gradient](const Tensor& g) {
        order += name;
        CHECK(g.item<double>() == gradient);
        return Tensor();
      };
    };
    const uint64_t keys[] = {first.register_hook(note("first ", 1 * 3 * 3 * 5)),
                             shared.register_hook(note("shared ", 2 * 3 * 1 * 2 * 5)), last.register_hook(note("last ", 18))};
    const Tensor a = x * first, b = a * shared, c = b * shared;
    a.register_hook(note("a ", 3 * 3 * 5));
    b.register_hook(note("b ", 3 * 5));
    (c * last).backward();
    CHECK(order == "last b shared a first ");  // `shared` once, after both of its uses and before the nodes below them
    first.remove_hook(keys[0]);
    shared.remove_hook(keys[1]);
    last.remove_hook(keys[2]);
  }
}

TEST_CASE("several hooks run in order; one that gives nothing changes nothing") {
  const Tensor x = leaf({1});
  const Tensor y = x * 1.0;
  std::string order;
  y.register_hook([&](const Tensor& g) { return order += 'a', g + 1.0; });
  const uint64_t b = y.register_hook([&](const Tensor&) { return order += 'b', Tensor(); });
  y.register_hook([&](const Tensor& g) { return order += 'c', g * 10.0; });
  y.backward(Tensor(), true);
  CHECK(order == "abc");
  CHECK(values(x.grad()) == V{20});
  y.remove_hook(b);
  CHECK_THROWS_AS(y.remove_hook(12345678), ValueError);
  y.backward();
  CHECK(order == "abcac");
}

TEST_CASE("a hook may remove itself, and hooks run for grad() too") {
  const Tensor x = leaf({1});
  const Tensor y = x * 3.0;
  int calls = 0;
  uint64_t key = 0;
  key = y.register_hook([&](const Tensor&) {
    ++calls;
    y.remove_hook(key);
    return Tensor();
  });
  grad({y}, {x}, {}, {.retain_graph = true});
  grad({y}, {x});
  CHECK(calls == 1);
  // The gradient that grad() returns is the hooked one.
  const Tensor z = x * 2.0;
  z.register_hook([](const Tensor& g) { return g * 5.0; });
  CHECK(values(grad({z * 1.0}, {z})[0]) == V{5});
}

TEST_CASE("a hook must keep the shape and belongs to tensors that require grad") {
  const Tensor x = leaf({1, 2});
  x.register_hook([](const Tensor&) { return zeros({3}); });
  CHECK_THROWS_WITH_AS(sum(x).backward(), "[hook] a hook must return a gradient of shape [2], got [3]", ShapeError);
  CHECK_THROWS_WITH_AS(tensor({1.0}).register_hook([](const Tensor&) { return Tensor(); }),
                       "[register_hook] the tensor does not require grad", AutogradError);
  CHECK_THROWS_WITH_AS(leaf({1}).register_hook(nullptr), "[register_hook] needs a function, got an empty one", ValueError);
  const Tensor y = leaf({1});
  y.register_hook([](const Tensor& g) { return empty(g.shape(), {.dtype = g.dtype(), .device = Device::meta}); });
  CHECK_THROWS_WITH_AS(y.backward(), "[hook] a hook must return a gradient on cpu, got one on meta", DeviceError);
}

TEST_CASE("a hook's dtype is converted back") {
  const Tensor x = tensor({1.0, 2}, {.requires_grad = true});
  x.register_hook([](const Tensor& g) { return g.to(DType::f64) * 0.5; });
  const Tensor y = x * 1.0;
  sum(y).backward();
  CHECK(x.grad().dtype() == DType::f32);
  CHECK(values(x.grad()) == V{0.5, 0.5});
}

TEST_CASE("an exception in a hook leaves backward, and nothing else") {
  const Tensor x = leaf({1});
  const Tensor y = x * 1.0;
  const uint64_t key = y.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("stop"); });
  CHECK_THROWS_WITH(y.backward(Tensor(), true), "stop");
  CHECK(grad_enabled());
  y.remove_hook(key);
  y.backward();
  CHECK(values(x.grad()) == V{1});
}

TEST_CASE("retain_grad keeps the gradient of a tensor inside the graph") {
  const Tensor x = leaf({1, 2});
  const Tensor h = x * 2.0;
  h.retain_grad();
  h.retain_grad();  // twice is once
  sum(h * h).backward();
  CHECK(values(h.grad()) == V{4, 8});
  CHECK(values(x.grad()) == V{8, 16});
  x.retain_grad();  // a leaf has it anyway
  CHECK_THROWS_WITH_AS(tensor({1.0}).retain_grad(), "[retain_grad] the tensor does not require grad", AutogradError);
  // After hooks, and added up over backwards.
  const Tensor k = x * 1.0;
  k.retain_grad();
  k.register_hook([](const Tensor& g) { return g * 3.0; });
  sum(k).backward(Tensor(), true);
  sum(k).backward();
  CHECK(values(k.grad()) == V{6, 6});
}

TEST_CASE("with create_graph a hook's work is recorded") {
  const Tensor x = leaf({3});
  const Tensor y = x * x;
  y.register_hook([](const Tensor& g) {
    CHECK(grad_enabled());
    return g * g;
  });
  const Tensor g = grad({y}, {x}, {}, {.create_graph = true})[0];
  CHECK(values(grad({g}, {x})[0]) == V{2});
}

TEST_CASE("removing an unknown hook is an error") {
  const Tensor x = leaf({1});
  CHECK_THROWS_AS(x.remove_hook(1), ValueError);
  const uint64_t key = x.register_hook([](const Tensor& g) { return g; });
  CHECK_THROWS_AS((x * 1.0).remove_hook(key), ValueError);
  x.remove_hook(key);
  CHECK_THROWS_AS(x.remove_hook(key), ValueError);
}

TEST_CASE("a leaf that was frozen since the forward gets no gradient, but its hooks are called") {
  const Tensor a = leaf({1, 2}), b = leaf({3, 4});
  int calls = 0;
  a.register_hook([&](const Tensor&) {
    ++calls;
    return Tensor();
  });
  a.set_grad(tensor({5.0, 6.0}, {.dtype = a.dtype()}));
  const Tensor y = sum(a * b);
  a.set_requires_grad(false);
  y.backward({}, /*retain_graph=*/true);
  CHECK(values(a.grad()) == V{5, 6});
  CHECK(values(b.grad()) == V{1, 2});
  CHECK(calls == 1);
  a.set_requires_grad(true);
  {
    const NoGrad off;  // freezes nothing: it is the forward that it keeps from being recorded
    y.backward();
  }
  CHECK(values(a.grad()) == V{8, 10});
}
