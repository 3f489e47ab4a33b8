// SPDX-License-Identifier: Apache-2.0
// What the op table does not say of the rows of pointwise.def and the losses made of them.
#include "framework/ops/elementwise/pointwise.h"

#include <doctest/doctest.h>

#include <cmath>

#include "framework/ops/elementwise/activations.h"
#include "framework/ops/elementwise/where.h"
#include "framework/ops/loss/pointwise_losses.h"
#include "halfstep.h"
#include "tests/support/errors.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
using Values = std::vector<double>;

// How many hold the tensor.
int64_t references(const Tensor& t) { return t.impl_ptr().use_count(); }

Values gradient(const Tensor& y, const Tensor& x) { return grad({sum(y)}, {x})[0].to_vector<double>(); }

}  // namespace

TEST_CASE("in-place forms give the values of the others, recorded or not") {
  const Tensor x = randn({3, 4}, {.dtype = DType::f64}), a = randn({4}, {.dtype = DType::f64}),
               b = rand({3, 1}, {.dtype = DType::f64}) + 0.5;
  using Form = std::pair<std::function<Tensor(const Tensor&)>, std::function<void(const Tensor&)>>;
  for (const auto& [plain, in_place] :
       std::vector<Form>{{[&](const Tensor& t) { return t.addcmul(a, b, 0.3); }, [&](const Tensor& t) { t.addcmul_(a, b, 0.3); }},
                         {[&](const Tensor& t) { return t.addcdiv(a, b, 0.3); }, [&](const Tensor& t) { t.addcdiv_(a, b, 0.3); }},
                         {[&](const Tensor& t) {
                            return t.lerp(a.expand({3, 4}), 0.7);
                          },
                          [&](const Tensor& t) {
                            t.lerp_(a.expand({3, 4}), 0.7);
                          }},
                         {[&](const Tensor& t) { return t.addcmul(t, t); }, [&](const Tensor& t) { t.addcmul_(t, t); }},
                         {[&](const Tensor& t) { return t.clamp(-0.5, {}); }, [&](const Tensor& t) { t.clamp_(-0.5, {}); }}}) {
    const Values want = plain(x).to_vector<double>();
    const Tensor dense = x.clone(), strided = x.t().clone().t();
    for (const Tensor& t : {dense, strided}) {
      const uint64_t version = t.version();
      in_place(t);
      CHECK(t.to_vector<double>() == want);
      CHECK(t.version() > version);
    }
    const Tensor leaf = x.clone().set_requires_grad(), other = x.clone().set_requires_grad();
    const Tensor y = leaf * 1.0;
    in_place(y);
    CHECK(y.to_vector<double>() == want);
    CHECK(gradient(square(y), leaf) == gradient(square(plain(other)), other));
  }
}

TEST_CASE("an in-place operand may lie elsewhere in the same memory") {
  const Tensor x = arange(8, {.dtype = DType::f32});
  x.narrow(0, 1, 7).addcmul_(x.narrow(0, 0, 7), ones({7}));
  CHECK(x.to_vector<double>() == Values{0, 1, 3, 5, 7, 9, 11, 13});
}

TEST_CASE("in-place forms refuse what the tensor cannot hold") {
  const Tensor whole = zeros({3}, {.dtype = DType::i64}), x = zeros({3});
  CHECK_THROWS_AS(whole.addcmul_(x, x), DTypeError);
  CHECK_THROWS_AS(x.addcmul_(zeros({2, 3}), x), ShapeError);
  CHECK_THROWS_AS(whole.lerp_(whole, 0.5), DTypeError);
  CHECK_THROWS_AS(whole.clamp_(0.5, {}), DTypeError);
  CHECK(whole.clamp_(2, 3).to_vector<int64_t>() == std::vector<int64_t>{2, 2, 2});
  CHECK(whole.addcmul_(whole, whole, 2).to_vector<int64_t>() == std::vector<int64_t>{10, 10, 10});
}

TEST_CASE("an op saves what its wanted gradients name") {
  const Tensor x = randn({5}), a = randn({5}), b = randn({5});
  a.set_requires_grad();
  const int64_t held_x = references(x), held_b = references(b);
  const Tensor y = addcmul(x, a, b);
  CHECK(references(x) == held_x);
  CHECK(references(b) > held_b);
}

