// SPDX-License-Identifier: Apache-2.0
// Losses and distances where numbers are out of the ordinary, or arguments are; expected values are PyTorch's.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "amp/autocast/autocast.h"
#include "framework/autograd/autograd.h"
#include "framework/autograd/gradcheck.h"
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

TEST_CASE(
    "cosine_similarity where eps replaces a norm, and poisson_nll_loss of targets of 0, have the derivatives of their values") {
  manual_seed(3);
  const Tensor x = (randn({4, 3}, {.dtype = DType::f64}) * 0.3).detach().set_requires_grad();
  const Tensor y = (randn({4, 3}, {.dtype = DType::f64}) + 5.0).detach().set_requires_grad();
  const auto similarity = [](const Tensors& in) { return Tensors{cosine_similarity(in[0], in[1], 1, 4.0)}; };
  gradcheck(similarity, {x, y});
  gradgradcheck(similarity, {x, y});
  const Tensor counts = tensor({0.0, 1.0, 0.0, 3.0}, {.dtype = DType::f64}).set_requires_grad();
  const Tensor rates = randn({4}, {.dtype = DType::f64});
  poisson_nll_loss(rates, counts, {.full = true, .reduction = Reduction::sum}).backward();
  CHECK(counts.grad()[0].item() == doctest::Approx(-rates[0].item()));  // of exp(rate) - count rate
  CHECK(counts.grad()[2].item() == doctest::Approx(-rates[2].item()));
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
  for (const DType dtype : {DType::i64, DType::u8, DType::boolean}) CHECK_THROWS_AS(nll_loss(x.to(dtype), classes), DTypeError);
  const Autocast region(Device::cpu);
  CHECK_NOTHROW(nll_loss(x, classes, {.weight = ones({3}, {.dtype = DType::bf16})}));
}

TEST_CASE("all losses of elements have one rule of shapes: equal, or one is a number; weights and variances broadcast") {
  using F = std::function<Tensor(const Tensor&, const Tensor&)>;
  const std::vector<std::pair<const char*, F>> all = {
      {"mse_loss", [](auto& x, auto& y) { return mse_loss(x, y); }},
      {"l1_loss", [](auto& x, auto& y) { return l1_loss(x, y); }},
      {"smooth_l1_loss", [](auto& x, auto& y) { return smooth_l1_loss(x, y); }},
      {"huber_loss", [](auto& x, auto& y) { return huber_loss(x, y); }},
      {"kl_div", [](auto& x, auto& y) { return kl_div(x, y); }},
      {"binary_cross_entropy", [](auto& x, auto& y) { return binary_cross_entropy(x, y); }},
      {"binary_cross_entropy_with_logits", [](auto& x, auto& y) { return binary_cross_entropy_with_logits(x, y); }},
      {"poisson_nll_loss", [](auto& x, auto& y) { return poisson_nll_loss(x, y); }},
      {"soft_margin_loss", [](auto& x, auto& y) { return soft_margin_loss(x, y); }},
      {"hinge_embedding_loss", [](auto& x, auto& y) { return hinge_embedding_loss(x, y); }},
      {"gaussian_nll_loss", [](auto& x, auto& y) { return gaussian_nll_loss(x, y, ones(x.shape())); }},
      {"margin_ranking_loss", [](auto& x, auto& y) { return margin_ranking_loss(x, x, y); }}};
  const Tensor column = full({4, 1}, 0.5), row = full({4}, 0.25), matrix = full({3, 4}, 0.5);
  for (const auto& entry : all) {
    const auto& name = entry.first;
    const auto& f = entry.second;
    CAPTURE(name);
    const auto refused = [&](const Tensor& x, const Tensor& y) {
      CHECK_THROWS_WITH_AS(f(x, y),
                           joined("[", name, "] input and target must have one shape, got ", x.shape(), " and ", y.shape(),
                                  "\nhelp: reshape one of them, such as output.squeeze(1) or target.unsqueeze(1)")
                               .c_str(),
                           ShapeError);
    };
    refused(column, row);
    refused(row, column);
    refused(matrix, row);
    refused(row, full({1}, 0.25));
    const double each = f(row, full({4}, 1.0)).item<double>();
    CHECK(f(row, full({}, 1.0)).item<double>() == doctest::Approx(each));
    CHECK(f(matrix, matrix).dim() == 0);
  }
  const Tensor x = full({2, 3}, 0.5), y = full({2, 3}, 1.0), w = tensor({1.0, 2, 3});
  CHECK(binary_cross_entropy_with_logits(x, y, {.weight = w, .pos_weight = w}).defined());
  CHECK(gaussian_nll_loss(x, y, ones({2})).defined());
  CHECK(gaussian_nll_loss(x, y, ones({2, 1})).defined());
  // The gradient of a number is the sum over all elements.
  const Tensor level = full({}, 2.0).set_requires_grad();
  mse_loss(y, level, "sum").backward();
  CHECK(level.grad().item<double>() == doctest::Approx(12));
}

