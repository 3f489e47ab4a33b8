// SPDX-License-Identifier: Apache-2.0
// amp 51: activation checkpointing under autocast.
#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "framework/autograd/recompute.h"
#include "halfstep.h"
#include "tests/amp/autocast_calls.h"
#include "tests/support/errors.h"

using namespace halfstep;
using calls::bitwise;

namespace {

struct Net {
  Sequential layers{std::make_shared<Linear>(8, 16), std::make_shared<Tanh>(), std::make_shared<Dropout>(0.4),
                    std::make_shared<Linear>(16, 4)};
  Tensor operator()(const Tensor& x, bool checkpointed) {
    if (!checkpointed) return layers(x);
    return checkpoint([this](const Tensor& t) { return layers(t); }, x, layers.parameters());
  }
};

}  // namespace

TEST_CASE("amp 51: a checkpointed Sequential in a region has low outputs and the gradients of the plain one, bit for bit") {
  for (DType low : {DType::bf16, DType::f16}) {
    Tensors gradients[2];
    for (bool checkpointed : {false, true}) {
      manual_seed(3);
      Net net;
      const Tensor x = randn({5, 8}).set_requires_grad();
      Tensor y;
      {
        const Autocast region(Device::cpu, low);
        y = net(x, checkpointed);
      }
      CHECK(y.dtype() == low);
      CHECK(y.requires_grad());
      rand({7});  // the generator moves on; the mask drawn again must be the first one
      const auto position = default_generator().state();
      y.sum().backward();
      CHECK(default_generator().state() == position);
      gradients[checkpointed] = {x.grad()};
      for (const Tensor& p : net.layers.parameters()) gradients[checkpointed].push_back(p.grad());
    }
    REQUIRE(gradients[0].size() == gradients[1].size());
    for (size_t i = 0; i < gradients[0].size(); ++i) {
      CHECK(gradients[1][i].dtype() == DType::f32);
      CHECK(bitwise(gradients[0][i], gradients[1][i]));
    }
  }
}

TEST_CASE("a checkpoint keeps its input alone") {
  Sequential net(std::make_shared<Linear>(64, 64), std::make_shared<Tanh>(), std::make_shared<Linear>(64, 64),
                 std::make_shared<Tanh>());
  const Tensor x = randn({512, 64});
  const auto held = [&](bool checkpointed) {
    const size_t before = allocator(Device::cpu).stats().live;
    const Tensor y = checkpointed ? checkpoint([&](const Tensor& t) { return net(t); }, x, net.parameters()) : net(x);
    return allocator(Device::cpu).stats().live - before;
  };
  CHECK(held(true) <= size_t(512 * 64 * sizeof(float)) + 1024);
  CHECK(held(false) >= 2 * size_t(512 * 64 * sizeof(float)));
}

TEST_CASE("a checkpoint differentiates twice, and inputs that need no gradient are left out") {
  manual_seed(4);
  const Tensor w = randn({3, 3}, {.dtype = DType::f64}).set_requires_grad(),
               x = randn({2, 3}, {.dtype = DType::f64}).set_requires_grad();
  const auto f = [](const Tensors& in) -> Tensors {
    return {checkpoint([&](const Tensor& t) { return tanh(mm(t, in[1])); }, in[0], {in[1]})};
  };
  CHECK_NOTHROW(gradcheck(f, {x, w}));
  CHECK_NOTHROW(gradgradcheck(f, {x, w}));
  const Tensor tokens = arange(3), table = randn({3, 2}).set_requires_grad();
  const Tensor y = checkpoint([&](const Tensor& t) { return table.gather(0, t.unsqueeze(1).expand({3, 2})); }, tokens, {table});
  y.sum().backward();
  CHECK(table.grad().to_vector<float>() == std::vector<float>(6, 1));
}