TEST_CASE("at kinks and where numbers end") {
  const Tensor x = tensor({-1, 0, 1, kInf}, {.requires_grad = true});
  CHECK(gradient(leaky_relu(x, 0.25), x) == Values{0.25, 0.25, 1, 1});
  CHECK(gradient(hardtanh(x), x) == Values{0, 1, 0, 0});
  CHECK(gradient(hardshrink(x, 1), x) == Values{0, 0, 0, 1});
  CHECK(gradient(clamp(x, 0, {}), x) == Values{0, 0, 1, 1});
  CHECK(gradient(clamp(x, tensor({0.0, 0, 0, 0}), tensor({0.0, 0, 2, 2})), x) == Values{0, 1, 1, 0});
  CHECK(gradient(clamp_min(x, scalar(0)), x) == Values{0, 0.5, 1, 1});
  CHECK(gradient(threshold(x, 0, 7), x) == Values{0, 0, 1, 1});
  CHECK(gradient(huber_loss(x, zeros({4}), Reduction::none, 1), x) == Values{-1, 0, 1, 1});
  const Tensor bad = tensor({kNan, kInf, -kInf, 1}, {.requires_grad = true});
  CHECK(gradient(nan_to_num(bad), bad) == Values{0, 0, 0, 1});
  CHECK(clamp(bad, -2, 2).to_vector<double>()[0] != clamp(bad, -2, 2).to_vector<double>()[0]);
  CHECK(isnan(clamp(x, kNan, {})).to_vector<bool>() == std::vector<bool>(4, true));
  const Tensor certain = tensor({0.0, 1}, {.requires_grad = true});
  CHECK(binary_cross_entropy(certain, tensor({1.0, 0}), Tensor(), Reduction::none).to_vector<double>() == Values{100, 100});
  CHECK(gradient(binary_cross_entropy(certain, tensor({1.0, 0}), Tensor(), Reduction::none), certain)[0] == doctest::Approx(-1e12));
}

TEST_CASE("losses of 16-bit inputs are float32 in a region, whose backward gives 16-bit gradients straight away") {
  const Tensor x = randn({6}, {.dtype = DType::bf16}).set_requires_grad(), t = rand({6}, {.dtype = DType::bf16});
  CHECK(l1_loss(x, t).dtype() == DType::bf16);
  const Autocast region(Device::cpu, {.dtype = DType::bf16});
  const uint64_t casts = autocast::cast_count();
  for (const Tensor& loss : {l1_loss(x, t), binary_cross_entropy_with_logits(x, t), kl_div(x, t, KlReduction::none), softplus(x)}) {
    CHECK(loss.dtype() == DType::f32);
    CHECK(grad({sum(loss)}, {x})[0].dtype() == DType::bf16);
  }
  CHECK(autocast::cast_count() == casts);
  CHECK(prelu(randn({2, 3}), full({3}, 0.1)).dtype() == DType::bf16);
  CHECK(addcmul(x, t, randn({6})).dtype() == DType::f32);
  CHECK(l1_loss(x.to(DType::f64), t).dtype() == DType::f64);
  CHECK_THROWS_WITH_AS(binary_cross_entropy(t, t), doctest::Contains("binary_cross_entropy_with_logits"), AmpError);
}

