// SPDX-License-Identifier: Apache-2.0
// Losses and distances where numbers are out of the ordinary, or arguments are; expected values are PyTorch's.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "amp/autocast/autocast.h"
#include "framework/autograd/autograd.h"
#include "framework/ops/ops.h"

using namespace halfstep;

TEST_CASE("a target that does not fit ctc_loss has an infinite loss with NaN gradients, or 0 and none") {
  const Tensor targets = from_vector<int64_t>({1, 1, 2, 0}, {2, 2}), frames = from_vector<int64_t>({2, 3}, {2}),
               lengths = from_vector<int64_t>({2, 1}, {2});  // 1 1 needs three frames
  const auto run = [&](bool zero_infinity, const Tensor& raw) {
    const Tensor x = raw.clone().set_requires_grad();
    const Tensor loss =
        ctc_loss(log_softmax(x, 2), targets, frames, lengths, {.reduction = Reduction::sum, .zero_infinity = zero_infinity});
    loss.backward();
    return std::pair{loss.item<double>(), x.grad()};
  };
  Generator generator(4);
  const Tensor raw = randn({3, 2, 3}, {}, &generator);
  const auto [loss, dx] = run(false, raw);
  CHECK(loss == INFINITY);
  for (double v : dx.narrow(0, 0, 2).select(1, 0).flatten().to_vector<double>()) CHECK(std::isnan(v));
  for (double v : dx.select(1, 1).flatten().to_vector<double>()) CHECK(std::isfinite(v));
  const auto [zeroed, none] = run(true, raw);
  CHECK(std::isfinite(zeroed));
  CHECK(none.select(1, 0).flatten().to_vector<double>() == std::vector<double>(9, 0));
  CHECK(none.select(1, 1).flatten().to_vector<double>() == dx.select(1, 1).flatten().to_vector<double>());

  // ln 0: impossible labels, beside which the rest counts as before.
  const Tensor sure = tensor({-INFINITY, 0, 0, -INFINITY}, {2, 1, 2}, {.dtype = DType::f64, .requires_grad = true});  // 1, blank
  const auto one = [](int64_t n) { return from_vector<int64_t>({n}, {1}); };
  const Tensor fits = ctc_loss(sure, from_vector<int64_t>({1}, {1, 1}), one(2), one(1));
  CHECK(fits.item<double>() == 0);
  const auto d = grad({fits}, {sure})[0].to_vector<double>();
  CHECK(d == std::vector<double>{0, -1, -1, 0});
  const Tensor never = ctc_loss(sure, from_vector<int64_t>({1, 1}, {1, 2}), one(2), one(2), {.zero_infinity = true});
  CHECK(grad({never}, {sure})[0].to_vector<double>() == std::vector<double>(4, 0));
  CHECK_THROWS_AS(ctc_loss(sure, from_vector<int64_t>({1, 1}, {2}), one(2), one(1)), ShapeError);  // one label too many
}

TEST_CASE("gaussian_nll_loss below eps has the second derivative of the variance that it takes") {
  const Tensor x = tensor({1}, {.dtype = DType::f64}), t = tensor({3}, {.dtype = DType::f64});
  const auto derivatives = [&](double var, double eps) {
    const Tensor v = tensor({var}, {.dtype = DType::f64, .requires_grad = true});
    const Tensor first = grad({gaussian_nll_loss(x, t, v, {.eps = eps})}, {v}, {}, {.create_graph = true})[0];
    return std::pair{first.item<double>(), grad({first}, {v})[0].item<double>()};
  };
  CHECK(derivatives(0.25, 0.5) == derivatives(0.5, 0.1));
  CHECK(derivatives(0.5, 0.1).second == doctest::Approx(-0.5 / 0.25 + 4 / 0.125));
}

