// SPDX-License-Identifier: Apache-2.0
// Results of several tensors: by name, by place and in structured bindings.
#include "framework/tensor/results.h"

#include <doctest/doctest.h>

#include <tuple>
#include <utility>
#include <vector>

#include "halfstep.h"
#include "tests/support/errors.h"

using namespace halfstep;
using testing::refuses;

namespace {

using PartFloats = std::vector<float>;
PartFloats part_floats(const Tensor& t) { return t.to_vector<float>(); }

}  // namespace

TEST_CASE("values and indices have names, places and bindings, and all are the same tensors") {
  const Tensor x = tensor({{3.0, 1.0}, {2.0, 5.0}}).set_requires_grad();
  const auto r = x.max(1);
  CHECK(part_floats(r.values) == PartFloats{3, 5});
  CHECK(part_floats(r.indices) == PartFloats{0, 1});
  CHECK(r.values.same(r.first));
  CHECK(std::get<1>(r).same(r.indices));
  const auto [values, indices] = x.min(1);
  CHECK(part_floats(values) == PartFloats{1, 2});
  auto [sorted, order] = x.sort(1, true);
  sorted += 1;
  CHECK(part_floats(sorted) == PartFloats{4, 2, 6, 3});
  CHECK(part_floats(order) == PartFloats{0, 1, 1, 0});
  Tensor top, at;
  std::tie(top, at) = x.topk(1);
  CHECK(part_floats(at) == PartFloats{0, 1});
  const std::pair<Tensor, Tensor> pair = x.median(1);
  CHECK(part_floats(pair.first) == PartFloats{1, 2});
  const Tensor& kept = x.kthvalue(2).values;  // lives as long as its name
  CHECK(part_floats(kept) == PartFloats{3, 5});
  x.max(1).values.sum().backward();
  CHECK(part_floats(x.grad()) == PartFloats{1, 0, 0, 1});
  CHECK(x.aminmax().max.item() == 5);
  const auto [low, high] = x.aminmax(0);
  CHECK(part_floats(high) == PartFloats{3, 5});
}

TEST_CASE("factors of matrices have PyTorch's names and the lower-case ones") {
  const Tensor m = tensor({{2.0, 0.0}, {0.0, 1.0}});
  const auto [u, s, vh] = linalg::svd(m);
  CHECK(part_floats(s) == PartFloats{2, 1});
  CHECK(allclose(linalg::svd(m).S, linalg::svd(m).s));
  CHECK(allclose(linalg::qr(m).R.abs(), m));
  CHECK(part_floats(std::get<0>(linalg::eigh(m))) == PartFloats{1, 2});
  const auto [values, vectors] = linalg::eigh(m);
  CHECK(vectors.shape() == Shape{2, 2});
}

TEST_CASE("a tensor or a slice in brackets is an index, and what is assigned there goes into the tensor") {
  Tensor x = arange(6.0).reshape({3, 2});
  using indexing::Slice, indexing::None;
  CHECK(part_floats(x[x > 2]) == PartFloats{3, 4, 5});
  CHECK(part_floats(x[tensor({2, 0})]) == PartFloats{4, 5, 0, 1});
  CHECK(x[None].shape() == Shape{1, 3, 2});
  x[Slice(0, 2)] = 7;
  CHECK(part_floats(x) == PartFloats{7, 7, 7, 7, 4, 5});
  x[x > 6] -= 1;
  x[tensor({2})] = tensor({8.0, 9.0});
  CHECK(part_floats(x) == PartFloats{6, 6, 6, 6, 8, 9});
  x[Slice(1, 2)] /= 2;
  x[tensor({0, 2})] *= x[tensor({1, 1})];
  CHECK(part_floats(x) == PartFloats{18, 18, 3, 3, 24, 27});
  auto part = x[x > 20];
  part += 1;
  part = part * 2;
  CHECK(part_floats(part) == PartFloats{50, 56});
  CHECK(part_floats(x[2]) == PartFloats{24, 27});
  part = x[Slice(0, 1)];
  part.fill_(0);
  CHECK(part_floats(x[0]) == PartFloats{0, 0});
  const Tensor w = ones({2}).set_requires_grad();
  Tensor y = zeros({3});
  y[tensor({0, 2})] = w * 2;
  (y * y).sum().backward();
  CHECK(part_floats(w.grad()) == PartFloats{8, 8});
  CHECK_THROWS_WITH_AS(x[tensor({5})] = 0, doctest::Contains("index"), IndexError);
}

TEST_CASE("text for meshgrid says which indices come first") {
  const Tensor a = arange(2), b = arange(3);
  CHECK(meshgrid({a, b}, "ij")[0].shape() == Shape{2, 3});
  CHECK(meshgrid({a, b}, "xy")[0].shape() == Shape{3, 2});
  refuses<ValueError>("[meshgrid] indexing must be ij or xy, got 'yx'", [&] { meshgrid({a, b}, "yx"); });
}

TEST_CASE("spellings refuse what their ops refuse") {
  const Tensor x = ones({2, 2});
  refuses<ValueError>("[gelu] approximate must be none or tanh, got 'fast'", [&] { gelu(x, "fast"); });
  refuses<ValueError>("[div] rounding_mode must be trunc or floor, got 'round'", [&] { div(x, 2, "round"); });
  CHECK(part_floats(div(x, -2, "floor")) == PartFloats{-1, -1, -1, -1});
  CHECK(zeros_like(x, {.dtype = DType::float16}).dtype() == kFloat16);
  CHECK(zeros_like(x, {.requires_grad = true}).requires_grad());
  CHECK(part_floats(0 < x) == part_floats(x > 0));
  CHECK(part_floats(1 <= x) == PartFloats{1, 1, 1, 1});
  const Tensors joined = Tensors{x} + Tensors{x, x};
  CHECK(joined.size() == 3);
  CHECK(!cuda::is_available() == !has_backend(Device::Type::cuda));
}