TEST_CASE("a checkpoint finds the parameters that it was not given, through casts and other checkpoints") {
  for (const bool low : {false, true}) {
    Tensors got[2];
    for (const bool checkpointed : {false, true}) {
      manual_seed(4);
      Linear a(4, 4), b(4, 4);
      LSTM c(4, 4);
      const Tensor gain = rand({4}).set_requires_grad(), x = randn({3, 2, 4}).set_requires_grad();
      const auto inner = [&](const Tensor& t) { return b(t) * gain; };
      const auto f = [&](const Tensor& t) {
        auto [out, state] = c(checkpointed ? checkpoint(inner, a(t)) : inner(a(t)));
        return out;
      };
      Tensor y;
      {
        const Autocast region(Device::cpu, DType::bf16, low);
        y = checkpointed ? checkpoint(f, x, {a.weight}) : f(x);
      }
      y.square().sum().backward();
      got[checkpointed] = {x.grad(), gain.grad()};
      for (const Module* m : std::initializer_list<const Module*>{&a, &b, &c})
        for (const Tensor& p : m->parameters()) got[checkpointed].push_back(p.grad());
    }
    REQUIRE(got[0].size() == got[1].size());
    for (size_t i = 0; i < got[0].size(); ++i) {
      REQUIRE(got[1][i].defined());
      CHECK(bitwise(got[0][i], got[1][i]));
    }
  }
}

TEST_CASE("a checkpoint refuses a tensor that was computed outside of it, unless it is given") {
  const Tensor w = rand({4}).set_requires_grad(), x = rand({4}).set_requires_grad(), scaled = w * 2;
  const auto f = [&](const Tensor& t) { return t * scaled; };
  CHECK_THROWS_WITH_AS(checkpoint(f, x),
                       doctest::Contains("[checkpoint] the function uses a tensor of shape [4] that was computed"), AutogradError);
  checkpoint(f, x, {scaled}).sum().backward();
  CHECK(bitwise(w.grad(), x * 2));
}

TEST_CASE("running statistics and power iterations of a checkpoint move once, and gradients are the same") {
  const auto run = [](bool checkpointed) {
    manual_seed(6);
    BatchNorm1d counted(3, {.momentum = {}});
    InstanceNorm1d tracked(3, {.affine = true, .track_running_stats = true});
    Linear normed = spectral_norm(Linear(5, 5));
    const Tensor x = randn({4, 3, 5}).set_requires_grad();
    const auto f = [&](const Tensor& t) { return normed(tracked(counted(t))); };
    for (int i = 0; i < 3; ++i) (checkpointed ? checkpoint(f, x) : f(x)).square().sum().backward();
    Tensors out{x.grad()};
    for (const Module* m : std::initializer_list<const Module*>{&counted, &tracked, &normed}) {
      for (const Tensor& b : m->buffers()) out.push_back(b);
      for (const Tensor& p : m->parameters()) out.push_back(p.grad());
    }
    CHECK(counted.num_batches_tracked.item<int64_t>() == 3);
    return out;
  };
  const Tensors plain = run(false), again = run(true);
  REQUIRE(plain.size() == again.size());
  for (size_t i = 0; i < plain.size(); ++i) CHECK(bitwise(plain[i], again[i]));
}

TEST_CASE("a checkpoint draws the numbers of its forward again, of any generator, and in any thread") {
  for (const GeneratorKind kind : {GeneratorKind::philox, GeneratorKind::mt19937}) {
    const auto run = [&](bool checkpointed) {
      manual_seed(3);
      Generator own(1, kind), other(2);
      const Tensor x = ones({2, 8, 4}).set_requires_grad();
      const auto f = [&](const Tensor& t) {
        const Tensor a = scaled_dot_product_attention(t, t, t, {.dropout_p = 0.5, .generator = &own});
        return dropout(a, 0.5, true, &other) * rand(a.shape(), {}, &own) + dropout(t, 0.5);
      };
      const Tensor y = checkpointed ? checkpoint(f, x) : f(x);
      const Tensor next = rand({4}, {}, &own);
      std::thread([&] { y.sum().backward(); }).join();
      return Tensors{y, x.grad(), next, rand({4}, {}, &own), rand({4}, {}, &other), rand({4})};
    };
    const Tensors plain = run(false), again = run(true);
    for (size_t i = 0; i < plain.size(); ++i) CHECK(bitwise(plain[i], again[i]));
  }
}

TEST_CASE("checkpoints of several threads draw from one generator, each its own numbers again") {
  constexpr int kThreads = 4, kSteps = 20;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < kSteps; ++i) {
        const Tensor x = ones({64}).set_requires_grad();
        const Tensor y = checkpoint([](const Tensor& in) { return dropout(dropout(in, 0.3), 0.3); }, x);
        y.sum().backward();
        wrong += !bitwise(x.grad(), y.detach());  // the mask of a dropout of ones is its gradient
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
}