TEST_CASE("ctc_loss refuses a target that is the blank, and says where it is") {
  const Tensor scores = log_softmax(randn({6, 2, 4}), 2), frames = from_vector<int64_t>({6, 6}, {2});
  const auto loss = [&](const std::vector<int64_t>& labels, const Shape& shape, const std::vector<int64_t>& lengths,
                        int64_t blank) {
    return ctc_loss(scores, from_vector(labels, shape), frames, from_vector(lengths, {2}), {.blank = blank});
  };
  const auto text = [](int64_t label, int64_t position, int64_t sample) {
    return joined("[ctc_loss] a target must not be the blank, which means no label, got ", label, " at position ", position,
                  " of sample ", sample,
                  "\nhelp: number the labels so that none is the blank, or choose another class as the blank");
  };
  CHECK_THROWS_WITH_AS(loss({1, 2, 3, 0}, {2, 2}, {2, 2}, 0), text(0, 1, 1).c_str(), ValueError);
  CHECK_THROWS_WITH_AS(loss({3, 1, 2}, {3}, {1, 2}, 3), text(3, 0, 0).c_str(), ValueError);  // joined targets, another blank
  CHECK_NOTHROW(loss({1, 2, 3, 0}, {2, 2}, {2, 1}, 0));  // what is behind a target's end is padding
  CHECK_NOTHROW(loss({1, 0, 2}, {3}, {1, 2}, 3));
  CHECK_THROWS_WITH_AS(loss({1, 4, 2}, {3}, {1, 2}, 0), doctest::Contains("target 4 at position 0 of sample 1 is outside [0, 4)"),
                       IndexError);
}

TEST_CASE("ops with a floating result read integers as PyTorch does") {
  const Tensor a = tensor({{2, 3, 4}, {6, 2, 4}}), b = tensor({{2, 3, 5}, {9, 12, 0}}), y = tensor({1, -1});
  CHECK(cosine_embedding_loss(a, b, y, 0.5).item() == doctest::Approx(0.10039752721786499));
  CHECK(margin_ranking_loss(tensor({1, 2}), tensor({1, 1}), y).item() == doctest::Approx(0.5));
  CHECK(triplet_margin_loss(tensor({{1, 2}}), tensor({{1, 1}}), tensor({{1, -1}})).item() == 0);
  CHECK(pairwise_distance(tensor({{1, 2}}), tensor({{1, 1}})).item() == doctest::Approx(1.0000009536743164));
  const Tensor r = local_response_norm(arange(100, 136).reshape({2, 3, 3, 2}), 2);
  CHECK(r.dtype() == DType::f32);
  CHECK(r.flatten()[1].item() == doctest::Approx(74.1462).epsilon(1e-4));  // PyTorch cuts the mean of squares to an integer
}

TEST_CASE("losses take targets that differ in sizes of 1 where that has one meaning") {
  const Tensor scores = tensor({0.1, 0.7, 0.2}), at = tensor({1});
  CHECK(nll_loss(scores, at).item() == nll_loss(scores, tensor(1)).item());
  CHECK(cross_entropy(scores, at).item() == cross_entropy(scores, tensor(1)).item());
  CHECK(multi_margin_loss(scores, at).item() == multi_margin_loss(scores, tensor(1)).item());
  CHECK_THROWS_AS(nll_loss(scores, tensor({1, 1})), ShapeError);
}