TEST_CASE("losses and activations refuse what they cannot mean") {
  const Tensor x = rand({2, 3}), whole = ones({2, 3}, {.dtype = DType::i64});
  CHECK_THROWS_AS(binary_cross_entropy(x, rand({3})), ShapeError);
  CHECK_THROWS_AS(binary_cross_entropy_with_logits(x, rand({3})), ShapeError);
  CHECK_THROWS_AS(binary_cross_entropy(x + 1, x), ValueError);
  CHECK_THROWS_AS(binary_cross_entropy(x, x - 1), ValueError);
  CHECK_THROWS_AS(binary_cross_entropy_with_logits(x, x, {.pos_weight = rand({2})}), ShapeError);
  CHECK_THROWS_AS(gaussian_nll_loss(x, x, rand({3})), ShapeError);
  CHECK_THROWS_AS(gaussian_nll_loss(x, x, neg(x)), ValueError);
  CHECK_THROWS_AS(soft_margin_loss(rand({3}), x), ShapeError);
  CHECK_THROWS_AS(l1_loss(whole, whole), DTypeError);
  CHECK_THROWS_AS(l1_loss(x, Tensor()), ValueError);
  CHECK_THROWS_AS(smooth_l1_loss(x, x, Reduction::mean, -1), ValueError);
  CHECK_THROWS_AS(huber_loss(x, x, Reduction::mean, 0), ValueError);
  CHECK_THROWS_AS(elu(whole), DTypeError);
  CHECK_THROWS_AS(celu(x, 0), ValueError);
  CHECK_THROWS_AS(hardtanh(x, 1, -1), ValueError);
  CHECK_THROWS_AS(softshrink(x, -1), ValueError);
  CHECK_THROWS_AS(glu(x, 1), ShapeError);
  CHECK_THROWS_AS(glu(scalar(1)), ShapeError);
  CHECK_THROWS_AS(prelu(x, rand({2})), ShapeError);
  CHECK_THROWS_AS(prelu(x, rand({1, 3})), ShapeError);
  CHECK_THROWS_AS(prelu(x, rand({3}, {.dtype = DType::f64})), DTypeError);
  CHECK_THROWS_AS(lerp(x, x.to(DType::f64), 0.5), DTypeError);
  CHECK_THROWS_AS(addcmul(whole, whole, whole, 0.5), ValueError);
  CHECK_THROWS_AS(addcdiv(whole, whole, whole), DTypeError);
  CHECK_THROWS_AS(addcmul(x, rand({2}), x), ShapeError);
  CHECK_THROWS_AS(clamp(x, std::nullopt, std::nullopt), ValueError);
}

TEST_CASE("fmax and fmin share the gradient of a tie, and give it to the number beside a NaN") {
  for (const auto& op :
       {+[](const Tensor&a, const Tensor&b) { return fmax(a, b); }, +[](const Tensor&a, const Tensor&b) { return fmin(a, b); }}) {
    const Tensor a = tensor({1, kNan, 3}).requires_grad_(), b = tensor({1, 2, kNan}).requires_grad_();
    op(a, b).sum().backward();
    CHECK(a.grad().to_vector<float>() == std::vector<float>{0.5f, 0, 1});
    CHECK(b.grad().to_vector<float>() == std::vector<float>{0.5f, 1, 0});
  }
}

TEST_CASE("sums with alpha: one rounding in 16 bits, whole numbers of integers, in place") {
  const Tensor x = tensor({1, 2}, {.dtype = DType::f16}), y = tensor({0.1, 0.2}, {.dtype = DType::f16});
  CHECK(equal(x.add(y, 0.3), (x.to(DType::f32) + y.to(DType::f32) * 0.3).to(DType::f16)));
  CHECK(equal(sub(x, y, 0.3), (x.to(DType::f32) - y.to(DType::f32) * 0.3).to(DType::f16)));
  const Tensor n = arange(3), m = arange(3) + 1;
  CHECK(n.add(m, 2).to_vector<int64_t>() == std::vector<int64_t>{2, 5, 8});
  CHECK(n.add(m, 2).dtype() == DType::i64);
  CHECK(error_of([&] { n.add(m, 0.5); }) == "[add] alpha must be whole for integer tensors, got 0.5");
  const Tensor z = tensor({1.0, 2}), w = tensor({3.0, 4}).requires_grad_();
  z.add_(w, -0.5).sub_(tensor({1.0, 1}), 2);
  CHECK(z.to_vector<float>() == std::vector<float>{-2.5f, -2});
  z.sum().backward();
  CHECK(w.grad().to_vector<float>() == std::vector<float>{-0.5f, -0.5f});
  CHECK(error_of([&] { n.add_(tensor({0.5, 1, 2}), 2); }) != "");
  CHECK_THROWS_AS(z.detach().add_(zeros({3}), 2), ShapeError);
}