TEST_CASE("a checkpoint computes again on the default device of its forward") {
  for (const Device device : {Device::cpu, Device::meta}) {
    const Tensor x = ones({3}, {.device = device}).set_requires_grad();
    std::optional<DefaultDevice> on(device);
    const Tensor y = checkpoint([](const Tensor& t) { return t * zeros({3}, {.device = default_device()}); }, x);
    on.emplace(device == Device::cpu ? Device::meta : Device::cpu);
    y.backward(ones({3}, {.device = device}));
    CHECK(x.grad().device() == device);
  }
}

TEST_CASE("a checkpoint refuses to compute again with a weight that changed") {
  const Tensor w = rand({4}).set_requires_grad(), frozen = rand({4}), x = rand({4}).set_requires_grad();
  const auto f = [&](const Tensor& t) { return t * t * w * frozen; };
  const auto error_after = [&](const Tensors& listed, const Tensor& changed) {
    const Tensor y = checkpoint(f, x, listed).sum();
    y.backward({}, /*retain_graph=*/true);
    {
      const NoGrad off;
      changed.mul_(2);
    }
    return testing::error_of([&] { y.backward(); });
  };
  w.set_label("net.weight");
  CHECK(error_after({}, w) ==
        "[checkpoint] net.weight of shape [4] was modified in place after checkpoint saved it: version 2, saved at 1\n"
        "help: use the out-of-place form, or clone() before the in-place change");
  CHECK(error_after({w, frozen}, frozen).starts_with("[checkpoint] a tensor of shape [4] was modified in place"));
  CHECK(error_after({}, frozen).empty());  // not known
  CHECK(error_after({}, x).starts_with("[checkpoint] a tensor of shape [4] was modified in place"));
}

TEST_CASE("what a checkpoint's function itself writes is no change") {
  BatchNorm1d norm(3);
  const Tensor w = rand({3}).set_requires_grad(), x = rand({4, 3});
  const auto f = [&](const Tensor& t) {
    {
      const NoGrad off;
      w.clamp_(0, 1);
    }
    return norm(t * w);
  };
  const uint64_t before = w.version();
  const Tensor y = checkpoint(f, x, {w, norm.weight}).square().sum();
  for (int i = 0; i < 3; ++i) CHECK(testing::error_of([&] { y.backward({}, /*retain_graph=*/true); }) == "");
  CHECK(w.version() == before + 4);
}

TEST_CASE("what any forward writes to a weight that it uses is no change for any checkpoint") {
  const Tensor x = ones({2, 3}).set_requires_grad(), rows = tensor({0, 1, 2, 3}).reshape({2, 2});
  const auto gradient = [&](bool checkpointed, bool changed) {
    manual_seed(1);
    EmbeddingBag bag(5, 3, {.max_norm = 0.5});
    const Tensor w = ones({2, 3}).set_requires_grad();
    const auto f = [&](const Tensor& t) {
      if (checkpointed) {  // without, the graph refuses even a write that changes nothing
        const NoGrad off;
        w.clamp_(0, 1);
      }
      return t * w * bag(rows);
    };
    const auto call = [&](const Tensor& t) { return checkpointed ? checkpoint(f, t) : f(t); };
    Tensor y = call(x).sum() + call(call(x)).sum() + bag(rows + 1).sum();  // the last rescales a row more, outside of checkpoints
    if (changed) {
      const NoGrad off;
      bag.weight.mul_(1);
    }
    y.backward();
    return Tensors{bag.weight.grad(), w.grad()};
  };
  const Tensors want = gradient(false, false), got = gradient(true, false);
  for (int i : {0, 1}) CHECK(allclose(got[i], want[i]));
  CHECK_THROWS_WITH_AS(gradient(true, true), doctest::Contains("was modified in place"), AutogradError);
}

