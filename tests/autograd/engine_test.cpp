// SPDX-License-Identifier: Apache-2.0
// The backward pass: sums, paths, freeing, targets, depth.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "framework/autograd/autograd.h"
#include "framework/autograd/function.h"
#include "framework/ops/ops.h"
#include "framework/tensor/memory.h"
#include "tests/support/doubles.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

// Gives its input a gradient of the wrong shape.
struct WrongShape : Function<WrongShape> {
  static Tensors forward(FunctionContext&, const Tensors& in) { return {in[0] * 1.0}; }
  static Tensors backward(FunctionContext&, const Tensors&) { return {zeros({7})}; }
};

}  // namespace

TEST_CASE("backward adds to the gradients of leaves, and only of leaves") {
  const Tensor x = leaf({1, 2}), c = tensor({5, 6}, {.dtype = DType::f64});
  const Tensor y = x * c;
  CHECK(!x.grad().defined());
  sum(y).backward();
  CHECK(values(x.grad()) == V{5, 6});
  CHECK(!y.grad().defined());
  CHECK(!c.grad().defined());
  sum(x * 2.0).backward();
  CHECK(values(x.grad()) == V{7, 8});
  x.zero_grad();
  CHECK(!x.grad().defined());
}

TEST_CASE("a gradient has its tensor's shape and dtype") {
  const Tensor b = tensor({1, 2, 3}, {.dtype = DType::f16, .requires_grad = true}), s = scalar(2, {.requires_grad = true});
  sum(ones({4, 3}) * b * s).backward();
  CHECK(b.grad().shape() == Shape{3});
  CHECK(b.grad().dtype() == DType::f16);
  CHECK(values(b.grad()) == V{8, 8, 8});
  CHECK(s.grad().shape() == Shape{});
  CHECK(s.grad().item<float>() == 24);
}

TEST_CASE("paths that meet again sum up") {
  const Tensor x = leaf({3});
  const Tensor a = x * 2.0, b = exp(x * 0.0), c = a * b + a;  // diamond: 4x
  CHECK(values(grad({c * c}, {x})[0]) == V{4 * 2 * 12});
  // A tensor used many times by one op.
  CHECK(values(grad({x * x * x}, {x})[0]) == V{27});
  Tensor y = x;
  for (int i = 0; i < 40; ++i) y = y + y;  // 2^40 paths
  CHECK(values(grad({y}, {x})[0]) == V{std::pow(2.0, 40)});
}

TEST_CASE("accumulated gradients are not shared between leaves") {
  const Tensor x = leaf({1, 2}), y = leaf({3, 4});
  for (bool create_graph : {false, true}) {
    x.zero_grad(), y.zero_grad();
    const Tensor seed = ones({2}, {.dtype = DType::f64});
    (x + y).backward(seed, false, create_graph);
    CHECK(!x.grad().shares_memory_with(y.grad()));
    CHECK(!x.grad().shares_memory_with(seed));
    (x + y).backward(seed);
    CHECK(values(x.grad()) == V{2, 2});
    CHECK(values(y.grad()) == V{2, 2});
    CHECK(values(seed) == V{1, 1});
  }
}

TEST_CASE("gradients given for outputs") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 3.0;
  y.backward(tensor({10, 100}, {.dtype = DType::f64}), true);
  CHECK(values(x.grad()) == V{30, 300});
  y.backward(tensor({1.0, 1}), true);  // another dtype is converted
  CHECK(values(x.grad()) == V{33, 303});
  CHECK_THROWS_WITH_AS(y.backward(), "[backward] a gradient can be left out only for one-element outputs, got shape [2]",
                       AutogradError);
  CHECK_THROWS_WITH_AS(y.backward(ones({3})), "[backward] gradient of output 0 must have its shape [2], got [3]", ShapeError);
  x.zero_grad();
  backward({sum(y), sum(y * y)}, {});  // several outputs at once
  CHECK(values(x.grad()) == V{3 + 18, 3 + 36});
}

TEST_CASE("backward of a leaf itself") {
  const Tensor x = leaf({2});
  x.backward();
  CHECK(values(x.grad()) == V{1});
}

TEST_CASE("without a graph backward says why") {
  const char* text =
      "[backward] output 0 does not require grad and has no graph\n"
      "help: set requires_grad on an input, and do not compute it inside NoGrad";
  CHECK_THROWS_WITH_AS(sum(tensor({1.0, 2})).backward(), text, AutogradError);
  const Tensor x = leaf({1});
  Tensor y;
  {
    const NoGrad off;
    y = x * 2.0;
  }
  CHECK_THROWS_WITH_AS(y.backward(), text, AutogradError);
  CHECK_THROWS_AS(x.detach().backward(), AutogradError);
}

