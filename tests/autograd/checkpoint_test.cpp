// SPDX-License-Identifier: Apache-2.0
// amp 51: activation checkpointing under autocast.
#include <doctest/doctest.h>

#include "framework/autograd/recompute.h"
#include "halfstep.h"
#include "tests/amp/autocast_calls.h"

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
