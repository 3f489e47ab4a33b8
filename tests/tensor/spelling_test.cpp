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

TEST_CASE("operators of masks; whole numbers, whose bits they would mean, are refused") {
  const Tensor a = tensor({1.0, 1, 0, 0}) > 0, b = tensor({1.0, 0, 1, 0}) > 0;
  CHECK(floats(a & b) == Floats{1, 0, 0, 0});
  CHECK(floats(a | b) == Floats{1, 1, 1, 0});
  CHECK(floats(a ^ b) == Floats{0, 1, 1, 0});
  CHECK(floats(~a) == Floats{0, 0, 1, 1});
  CHECK((~a).dtype() == DType::boolean);
  CHECK(floats(tensor({0.0, 2}).logical_not()) == Floats{1, 0});
  CHECK_THROWS_WITH_AS(a & arange(4), doctest::Contains("[operator&] needs bool tensors, got int64"), DTypeError);
  CHECK_THROWS_AS(~arange(4), DTypeError);
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
  CHECK(as_eigen<float>(x)(1, 0) == 4);
  as_eigen<float>(x.t())(2, 0) = 9;  // any strides
  CHECK(floats(x[0]) == Floats{1, 2, 9});
  CHECK(as_eigen<float>(x.select(1, 1)).sum() == 7);
  Eigen::MatrixXf m(2, 2);
  m << 1, 2, 3, 4;
  CHECK(floats(from_eigen(m)) == Floats{1, 2, 3, 4});
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