TEST_CASE("in a region, a 16-bit input that a loss uses several times gets a gradient that is rounded once") {
  Generator generator(9);
  const Tensor y = tensor({1.0, -1, 1, 1}), classes = from_vector<int64_t>({0, 4, 2, 2}, {4});
  const Tensor labels = from_vector<int64_t>({1, 3, -1, 0, 0, 2, 0, -1, 4, 1, 2, 3, 0, 1, 2, -1, 0, 0, 0, 0}, {4, 5});
  const Tensor ones_and_zeros = labels.gt(1.0).to(DType::f32);
  using F = std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)>;
  const std::vector<std::pair<const char*, F>> all = {
      {"triplet_margin_loss", [](auto& a, auto& b, auto& c) { return triplet_margin_loss(a, b, c, {.margin = 3, .swap = true}); }},
      {"cosine_embedding_loss", [&](auto& a, auto& b, auto&) { return cosine_embedding_loss(a, b, y, -1); }},
      {"cosine_similarity", [](auto& a, auto& b, auto&) { return cosine_similarity(a, b); }},
      {"pairwise_distance", [](auto& a, auto& b, auto&) { return pairwise_distance(a, b); }},
      {"normalize", [](auto& a, auto&, auto&) { return normalize(a); }},
      {"multi_margin_loss", [&](auto& a, auto&, auto&) { return multi_margin_loss(a, classes, {.p = 2}); }},
      {"multilabel_margin_loss", [&](auto& a, auto&, auto&) { return multilabel_margin_loss(a, labels); }},
      {"multilabel_soft_margin_loss", [&](auto& a, auto&, auto&) { return multilabel_soft_margin_loss(a, ones_and_zeros); }},
      {"cdist", [](auto& a, auto& b, auto&) { return cdist(a, b); }},
      {"renorm", [](auto& a, auto&, auto&) { return renorm(a, 2, 0, 1); }},
      {"log_softmax", [](auto& a, auto&, auto&) { return log_softmax(a, 1); }}};
  for (const DType half : {DType::f16, DType::bf16}) {
    Tensors low;
    for (int i = 0; i < 3; ++i) low.push_back(randn({4, 5}, {}, &generator).to(half));
    for (const auto& row : all) {
      const auto& name = row.first;
      const auto& f = row.second;
      CAPTURE(name);
      const auto gradients = [&](bool region) {
        Tensors in;
        for (const Tensor& t : low) in.push_back((region ? t : t.to(DType::f32)).detach().clone().set_requires_grad());
        Tensor out;
        {
          const Autocast autocast(Device::cpu, {.dtype = half, .enabled = region});
          out = f(in[0], in[1], in[2]);
        }
        CHECK(out.dtype() == DType::f32);
        return grad({out}, in, {(arange(out.numel()) * 0.37 + 0.3).reshape(out.shape())}, {.allow_unused = true});
      };
      const Tensors got = gradients(true), want = gradients(false);
      for (size_t k = 0; k < got.size(); ++k) {
        if (!got[k].defined()) continue;
        CHECK(got[k].dtype() == half);
        const auto a = got[k].to_vector<double>(), b = want[k].to(half).to_vector<double>();
        for (size_t i = 0; i < a.size(); ++i) CHECK(std::abs(a[i] - b[i]) <= 1e-6 + 1.01 * epsilon(half) * std::abs(b[i]));
      }
    }
  }
}

TEST_CASE("what PyTorch refuses is refused") {
  const Tensor x = ones({4, 3}), p = full({4, 3}, 1.0 / 3), classes = zeros({4}, {.dtype = DType::i64});
  CHECK_THROWS_AS(batch_norm(x, {}, {}, {}, {}, true, 0.1, 0), ValueError);
  CHECK_NOTHROW(batch_norm(x, zeros({3}), ones({3}), {}, {}, false, 0.1, 0));
  CHECK_THROWS_AS(cross_entropy(x, p, {.ignore_index = 0}), ValueError);
  CHECK_NOTHROW(cross_entropy(x, p));
  CHECK_THROWS_AS(cosine_similarity(x, x, 1, -1e-8), ValueError);
  for (const DType dtype : {DType::f64, DType::f16, DType::bf16, DType::i64})
    CHECK_THROWS_AS(nll_loss(x, classes, {.weight = ones({3}, {.dtype = dtype})}), DTypeError);
  CHECK_NOTHROW(nll_loss(x.to(DType::f16), classes, {.weight = ones({3})}));
  const Autocast region(Device::cpu);
  CHECK_NOTHROW(nll_loss(x, classes, {.weight = ones({3}, {.dtype = DType::bf16})}));
}
