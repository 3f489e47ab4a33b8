// SPDX-License-Identifier: Apache-2.0
// Geometry, reading back, versions, broadcasting and odd layouts.
#include "framework/tensor/tensor.h"

#include <doctest/doctest.h>

#include <cmath>

#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"
#include "tests/support/doubles.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("geometry") {
  const Tensor t = empty({2, 3, 4}, {.dtype = DType::f16});
  CHECK(t.dim() == 3);
  CHECK(t.shape() == Shape{2, 3, 4});
  CHECK(t.strides() == Strides{12, 4, 1});
  CHECK(t.size(-1) == 4);
  CHECK(t.numel() == 24);
  CHECK(t.nbytes() == 48);
  CHECK(t.is_contiguous());
  CHECK(t.device() == Device::cpu);
  CHECK(scalar(1).dim() == 0);
  CHECK(scalar(1).numel() == 1);
  CHECK_THROWS_WITH_AS(t.size(3), "[size] dim must lie in [-3, 2], got 3", IndexError);
  CHECK_THROWS_WITH_AS(scalar(1).size(0), "[size] a 0-dim tensor has no dimension 0", IndexError);
  CHECK_THROWS_WITH_AS(empty({2, -1}), "[empty] sizes must not be negative, got [2, -1]", ShapeError);
  CHECK_THROWS_AS(empty({1, 1, 1, 1, 1, 1, 1, 1, 1}), ShapeError);
}

TEST_CASE("an undefined tensor says so") {
  const Tensor t;
  CHECK(!t.defined());
  CHECK_THROWS_WITH_AS(t.shape(), "[tensor] the tensor is undefined", ValueError);
  CHECK_THROWS_AS(t.item<float>(), ValueError);
  CHECK_THROWS_AS(t + scalar(1), ValueError);
  CHECK_THROWS_AS(t.backward(), AutogradError);
}

TEST_CASE("handles share, clones do not") {
  const Tensor a = tensor({1.0, 2, 3});
  const Tensor b = a, c = a.clone();
  CHECK(b.same(a));
  CHECK(!c.same(a));
  CHECK(!c.shares_memory_with(a));
  a.fill_(7);
  CHECK(values(b) == V{7, 7, 7});
  CHECK(values(c) == V{1, 2, 3});
  CHECK(a.to(DType::f32).same(a));
  CHECK(a.contiguous().same(a));
}

TEST_CASE("item and to_vector convert") {
  CHECK(scalar(2.75).item<int>() == 2);
  CHECK(scalar(-3).item<double>() == -3);
  CHECK(scalar(1, {.dtype = DType::boolean}).item<bool>());
  CHECK(scalar(0.5, {.dtype = DType::bf16}).item<float>() == 0.5f);
  CHECK(full({1, 1}, 9, {.dtype = DType::i64}).item<int64_t>() == 9);
  const int64_t big = (int64_t(1) << 60) + 1;  // not a double
  CHECK(from_vector<int64_t>({big}, {1}).item<int64_t>() == big);
  CHECK(tensor({1.0, 0, 2}).to_vector<bool>() == std::vector<bool>{true, false, true});
  CHECK(tensor({1.5, 2.5}, {.dtype = DType::f16}).to_vector<float>() == std::vector<float>{1.5f, 2.5f});
  CHECK(tensor({1, 2}, {.dtype = DType::u8}).to_vector<float>() == std::vector<float>{1, 2});
  CHECK(zeros({0, 3}).to_vector<float>().empty());
  CHECK_THROWS_WITH_AS(zeros({2}).item<float>(), "[item] the tensor must have one element, got [2]", ShapeError);
  CHECK_THROWS_WITH_AS(zeros({2}).data_ptr<double>(), "[data_ptr] asked for float64 but the tensor is float32", DTypeError);
}

TEST_CASE("to_vector reads strided and expanded tensors in row-major order") {
  const Tensor t = arange(6).reshape({2, 3});
  CHECK(values(t.t()) == V{0, 3, 1, 4, 2, 5});
  CHECK(values(t.slice(1, 0, 3, 2)) == V{0, 2, 3, 5});
  CHECK(values(tensor({1.0, 2}).unsqueeze(1).expand({2, 3})) == V{1, 1, 1, 2, 2, 2});
}

TEST_CASE("from_vector and tensor check their sizes") {
  CHECK_THROWS_WITH_AS(from_vector<float>({1, 2, 3}, {2, 2}), "[from_vector] shape [2, 2] needs 4 values, got 3", ShapeError);
  CHECK(tensor({1.0, 2, 3}).shape() == Shape{3});
  CHECK(from_vector<bool>({true, false}, {2}).dtype() == DType::boolean);
  CHECK(from_vector<int32_t>({1}, {}).dim() == 0);
}