TEST_CASE("a graph is freed by backward unless it is retained") {
  const Tensor x = leaf({2});
  const Tensor y = exp(x), z = y * y;
  z.backward(Tensor(), /*retain_graph=*/true);
  const V first = values(x.grad());
  x.zero_grad();
  z.backward();
  CHECK(values(x.grad()) == first);
  CHECK_THROWS_WITH_AS(z.backward(),
                       "[mul] the graph was freed by an earlier backward\nhelp: pass retain_graph = true to the first backward",
                       AutogradError);
  // A part that saved nothing can be used again.
  const Tensor q = x + 1.0;
  q.backward();
  q.backward();
}

TEST_CASE("memory is freed after backward, and when a graph is dropped unused") {
  const Tensor w = rand({64, 64}, {.requires_grad = true});
  const size_t start = allocator(Device::cpu).stats().live;
  {
    Tensor y = w;
    for (int i = 0; i < 5; ++i) y = tanh(mm(y, w));
    CHECK(allocator(Device::cpu).stats().live - start == 5 * w.nbytes());  // tanh keeps its output, which mm shares
  }
  CHECK(allocator(Device::cpu).stats().live == start);
  Tensor y = w;
  for (int i = 0; i < 5; ++i) y = tanh(mm(y, w));
  Tensor loss = sum(y);
  y = Tensor();
  loss.backward();
  w.zero_grad();
  // Saved tensors are freed although `loss` is still held.
  CHECK(allocator(Device::cpu).stats().live - start <= 64);
  loss = Tensor();
  CHECK(allocator(Device::cpu).stats().live == start);
}

TEST_CASE("saving an op's own output makes no cycle") {
  const size_t start = allocator(Device::cpu).stats().live;
  {
    const Tensor x = leaf({1, 2});
    const Tensor y = exp(sigmoid(tanh(softmax(x, 0))));
  }
  CHECK(allocator(Device::cpu).stats().live == start);
}

TEST_CASE("grad: inputs of any kind, touching no .grad") {
  const Tensor x = leaf({2}), unused = leaf({1});
  const Tensor h = x * 3.0, y = h * h + x;
  const Tensors g = grad({y}, {h, x, y}, {}, {.retain_graph = true});
  CHECK(values(g[0]) == V{12});
  CHECK(values(g[1]) == V{37});
  CHECK(values(g[2]) == V{1});
  CHECK(!x.grad().defined());
  CHECK(!h.grad().defined());
  CHECK_THROWS_WITH_AS(grad({y}, {unused}, {}, {.retain_graph = true}),
                       "[grad] input 0 was not used to compute the outputs\n"
                       "help: set allow_unused = true to get an undefined gradient instead",
                       AutogradError);
  const Tensors some = grad({y}, {unused, x}, {}, {.retain_graph = true, .allow_unused = true});
  CHECK(!some[0].defined());
  CHECK(values(some[1]) == V{37});
  CHECK_THROWS_WITH_AS(grad({y}, {x, tensor({1.0})}), "[grad] input 1 does not require grad", AutogradError);
  // A later tensor is no input of an earlier one.
  CHECK(!grad({h}, {y}, {}, {.retain_graph = true, .allow_unused = true})[0].defined());
}

TEST_CASE("grad runs only what leads to its inputs") {
  const Tensor x = leaf({2}), w = leaf({5});
  const Tensor h = x * 2.0;
  int calls = 0;
  h.register_hook([&](const Tensor&) { return ++calls, Tensor(); });
  const Tensor y = exp(h) * w;
  grad({y}, {w}, {}, {.retain_graph = true});
  CHECK(calls == 0);
  grad({y}, {x}, {}, {.retain_graph = true});
  CHECK(calls == 1);
  // The target's own history does not run, nor is it freed.
  CHECK(values(grad({y}, {h}, {}, {.retain_graph = true})[0])[0] == doctest::Approx(5 * std::exp(4.0)));
}

