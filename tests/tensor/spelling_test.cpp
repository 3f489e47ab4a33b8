// SPDX-License-Identifier: Apache-2.0
// What a PyTorch user types: methods, operators and factories by their usual spelling.
#include <doctest/doctest.h>

#include <vector>

#include "framework/tensor/eigen.h"
#include "halfstep.h"

using namespace halfstep;

namespace {

using Floats = std::vector<float>;
Floats floats(const Tensor& t) { return t.to_vector<float>(); }

}  // namespace

TEST_CASE("one dimension needs no braces, and a bool is none") {
  const Tensor x = tensor({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(floats(x.sum(-1)) == Floats{6, 15});
  CHECK(floats(x.mean(0, true)) == Floats{2.5, 3.5, 4.5});
  CHECK(floats(x.max(1).first) == Floats{3, 6});
  CHECK(zeros(3).shape() == Shape{3});
  CHECK(x.reshape(6).shape() == Shape{6});
  CHECK(x.view(-1).shape() == Shape{6});
  static_assert(!std::is_convertible_v<bool, Dims>);
  static_assert(std::is_convertible_v<int, Dims>);
  CHECK(x.sizes() == Shape{2, 3});
  CHECK(x.unsqueeze(0).unsqueeze(3).squeeze().shape() == Shape{2, 3});
  CHECK(x.sum().item() == 21.0);
  CHECK(x.cpu().same(x));
}

TEST_CASE("operators that change a tensor in place take tensors and numbers") {
  Tensor x = tensor({1.0, 2, 4});
  x += 1;
  x -= tensor({1.0, 1, 1});
  x *= 2;
  x /= 4;
  CHECK(floats(x) == Floats{0.5, 1, 2});
  x /= tensor({0.5, 1, 2});
  x += x;
  x -= 0.5;
  x *= x;
  CHECK(floats(x) == Floats{2.25, 2.25, 2.25});
}

TEST_CASE("operators on bits: masks, integers and numbers") {
  const Tensor a = tensor({1.0, 1, 0, 0}) > 0, b = tensor({1.0, 0, 1, 0}) > 0;
  CHECK(floats(a & b) == Floats{1, 0, 0, 0});
  CHECK(floats(a | b) == Floats{1, 1, 1, 0});
  CHECK(floats(a ^ b) == Floats{0, 1, 1, 0});
  CHECK(floats(~a) == Floats{0, 0, 1, 1});
  CHECK((~a).dtype() == DType::boolean);
  CHECK((a & true).dtype() == DType::boolean);
  CHECK((a & 1).dtype() == DType::i64);
  CHECK(floats(tensor({0.0, 2}).logical_not()) == Floats{1, 0});

  const Tensor i = arange(4), u = tensor({200, 7}, {.dtype = DType::u8});
  CHECK(floats(i & 2) == Floats{0, 0, 2, 2});
  CHECK(floats(2 | i) == Floats{2, 3, 2, 3});
  CHECK(floats(1 << i) == Floats{1, 2, 4, 8});
  CHECK(floats((i - 4) >> 1) == Floats{-2, -2, -1, -1});
  CHECK(floats(~i) == Floats{-1, -2, -3, -4});
  CHECK((u ^ 255).dtype() == DType::u8);
  CHECK(floats(u << 1) == Floats{144, 14});
  CHECK(floats(i.bitwise_xor(i + 1)) == Floats{1, 3, 1, 7});
  CHECK(floats(a & i) == Floats{0, 1, 0, 0});

  Tensor mask = a.clone(), bits = i.clone();
  mask &= b;
  mask |= tensor({false, false, false, true});
  CHECK(floats(mask) == Floats{1, 0, 0, 1});
  bits <<= 2;
  bits ^= i;
  bits &= 6;
  CHECK(floats(bits) == Floats{0, 4, 2, 6});

  CHECK_THROWS_WITH_AS(ones({2}) & 1, doctest::Contains("[bitwise_and] needs integers or masks, got float32"), DTypeError);
  CHECK_THROWS_WITH_AS(~ones({2}), doctest::Contains("[bitwise_not] needs integers or masks"), DTypeError);
  CHECK_THROWS_WITH_AS(a << b, doctest::Contains("[bitwise_left_shift] has no result for bool tensors"), DTypeError);
  CHECK_THROWS_AS(mask &= i, DTypeError);  // a result of int64 does not go into bool
}

TEST_CASE("factories take what is at hand") {
  const Tensor f = tensor(std::vector<float>{1, 2}), i = tensor(std::vector<int64_t>{3}), d = tensor(std::vector<double>{0.5});
  CHECK(f.dtype() == DType::f32);
  CHECK(i.dtype() == DType::i64);
  CHECK(d.dtype() == DType::f64);
  CHECK(tensor({1.f, 2.f}).shape() == Shape{2});
  std::vector<float> memory{1, 2, 3, 4};
  Tensor view = from_blob(memory.data(), {2, 2});
  view[1] = 0;
  CHECK(memory == Floats{1, 2, 0, 0});
  CHECK_THROWS_AS(from_blob(nullptr, {2}), ValueError);
  const Tensor w = ones({2}).set_requires_grad(), y = no_grad([&] { return w * 2; });
  CHECK(!y.requires_grad());
}

TEST_CASE("Eigen reads and writes a tensor's memory, and its results become tensors") {
  Tensor x = tensor({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(!x.storage()->is_exposed());
  CHECK(as_eigen<float>(x)(1, 0) == 4);
  CHECK(x.storage()->is_exposed());  // later calls must see what is written
  as_eigen<float>(x.t())(2, 0) = 9;  // any strides
  CHECK(floats(x[0]) == Floats{1, 2, 9});
  CHECK(as_eigen<float>(x.select(1, 1)).sum() == 7);
  Eigen::MatrixXf m(2, 2);
  m << 1, 2, 3, 4;
  CHECK(floats(from_eigen(m)) == Floats{1, 2, 3, 4});
  CHECK(!from_eigen(m).storage()->is_exposed());
  CHECK(floats(from_eigen(m * m.transpose())) == Floats{5, 11, 11, 25});
  CHECK(from_eigen(Eigen::Vector3d(1, 2, 3)).shape() == Shape{3});
  CHECK(from_eigen(Eigen::Vector3d(1, 2, 3)).dtype() == DType::f64);
  CHECK_THROWS_AS(as_eigen<double>(x), DTypeError);
  CHECK_THROWS_WITH_AS(as_eigen<float>(ones({1, 1, 1})), "[as_eigen] needs a vector or a matrix, got [1, 1, 1]", ShapeError);
}

TEST_CASE("sizes and parts are taken apart by number") {
  const Tensor x = arange(24).reshape({2, 3, 4});
  const auto [n, c, w] = x.sizes<3>();
  CHECK(n == 2);
  CHECK(c == 3);
  CHECK(w == 4);
  CHECK_THROWS_WITH_AS(x.sizes<2>(), "[sizes] asked for 2 sizes, got [2, 3, 4]", ShapeError);
  const auto [a, b] = x.chunk<2>(-1);
  CHECK(b.to_vector<int64_t>() == x.narrow(2, 2, 2).to_vector<int64_t>());
  const auto [q, k, v] = x.split<3>(1, 1);
  CHECK(v.to_vector<int64_t>() == x.narrow(1, 2, 1).to_vector<int64_t>());
  CHECK_THROWS_WITH_AS(x.chunk<5>(1), "[chunk] asked for 5 parts along dimension 1 of [2, 3, 4], got 3", ShapeError);
  CHECK_THROWS_AS(x.split<2>(3, 1), ShapeError);
  const std::vector<int64_t> sizes{6, 4};
  CHECK(x.reshape(sizes).shape() == Shape{6, 4});
  CHECK(zeros(sizes).shape() == Shape{6, 4});
}

TEST_CASE("methods that PyTorch has as well") {
  const Tensor x = ones({2, 3}, {.dtype = DType::f64});
  CHECK(x.ndim() == 2);
  CHECK(x.mT().shape() == Shape{3, 2});
  CHECK(x.new_zeros({2}).dtype() == DType::f64);
  CHECK(x.new_ones({2}).sum().item() == 2);
  CHECK(x.new_full({2}, 3.5).sum().item() == 7);
  CHECK(x.new_empty({4}).numel() == 4);
  CHECK(zeros({6}).view_as(x).shape() == x.shape());
  CHECK(zeros({3}).expand_as(x).shape() == x.shape());
  CHECK(zeros({3, 2}).reshape_as(x).shape() == x.shape());
  CHECK(x.ravel().shape() == Shape{6});
  CHECK(zeros({2}).type_as(x).dtype() == DType::f64);
  CHECK(x.half().dtype() == DType::f16);
  CHECK(x.bfloat16().dtype() == DType::bf16);
  CHECK((x * 5.0).clip(0, 2).sum().item() == 12);
  const Tensor g = ones({2}, {.requires_grad = true});
  g.half().sum().backward();
  CHECK(g.grad().to_vector<float>() == std::vector<float>{1, 1});
}

TEST_CASE("results of recurrent layers are tied to variables") {
  GRU gru(3, 4);
  LSTM lstm(3, 4);
  Tensor y, h;
  LSTM::State state;
  std::tie(y, h) = gru(ones({5, 2, 3}));
  CHECK(h.shape() == Shape{1, 2, 4});
  std::tie(y, state) = lstm(ones({5, 2, 3}), state);
  CHECK(state.c.shape() == Shape{1, 2, 4});
}

TEST_CASE("tensor() takes a number, and nested braces as dimensions, with PyTorch's dtypes") {
  const auto is = [](const Tensor& t, DType dtype, const Shape& shape, const std::vector<double>& values) {
    CHECK(t.dtype() == dtype);
    CHECK(t.shape() == shape);
    CHECK(t.to_vector<double>() == values);
  };
  is(tensor(1.5), DType::f32, {}, {1.5});
  is(tensor(3), DType::i64, {}, {3});
  is(tensor(true), DType::boolean, {}, {1});
  is(tensor({0, 2}), DType::i64, {2}, {0, 2});
  is(tensor({0, 2.5}), DType::f32, {2}, {0, 2.5});
  is(tensor({true, false}), DType::boolean, {2}, {1, 0});
  is(tensor({true, 2}), DType::i64, {2}, {1, 2});
  is(tensor({{1.0, 2.0}, {3.0, 4.0}}), DType::f32, {2, 2}, {1, 2, 3, 4});
  is(tensor({{1}, {2}}), DType::i64, {2, 1}, {1, 2});
  is(tensor({{{1.0}, {2.0}}}), DType::f32, {1, 2, 1}, {1, 2});
  is(tensor({}), DType::f32, {0}, {});
  is(tensor({{}, {}}), DType::f32, {2, 0}, {});
  is(tensor({1, 2}, {.dtype = DType::f16}), DType::f16, {2}, {1, 2});
  is(tensor({1, 2, 3, 4}, {2, 2}), DType::f32, {2, 2}, {1, 2, 3, 4});
  CHECK(tensor({(int64_t(1) << 53) + 1}).item<int64_t>() == (int64_t(1) << 53) + 1);
  CHECK(tensor({1.0, 2.0}, {.requires_grad = true}).requires_grad());
  CHECK_THROWS_AS(tensor({1, 2}, {.requires_grad = true}), DTypeError);
  CHECK_THROWS_WITH_AS(tensor({{1, 2}, {3}}), "[tensor] rows of dimension 1 must have the same size, got 2 and 1", ShapeError);
  CHECK_THROWS_WITH_AS(tensor({{1, 2}, 3}), "[tensor] one entry is a number, the others are rows of 1 dimension(s)", ShapeError);
  CHECK_THROWS_WITH_AS(tensor({1, {2, 3}}), "[tensor] one entry is a row, the others are numbers", ShapeError);
}

TEST_CASE("full() and where() of numbers take the numbers' dtype, as PyTorch's") {
  CHECK(full({2}, 7).dtype() == DType::i64);
  CHECK(full({2}, 7.0).dtype() == DType::f32);
  CHECK(full({2}, true).dtype() == DType::boolean);
  CHECK(full({2}, 7, {.dtype = DType::f16}).dtype() == DType::f16);
  CHECK(full({2}, (int64_t(1) << 53) + 1)[1].item<int64_t>() == (int64_t(1) << 53) + 1);
  const Tensor mask = tensor({true, false});
  CHECK(where(mask, 1, 0).dtype() == DType::i64);
  CHECK(where(mask, 1, 0.5).to_vector<double>() == std::vector<double>{1, 0.5});
  CHECK(where(mask, 1, 0.5).dtype() == DType::f32);
  CHECK(where(mask, true, false).dtype() == DType::boolean);
}

TEST_CASE("sizes may be written without braces") {
  const Tensor x = arange(6.0);
  CHECK(x.view(2, 3).shape() == Shape{2, 3});
  CHECK(x.reshape(3, -1).shape() == Shape{3, 2});
  CHECK(x.view(2, 3).permute(1, 0).shape() == Shape{3, 2});
  CHECK(x.view(1, 6).expand(4, -1).shape() == Shape{4, 6});
  CHECK(x.repeat(2, 2).shape() == Shape{2, 12});
  CHECK(zeros(2, 3).shape() == Shape{2, 3});
  CHECK(ones(2, 3, 1).shape() == Shape{2, 3, 1});
  CHECK(rand(2, 3).shape() == Shape{2, 3});
  CHECK(randn(2, 3).shape() == Shape{2, 3});
  CHECK(randint(5, {3}).dtype() == DType::i64);
  const auto takes_other_numbers = []<class T>(const T& t) {
    return requires { t.view(2.0, 3.0); }
    || requires { t.repeat(2, true); };
  };
  CHECK(!takes_other_numbers(x));
}

TEST_CASE("devices, reductions and remainders by PyTorch's spellings") {
  const Tensor x = tensor({-3.0, 1, 5}), y = zeros({3});
  CHECK(x.to("cpu").same(x));
  CHECK(zeros({2}, {.device = "meta"}).device() == Device::meta);
  CHECK(Device(std::string("cuda:1")) == Device(Device::Type::cuda, 1));
  CHECK_THROWS_AS(x.to("gpu"), DeviceError);
  static_assert(!std::is_convertible_v<int, Device>);  // 0 is no text
  CHECK((x % 2).to_vector<double>() == std::vector<double>{1, 1, 1});
  CHECK((x % tensor({2.0, -2, 3})).to_vector<double>() == std::vector<double>{1, -1, 2});
  CHECK((arange(4) % 2 == 0).to_vector<int>() == std::vector<int>{1, 0, 1, 0});
  CHECK(mse_loss(x, y, "sum").item<double>() == 35);
  CHECK(l1_loss(x, y, "none").shape() == Shape{3});
  CHECK(nll_loss(x.reshape(1, 3), tensor({1}), {.reduction = "sum"}).item<double>() == -1);
  CHECK_THROWS_WITH_AS(mse_loss(x, y, "max"), doctest::Contains("must be mean, sum or none, got 'max'"), ValueError);
  const Tensor p = softmax(x, 0).reshape(1, 3), q = full({1, 3}, 1.0 / 3);
  CHECK(kl_div(log(p), q, "batchmean").item<double>() == kl_div(log(p), q, KlReduction::batchmean).item<double>());
  CHECK(x.clamp(0).to_vector<double>() == std::vector<double>{0, 1, 5});
  CHECK(equal(F::gelu(x, "tanh"), gelu_tanh(x)));
  CHECK_THROWS_AS(F::gelu(x, "erf"), ValueError);
}

TEST_CASE("functional calls with positional arguments, and their order in F") {
  const Tensor im = arange(16.0).reshape(1, 1, 4, 4), w = ones({1, 1, 2, 2}), q = randn({1, 2, 3, 4});
  CHECK(equal(F::conv2d(im, w, {}, 2, 1), conv2d(im, w, {}, {.stride = 2, .padding = 1})));
  CHECK(equal(F::max_pool2d(im, 2, 1), max_pool2d(im, 2, {.stride = 1})));
  CHECK(equal(F::avg_pool2d(im, 2, 2, 1), avg_pool2d(im, 2, {.stride = 2, .padding = 1})));
  CHECK(equal(adaptive_avg_pool2d(im, 2), adaptive_avg_pool2d(im, {2, 2})));
  CHECK(adaptive_avg_pool2d(im, {1, std::nullopt}).shape() == Shape{1, 1, 1, 4});
  CHECK(equal(scaled_dot_product_attention(q, q, q, {}, 0, true), scaled_dot_product_attention(q, q, q, {.is_causal = true})));
  const Tensor mask = zeros({3, 3});
  CHECK(equal(scaled_dot_product_attention(q, q, q, mask), scaled_dot_product_attention(q, q, q, {.attn_mask = mask})));
  const Tensor table = arange(6.0).reshape(3, 2), rows = tensor({2, 0});
  CHECK(equal(F::embedding(rows, table), embedding(table, rows)));
  CHECK(equal(F::embedding_bag(rows, table, tensor({0})), embedding_bag(table, rows, tensor({0}))));
  CHECK(equal(einsum("ij,kj->ik", table, table), einsum("ij,kj->ik", {table, table})));
  const Tensor v = tensor({2.0}, {.requires_grad = true});
  CHECK(grad((v * v).sum(), v)[0].item<double>() == 4);
  CHECK(grad((v * v).sum(), {v})[0].item<double>() == 4);
}

TEST_CASE("functions of one tensor are methods, too") {
  const Tensor x = tensor({{3.0, 0.0}, {-1.0, 2.0}}), flags = tensor({{true, false}, {false, true}});
  CHECK(equal(x.clamp_min(1), clamp_min(x, 1)));
  CHECK(equal(x.clamp_max(1), clamp_max(x, 1)));
  CHECK(x.count_nonzero().item<int64_t>() == 3);
  CHECK(equal(x.cummax(1).first, cummax(x, 1).first));
  CHECK(equal(x.diag(), diag(x)));
  CHECK(equal(x.diff(), diff(x)));
  CHECK(x.equal(x));
  CHECK(x.allclose(x + 1e-9));
  CHECK(equal(x.index_fill(0, tensor({1}), 7), index_fill(x, 0, tensor({1}), 7)));
  CHECK(equal(x.isfinite(), isfinite(x)));
  CHECK(!x.isnan().any().item<bool>());
  CHECK(equal(x.kthvalue(1).first, kthvalue(x, 1).first));
  CHECK(equal(x.masked_scatter(flags, tensor({8.0, 9.0})), masked_scatter(x, flags, tensor({8.0, 9.0}))));
  CHECK(equal(x.nan_to_num(), x));
  CHECK(x.nansum().item<double>() == 4);
  CHECK(equal(x.nonzero(), nonzero(x)));
  CHECK(x.quantile(0.5).item<double>() == quantile(x, 0.5).item<double>());
  CHECK(equal(x.repeat_interleave(2, 0), repeat_interleave(x, 2, 0)));
  CHECK(equal(x.rot90(), rot90(x)));
  CHECK(equal(x.take(tensor({0, 3})), take(x, tensor({0, 3}))));
  CHECK(equal(x.tile({2}), tile(x, {2})));
  CHECK(x.unflatten(1, {2, 1}).shape() == Shape{2, 2, 1});
  CHECK(equal(x.where(flags, 0), where(flags, x, 0.0)));
  CHECK(equal(x.broadcast_to({3, 2, 2}), broadcast_to(x, {3, 2, 2})));
}
