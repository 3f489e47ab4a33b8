// SPDX-License-Identifier: Apache-2.0
// CachedParametrizations.
#include <doctest/doctest.h>

#include <vector>

#include "amp/autocast/autocast.h"
#include "framework/autograd/autograd.h"
#include "layers/layers.h"
#include "layers/module/functional_call.h"
#include "layers/nn.h"
#include "tests/layers/support.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("a value is computed once in CachedParametrizations") {
  manual_seed(12);
  int computed = 0;
  Linear layer(3, 3);
  const auto counted = [&](const Tensor& w) {
    ++computed;
    return w * 2.0;
  };
  register_parametrization(layer, "weight", counted, /*unsafe=*/true);
  const Tensor x = randn({2, 3}), original = parametrizations(layer, "weight").original();
  const auto calls = [&](const auto& f) {
    const int before = computed;
    f();
    return computed - before;
  };
  CHECK(calls([&] { layer(layer(x)); }) == 2);
  std::vector<float> alone, once;
  layer(layer(x)).sum().backward();
  alone = original.grad().to_vector<float>();
  layer.zero_grad();
  CHECK(calls([&] {
          const CachedParametrizations outer;
          Tensor y = layer(x);
          { const nn::utils::parametrize::cached inner; }
          y = layer(y);
          parametrizations(layer, "weight").value();
          CHECK(no_grad([&] { return layer(layer(x)); }).to_vector<float>() == y.to_vector<float>());
          y.sum().backward();
        }) == 1);
  once = original.grad().to_vector<float>();
  for (size_t i = 0; i < once.size(); ++i) CHECK(once[i] == doctest::Approx(alone[i]));
  CHECK(calls([&] { layer(layer(x)); }) == 2);
  // Another value, or one with a graph, is computed anew.
  const CachedParametrizations cached;
  CHECK(calls([&] { no_grad([&] { return layer(layer(x)); }); }) == 1);
  CHECK(calls([&] { layer(layer(x)); }) == 1);
  no_grad([&] { return original.fill_(3.0); });
  CHECK(calls([&] { CHECK(layer(ones({1, 3})).detach().sub(layer.bias).mean().item() == doctest::Approx(18)); }) == 1);
  CHECK(calls([&] { functional_call(layer, {{"parametrizations.weight.original", zeros({3, 3})}}, x); }) == 1);
  CHECK(calls([&] { layer(layer(x)); }) == 1);
  CHECK(calls([&] { layer.eval(), layer(layer(x)); }) == 1);
  CHECK(calls([&] {
          const Autocast region(Device::cpu, DType::bf16);
          layer(layer(x));
        }) == 1);
  Linear copy = layer;
  CHECK(calls([&] { copy(copy(x)), layer(x); }) == 2);
  register_parametrization(layer, "weight", [](const Tensor& w) { return w + 1.0; });
  CHECK(layer(ones({1, 3})).sub(layer.bias).mean().item() == doctest::Approx(21));
  // A power iteration is part of the value.
  Linear normed = spectral_norm(Linear(3, 3));
  normed(x);
  const auto u = normed.buffers()[0].to_vector<float>();
  normed(x);
  CHECK(normed.buffers()[0].to_vector<float>() == u);
}

TEST_CASE("CachedParametrizations sees a mask that changes, and what is written by memory") {
  struct Masked : Module {
    ModuleBuffer mask = register_buffer("mask", ones({2, 2}));
    Tensor forward(const Tensor& w) override { return w * mask; }
  };
  Linear layer(2, 2, {.bias = false});
  no_grad([&] { return layer.weight.fill_(1.0); });
  const auto masked = make<Masked>();
  register_parametrization(layer, "weight", masked);
  const CachedParametrizations cached;
  const auto sum_of = [&] { return layer(ones({1, 2})).sum().item<double>(); };
  CHECK(sum_of() == 4);
  no_grad([&] { return masked->mask.select(0, 0).fill_(0.0); });
  CHECK(sum_of() == 2);
  const Tensor original = parametrizations(layer, "weight").original();
  float* const memory = original.data_ptr<float>();
  CHECK(sum_of() == 2);
  memory[3] = 5;
  CHECK(sum_of() == 6);
}