TEST_CASE("create_graph: gradients of gradients") {
  const Tensor x = leaf({2});
  const Tensor y = x * x * x;
  const Tensor g1 = grad({y}, {x}, {}, {.create_graph = true})[0];
  CHECK(g1.requires_grad());
  const Tensor g2 = grad({g1}, {x}, {}, {.create_graph = true})[0];
  const Tensor g3 = grad({g2}, {x})[0];
  CHECK(values(g1) == V{12});
  CHECK(values(g2) == V{12});
  CHECK(values(g3) == V{6});
  // Through .grad: backward(create_graph) leaves a recorded gradient there.
  const Tensor z = exp(x * 2.0);
  z.backward(Tensor(), false, true);
  const Tensor recorded = x.grad();
  CHECK(recorded.requires_grad());
  x.zero_grad();
  recorded.backward();
  CHECK(values(x.grad())[0] == doctest::Approx(4 * std::exp(4.0)));
  // Without create_graph a gradient has no history.
  CHECK(!grad({exp(x)}, {x})[0].requires_grad());
}

TEST_CASE("a gradient penalty trains") {
  const Tensor x = leaf({1, 2, 3}), w = leaf({0.5, -1, 2});
  const Tensor loss = sum(tanh(x * w));
  const Tensor g = grad({loss}, {w}, {}, {.create_graph = true})[0];
  const Tensor total = loss + sum(square(g));
  total.backward();
  for (int i = 0; i < 3; ++i) {
    const double xi = i + 1.0, wi = values(w)[size_t(i)], t = std::tanh(xi * wi), d = 1 - t * t;
    CHECK(values(w.grad())[size_t(i)] == doctest::Approx(xi * d + 2 * (xi * d) * (xi * xi * -2 * t * d)));
  }
}

TEST_CASE("detach and requires_grad") {
  const Tensor x = leaf({2});
  const Tensor y = x * 3.0, d = y.detach();
  CHECK(!d.requires_grad());
  CHECK(d.is_leaf());
  CHECK(d.shares_memory_with(y));
  CHECK(values(grad({y * d}, {x})[0]) == V{18});
  CHECK_THROWS_WITH_AS(y.set_requires_grad(false), "[set_requires_grad] only a leaf can change requires_grad\nhelp: use detach()",
                       AutogradError);
  CHECK_THROWS_WITH_AS(arange(3).set_requires_grad(), "[set_requires_grad] only floating tensors can require grad, got int64",
                       DTypeError);
  x.set_requires_grad(false);
  CHECK(!(x * 2.0).requires_grad());
  CHECK(!argmax(y).requires_grad());
  CHECK(!gt(y, 1.0).requires_grad());
  CHECK(!y.to(DType::i64).requires_grad());
}

TEST_CASE("set_grad") {
  const Tensor x = leaf({1, 2});
  CHECK_THROWS_WITH_AS(x.set_grad(ones({3})), "[set_grad] the gradient must have shape [2], got [3]", ShapeError);
  CHECK_THROWS_WITH_AS(x.set_grad(ones({2})), "[set_grad] the gradient must be float64, got float32", DTypeError);
  CHECK_THROWS_WITH_AS(x.set_grad(empty({2}, {.dtype = DType::f64, .device = Device::meta})),
                       "[set_grad] the gradient must be on cpu, got meta", DeviceError);
  x.set_grad(full({2}, 4, {.dtype = DType::f64}));
  sum(x).backward();
  CHECK(values(x.grad()) == V{5, 5});
}

TEST_CASE("a gradient of the wrong shape is refused") {
  const Tensor x = leaf({1, 2});
  CHECK_THROWS_WITH_AS(sum(WrongShape::apply({x})[0]).backward(),
                       "[custom function] its backward gave input 0 a gradient of shape [7], but the input has [2]", AutogradError);
}

TEST_CASE("a chain of 300,000 ops runs backward and is freed without recursion") {
  constexpr int kLength = 300000;
  const Tensor x = leaf({1});
  {
    Tensor y = x;
    for (int i = 0; i < kLength; ++i) y = y + 1.0;
    y.backward();
    CHECK(values(x.grad()) == V{1});
    CHECK(values(y) == V{kLength + 1.0});
    CHECK(values(grad({y}, {x})[0]) == V{1});
  }
  Tensor z = x;
  for (int i = 0; i < kLength; ++i) z = sin(z);                                // each node keeps the tensor before it
  std::thread([chain = std::move(z)]() mutable { chain = Tensor(); }).join();  // dropped unused, on a small stack
}

TEST_CASE("threads may differentiate graphs of their own") {
  std::vector<std::thread> threads;
  std::vector<double> results(4);
  for (size_t i = 0; i < results.size(); ++i)
    threads.emplace_back([&results, i] {
      const Tensor x = tensor({double(i)}, {.dtype = DType::f64, .requires_grad = true});
      for (int k = 0; k < 50; ++k) sum(x * x).backward();
      results[i] = x.grad().item<double>();
    });
  for (std::thread& t : threads) t.join();
  for (size_t i = 0; i < results.size(); ++i) CHECK(results[i] == 100.0 * double(i));
}

