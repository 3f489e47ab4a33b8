// SPDX-License-Identifier: Apache-2.0
// Values and gradients are compared in parametrize_test.cpp.
#include "layers/module/orthogonal.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/autograd/gradcheck.h"
#include "framework/io/weights/safetensors.h"
#include "layers/layers.h"
#include "optim/optimizers.h"
#include "tests/layers/support.h"
#include "tests/support/errors.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("orthogonal: an assigned value becomes PyTorch's") {
  const TensorFile file = load_safetensors(halfstep_source_dir() + "/tests/layers/parametrize_goldens.safetensors");
  const std::map<std::string, std::pair<std::string, bool>> cases{
      {"square", {"matrix_exp", true}},       {"orthogonal", {"cayley", true}},       {"tall", {"householder", true}},
      {"plain tall", {"householder", false}}, {"plain wide", {"householder", false}}, {"triangular", {"householder", false}}};
  for (const auto& one : cases) {
    const std::string key = one.first;
    const auto how = one.second;
    CAPTURE(key);
    const auto of = [&](const char* what) { return file.tensors.at("assigned " + key + "/" + what); };
    for (const bool before : {true, false}) {
      CAPTURE(before);
      Linear layer(of("given").size(1), of("given").size(0));
      layer.to(DType::f64);
      if (before) layer.weight = of("given").clone();
      orthogonal(layer, "weight", how.first, how.second);
      if (!before) layer.weight = of("given");
      CHECK(largest(parametrizations(layer, "weight").value() - of("weight")) < 1e-14);
      CHECK(largest(parametrizations(layer, "weight").original() - of("original")) < 1e-14);
    }
  }
}

TEST_CASE("orthogonal: a weight stays orthogonal while it is trained, by every map, with weight decay and in 16 bits") {
  manual_seed(11);
  for (const std::string map : {"matrix_exp", "cayley", "householder"}) {
    for (const bool trivialized : {true, false}) {
      for (const auto& sizes : {std::pair(6, 6), std::pair(3, 7), std::pair(7, 3)}) {
        const int in = sizes.first, out = sizes.second;
        CAPTURE(map);
        CAPTURE(trivialized);
        CAPTURE(in);
        Linear layer = orthogonal(Linear(in, out), "weight", {.orthogonal_map = map, .use_trivialization = trivialized});
        const auto off_by = [&] {
          const Tensor w = parametrizations(layer, "weight").value().detach().to(DType::f32);
          const Tensor products = in > out ? matmul(w, w.t()) : matmul(w.t(), w);
          return largest(products - eye(std::min(in, out)));
        };
        CHECK(off_by() < 1e-5);
        AdamW optimizer(layer.parameters(), {.lr = 0.1, .weight_decay = 0.5});
        const Tensor x = randn({8, in}), t = randn({8, out});
        const double before = mse_loss(layer(x), t).item();
        for (int i = 0; i < 20; ++i) {
          optimizer.zero_grad();
          mse_loss(layer(x), t).backward();
          optimizer.step();
        }
        CHECK(off_by() < 1e-5);
        CHECK(mse_loss(layer(x), t).item() < before);
        Linear loaded = orthogonal(Linear(in, out), "weight", {.orthogonal_map = map, .use_trivialization = trivialized});
        loaded.load_state_dict(layer.state_dict());
        CHECK(largest(loaded(x) - layer(x)) == 0);
        layer.to(DType::bf16);
        CHECK(off_by() < 0.05);
        CHECK(layer(x.to(DType::bf16)).dtype() == DType::bf16);
      }
    }
  }
}

TEST_CASE("orthogonal: singular and frozen weights, and one among other parametrizations") {
  Linear zero(3, 3, false);
  zero.weight = zeros({3, 3});
  zero.weight.set_requires_grad(false);
  orthogonal(zero);
  CHECK(largest(parametrizations(zero, "weight").value() - eye(3)) == 0);
  CHECK(!parametrizations(zero, "weight").original().requires_grad());
  Linear both(4, 4);
  register_parametrization(both, "weight", [](const Tensor& w) { return w * 0.5; });
  const Tensor half = parametrizations(both, "weight").value().detach();
  orthogonal(both, "weight", "cayley");
  const Tensor a = tril(half) - tril(half).t(), one = eye(4);
  CHECK(largest(parametrizations(both, "weight").value() - matmul(one + a * 0.5, linalg::inv(one - a * 0.5))) < 1e-5);
  remove_parametrizations(both, "weight");
  CHECK(largest(matmul(both.weight, both.weight.t()) - eye(4)) < 1e-5);
}

TEST_CASE("orthogonal refuses what does not fit") {
  Linear layer(3, 2);
  refuses<ShapeError>("[orthogonal] needs a matrix or a batch of matrices [..., m, n], got [2]",
                      [&] { orthogonal(layer, "bias"); });
  refuses<ValueError>(
      "[orthogonal] orthogonal_map must be one of matrix_exp, cayley and householder, got caley; did you mean cayley?",
      [&] { orthogonal(layer, "weight", "caley"); });
  CHECK(!is_parametrized(layer));
  Linear fixed = orthogonal(Linear(3, 3), "weight", {.use_trivialization = false});
  const Tensor value = parametrizations(fixed, "weight").value().detach();
  CHECK_THROWS_WITH_AS(fixed.weight = eye(3), doctest::Contains("through _Orthogonal(), which has no right_inverse"), ValueError);
  CHECK(largest(parametrizations(fixed, "weight").value() - value) == 0);
  orthogonal(layer);
  refuses<ShapeError>("[orthogonal] the value must have the weight's shape [2, 3], got [3, 3]", [&] { layer.weight = eye(3); });
}

TEST_CASE("orthogonal: first and second derivatives of every map") {
  manual_seed(6);
  for (const char* map : {"matrix_exp", "cayley", "householder"}) {
    const Orthogonal orthogonal(zeros({4, 2}), {.orthogonal_map = map, .use_trivialization = false});
    const auto value = [&](const Tensors& in) { return Tensors{Orthogonal(orthogonal).forward(in[0])}; };
    const Tensor original = randn({4, 2}, {.dtype = DType::f64}).set_requires_grad();
    gradcheck(value, {original});
    gradgradcheck(value, {original});
  }
}