TEST_CASE("a module that recomputes may be called twice before backward, whatever its forward rescales") {
  struct Net : Module {
    std::string describe() const override { return "Net"; }
    Part<EmbeddingBag> rows{this, "rows", EmbeddingBag(5, 3, {.max_norm = 0.5})};
    Tensor forward(const Tensor& x) override { return x * rows(x.detach().to(DType::i64)).sum(1, true); }
  };
  const auto gradient = [](bool recompute) {
    manual_seed(1);
    Net net;
    net.recompute_in_backward(recompute);
    Module& module = net;
    const Tensor a = tensor({{0.0, 1.0}, {1.0, 2.0}}).clone().set_requires_grad(), b = (a.detach() + 2).set_requires_grad();
    const Tensor first = module(a), second = module(b);
    (first.sum() + second.sum()).backward();
    return net.rows->weight.grad();
  };
  CHECK(allclose(gradient(true), gradient(false)));
}

TEST_CASE("a checkpoint of frozen weights gives the others their gradients") {
  const Tensor a = rand({4}).set_requires_grad(), b = rand({4}).set_requires_grad();
  const Tensor x = rand({4});
  const auto f = [&](const Tensor& t) { return t * a * b; };
  Tensor y = checkpoint(f, x, {a, b}).sum();
  a.set_requires_grad(false);
  y.backward();
  CHECK(!a.grad().defined());
  CHECK(bitwise(b.grad(), x * a));
  a.set_requires_grad(true);
  y = checkpoint(f, x, {a, b}).sum();
  b.zero_grad();
  for (const Tensor& t : {a, b}) t.set_requires_grad(false);
  y.backward();
  CHECK(!a.grad().defined());
  y = checkpoint([&](const Tensor& t) { return t * a; }, x, {a.set_requires_grad(true), b.set_requires_grad(true)}).sum();
  a.set_requires_grad(false);  // b, which is left, was not used
  y.backward();
  CHECK(!a.grad().defined());
}

TEST_CASE("a checkpoint that returns a tensor of others leaves it theirs") {
  const Tensor w = rand({4}).set_requires_grad(), kept = rand({4}), x = rand({4}).set_requires_grad();
  const Tensor y = checkpoint([&](const Tensor&) { return w; }, x, {w});
  CHECK(w.is_leaf());
  (y * 3).sum().backward();
  CHECK(bitwise(w.grad(), full({4}, 3.0)));
  CHECK(checkpoint([&](const Tensor&) { return kept; }, x).requires_grad());
  CHECK(!kept.requires_grad());
  CHECK(checkpoint([](const Tensor& t) { return t; }, x).requires_grad());
  CHECK(x.is_leaf());
}

TEST_CASE("a checkpoint finds tensors that no op of its function has recorded as used") {
  const Tensor w = rand({4}).set_requires_grad(), x = rand({4}).set_requires_grad(), z = w * 3;
  const auto unchanged = [&](const Tensor&) { return w; };
  const auto nested = [&](const Tensor& t) { return checkpoint(unchanged, t); };
  const auto recording = [&](const Tensor& t) {
    const EnableGrad on;
    return t.detach().exp() * w;
  };
  const auto nested_recording = [&](const Tensor& t) {
    const EnableGrad on;
    return checkpoint([&](const Tensor& u) { return u * w; }, t.exp());
  };
  const auto inner_gradient = [&](const Tensor& t) {  // of a leaf of its own
    const EnableGrad on;
    const Tensor own = t.detach().clone().set_requires_grad();
    return grad({(own * own * w).sum()}, {own}, {}, {.create_graph = true})[0];
  };
  int n = 0;
  for (const std::function<Tensor(const Tensor&)>& f :
       std::vector<std::function<Tensor(const Tensor&)>>{unchanged, nested, recording, nested_recording, inner_gradient}) {
    CAPTURE(n++);
    w.zero_grad();
    f(x).sum().backward();
    const Tensor want = w.grad();
    w.zero_grad();
    checkpoint(f, x).sum().backward();
    REQUIRE(w.grad().defined());
    CHECK(allclose(w.grad(), want));
    CHECK(w.is_leaf());
  }
  const auto outside = [&](const Tensor&) { return z; };
  CHECK_THROWS_WITH_AS(checkpoint(outside, x), doctest::Contains("add it to the list of parameters"), AutogradError);
  w.zero_grad();
  checkpoint(outside, x, {z}).sum().backward();
  CHECK(bitwise(w.grad(), full({4}, 3.0)));
}
