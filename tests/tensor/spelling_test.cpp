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
  Tensor x = tensor({1, 2, 4});
  x += 1;
  x -= tensor({1, 1, 1});
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
  const Tensor a = tensor({1, 1, 0, 0}) > 0, b = tensor({1, 0, 1, 0}) > 0;
  CHECK(floats(a & b) == Floats{1, 0, 0, 0});
  CHECK(floats(a | b) == Floats{1, 1, 1, 0});
  CHECK(floats(a ^ b) == Floats{0, 1, 1, 0});
  CHECK(floats(~a) == Floats{0, 0, 1, 1});
  CHECK((~a).dtype() == DType::boolean);
  CHECK(floats(tensor({0, 2}).logical_not()) == Floats{1, 0});
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