TEST_CASE("threads may ask one kept graph for gradients of different tensors") {
  const Tensor x = tensor({2.0}, {.dtype = DType::f64, .requires_grad = true}),
               w = tensor({3.0}, {.dtype = DType::f64, .requires_grad = true});
  Tensor y = x;
  for (int i = 0; i < 20; ++i) y = y * w + x;
  const double of_x = grad({y}, {x}, {}, {.retain_graph = true})[0].item<double>();
  const double of_w = grad({y}, {w}, {}, {.retain_graph = true})[0].item<double>();
  std::vector<std::thread> threads;
  std::vector<int> right(4);
  for (size_t i = 0; i < right.size(); ++i)
    threads.emplace_back([&, i] {
      for (int k = 0; k < 100; ++k)
        right[i] += grad({y}, {i % 2 ? w : x}, {}, {.retain_graph = true})[0].item<double>() == (i % 2 ? of_w : of_x);
    });
  for (std::thread& t : threads) t.join();
  CHECK(right == std::vector<int>(4, 100));
}

TEST_CASE("gradients given for outputs are one for each, on their devices") {
  const Tensor x = leaf({1, 2});
  CHECK_THROWS_WITH_AS(backward({sum(x)}, {Tensor(), Tensor()}), "[backward] there are more gradients than outputs, got 2 and 1",
                       AutogradError);
  CHECK_THROWS_WITH_AS(sum(x).backward(empty({}, {.dtype = DType::f64, .device = Device::meta})),
                       "[backward] gradient of output 0 must be on its device cpu, got meta", DeviceError);
  CHECK(!x.grad().defined());
}

TEST_CASE("threads may build and differentiate graphs upon the same leaves") {
  for (int round = 0; round < 30; ++round) {
    std::vector<Tensor> leaves;
    for (int i = 0; i < 20; ++i) leaves.push_back(leaf({double(i)}));
    std::vector<std::thread> threads;
    std::atomic<int> waiting{4}, wrong{0};
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (--waiting; waiting > 0;) std::this_thread::yield();
        Tensor y = leaves[0];
        for (const Tensor& x : leaves) y = y + x * x;
        const Tensors asked = grad({y}, leaves, {}, {.retain_graph = true, .allow_unused = true});
        for (size_t i = 1; i < asked.size(); ++i) wrong += !asked[i].defined() || asked[i].item<double>() != 2.0 * double(i);
        y.backward();
      });
    for (std::thread& t : threads) t.join();
    CHECK(wrong == 0);
    for (size_t i = 1; i < leaves.size(); ++i) CHECK(leaves[i].grad().item<double>() == 8.0 * double(i));
  }
}

TEST_CASE("backward adds to the gradients of the named inputs only") {
  const Tensor a = leaf({2}), b = leaf({3}), c = leaf({5});
  const Tensor h = a * b;
  const Tensor y = h * c;
  y.backward(Tensor(), true, false, {a, h});
  CHECK(values(a.grad()) == V{15});
  CHECK(values(h.grad()) == V{5});
  CHECK(!b.grad().defined());
  CHECK(!c.grad().defined());
  backward({y}, {}, true, false, {a, c});
  CHECK(values(a.grad()) == V{30});
  CHECK(values(c.grad()) == V{6});
  CHECK(!b.grad().defined());
  CHECK_THROWS_AS(backward({h}, {}, true, false, {c}), AutogradError);
  CHECK_THROWS_AS(backward({h}, {}, true, false, {tensor({1.0})}), AutogradError);
}

TEST_CASE("a leaf gets other data and keeps its gradient and hooks") {
  const Tensor w = leaf({1, 2});
  int calls = 0;
  w.register_hook([&](const Tensor& g) { return ++calls, g * 2.0; });
  sum(w).backward();
  const Tensor other = tensor({4.0, 5.0, 6.0}), old = w.detach();
  w.set_data(other);
  CHECK(w.shape() == Shape{3});
  CHECK(w.shares_memory_with(other));
  CHECK(values(old) == V{1, 2});
  CHECK(w.requires_grad());
  CHECK(values(w.grad()) == V{2, 2});
  w.zero_grad();
  sum(w * w).backward();
  CHECK(values(w.grad()) == V{16, 20, 24});
  CHECK(calls == 2);
  CHECK_THROWS_AS(w.set_data(tensor({1, 2})), DTypeError);
  CHECK_THROWS_AS((w * 1.0).set_data(other), AutogradError);
}