TEST_CASE("the version grows with every in-place write, over all views") {
  const Tensor t = zeros({2, 3});
  const Tensor v = t.t(), d = t.detach();
  const uint64_t start = t.version();
  t.fill_(1);
  CHECK(t.version() == start + 1);
  v.add_(1.0);
  CHECK(t.version() == start + 2);
  d[0].mul_(2.0);
  CHECK(v.version() == start + 3);
  t.copy_(ones({2, 3}));
  t.zero_();
  t.relu_();
  CHECK(d.version() == start + 6);
  t.clone().fill_(3);
  CHECK(values(t.add(1.0)) == V{1, 1, 1, 1, 1, 1});
  CHECK(t.version() == start + 6);
}

TEST_CASE("broadcasting follows numpy") {
  const Tensor a = tensor({1.0, 2, 3}).reshape({3, 1}), b = tensor({10.0, 20});
  CHECK((a + b).shape() == Shape{3, 2});
  CHECK(values(a + b) == V{11, 21, 12, 22, 13, 23});
  CHECK((zeros({2, 1, 4}) + zeros({3, 1})).shape() == Shape{2, 3, 4});
  CHECK((zeros({0, 3}) + zeros({1, 3})).shape() == Shape{0, 3});
  CHECK((zeros({1}) * zeros({0})).shape() == Shape{0});
  CHECK((scalar(2) * b).shape() == Shape{2});
  CHECK_THROWS_WITH_AS(zeros({2, 3}) + zeros({2, 4}),
                       "[add] shapes must broadcast, got [2, 3] and [2, 4]: dimension -1 is 3 against 4", ShapeError);
  CHECK_THROWS_AS(zeros({0}) + zeros({2}), ShapeError);
}

TEST_CASE("ops read strided, expanded and overlapping inputs") {
  const Tensor t = arange(6).reshape({2, 3}).to(DType::f32);
  CHECK(values(t.t() + t.t()) == V{0, 6, 2, 8, 4, 10});
  CHECK(values(t.slice(1, 0, 3, 2).square()) == V{0, 4, 9, 25});
  CHECK(values(sum(t.slice(1, 1, 3).t(), {0})) == V{3, 9});
  const Tensor wide = tensor({1.0, 2}).unsqueeze(0).expand({3, 2});
  CHECK(values(wide * t.reshape({3, 2})) == V{0, 2, 2, 6, 4, 10});
  CHECK(wide.sum().item<float>() == 9);
  CHECK(values(mm(t, t.t())) == V{5, 14, 14, 50});
  CHECK(values(t[1].slice(0, 0, 3, 2)) == V{3, 5});
}

TEST_CASE("tensors without elements go through everything") {
  const Tensor none = zeros({0, 3}), columns = zeros({2, 0});
  CHECK(none.numel() == 0);
  CHECK(none.is_contiguous());
  CHECK(none.exp().shape() == Shape{0, 3});
  CHECK((none + 1.0).shape() == Shape{0, 3});
  CHECK(none.sum().item<float>() == 0);
  CHECK(values(sum(none, {0})) == V{0, 0, 0});
  CHECK(std::isnan(none.mean().item<float>()));
  CHECK(none.t().reshape({3, 0}).shape() == Shape{3, 0});
  CHECK(none.clone().to(DType::f16).shape() == Shape{0, 3});
  CHECK(mm(columns, zeros({0, 4})).shape() == Shape{2, 4});
  CHECK(values(mm(columns, zeros({0, 2}))) == V{0, 0, 0, 0});
  CHECK(mm(zeros({0, 2}), zeros({2, 4})).shape() == Shape{0, 4});
  CHECK(cat({none, ones({1, 3})}).shape() == Shape{1, 3});
  CHECK(none.softmax(1).shape() == Shape{0, 3});
  CHECK(zeros({0, 7}).slice(1, 0, 5, 2).reshape({0}).shape() == Shape{0});
  none.fill_(1).add_(2.0);
  CHECK(none.reshape({-1, 3}).shape() == Shape{0, 3});
  CHECK_THROWS_AS(max(none), ShapeError);
  CHECK_THROWS_AS(none.argmax(0), ShapeError);
}

TEST_CASE("from_blob views memory and keeps its owner") {
  auto owner = std::make_shared<std::vector<float>>(std::vector<float>{1, 2, 3, 4});
  std::weak_ptr<std::vector<float>> alive = owner;
  Tensor t = Tensor::from_blob(owner->data(), {2, 2}, DType::f32, owner);
  t.mul_(2.0);
  CHECK((*owner)[3] == 8);
  Tensor view = t[1];
  owner.reset();
  t = Tensor();
  CHECK(!alive.expired());
  CHECK(values(view) == V{6, 8});
  view = Tensor();
  CHECK(alive.expired());
  float one = 5;
  CHECK(Tensor::from_blob(&one, {}, DType::f32, nullptr).item<float>() == 5);
}

TEST_CASE("labels name tensors in errors") {
  const Tensor w = tensor({1.0, 2}, {.requires_grad = true}), x = tensor({1.0, 2}, {.requires_grad = true});
  x.set_label("features");
  CHECK(x.label() == "features");
  const Tensor y = w * x;
  {
    const NoGrad off;
    x.add_(1.0);
  }
  CHECK_THROWS_WITH_AS(y.sum().backward(),
                       doctest::Contains("[mul] features of shape [2] was modified in place after mul saved it"), AutogradError);
}
