// SPDX-License-Identifier: Apache-2.0
// Random numbers of a part of a batch are those rows of the whole batch's, for every op that draws.
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "framework/base/draws.h"
#include "framework/ops/linalg/attention.h"
#include "framework/ops/ops.h"
#include "framework/ops/shape/create.h"

using namespace halfstep;

namespace {

// f(rows) for the parts of a batch of 7 rows, put together, is f(7).
// `rounding`: products of fewer rows may round otherwise; another mask would be further off.
void check_parts(const std::string& name, const std::function<Tensor(const Tensor&)>& f, const Shape& row, double rounding = 0) {
  CAPTURE(name);
  CAPTURE(row);
  Shape shape = row;
  shape.insert(0, 7);
  const Tensor x = add(arange(double(numel(shape)), {.dtype = DType::f32}).reshape(shape), 1.0);
  manual_seed(9);
  const Tensor whole = f(x), next = rand({3});
  Tensors parts;
  for (const auto& [first, rows] : {std::pair<int64_t, int64_t>{0, 3}, {3, 2}, {5, 1}, {6, 1}}) {
    manual_seed(9);
    const DrawsOf part(BatchRows{first, rows, 7});
    parts.push_back(f(x.narrow(0, first, rows).contiguous()));
  }
  CHECK(max(abs(sub(cat(parts, 0).to(DType::f64), whole.to(DType::f64)))).item<double>() <= rounding);
  manual_seed(9);
  {
    const DrawsOf part(BatchRows{6, 1, 7});
    f(x.narrow(0, 6, 1));
  }
  CHECK(equal(rand({3}), next));  // what follows is the same, too
}

}  // namespace

TEST_CASE("draws of parts: numbers and dropout, of rows that fill blocks of four numbers and of others") {
  for (const Shape& row : {Shape{4}, Shape{1}, Shape{3}, Shape{2, 5}}) {
    check_parts(
        "rand", [](const Tensor& x) { return rand_like(x); }, row);
    check_parts(
        "rand of float64", [](const Tensor& x) { return rand_like(x, DType::f64); }, row);
    check_parts(
        "multinomial",
        [](const Tensor& x) {
          return multinomial(x.reshape({x.size(0), -1}).to(DType::f32), 9, true);
        },
        row);
    check_parts(
        "randn", [](const Tensor& x) { return randn_like(x); }, row);
    check_parts(
        "randint", [](const Tensor& x) { return randint(0, 1000, x.shape(), {.dtype = DType::i64}); }, row);
    check_parts(
        "bernoulli", [](const Tensor& x) { return bernoulli(x, 0.5); }, row);
    check_parts(
        "dropout", [](const Tensor& x) { return dropout(x, 0.4); }, row);
    check_parts(
        "dropout of float16", [](const Tensor& x) { return dropout(x.to(DType::f16), 0.4); }, row);
    check_parts(
        "gradient of dropout",
        [](const Tensor& x) {
          const Tensor leaf = x.detach().clone().set_requires_grad();
          dropout(leaf, 0.4).sum().backward();
          return leaf.grad();
        },
        row);
  }
}

TEST_CASE("draws of parts: dropout within attention, whatever heads and chunks there are") {
  for (const int64_t length : {4, 5, 9}) {
    for (const int64_t heads : {1, 3}) {
      const auto attention = [&](const Tensor& x) {
        const Tensor q = mul(x, 0.01);
        return scaled_dot_product_attention(q, q, q, {.dropout_p = 0.5});
      };
      check_parts("attention", attention, {heads, length, 2}, 1e-5);
    }
  }
  // One head in several chunks of rows.
  manual_seed(3);
  const Tensor q = randn({2, 1, 1100, 2});
  manual_seed(4);
  const Tensor whole = scaled_dot_product_attention(q, q, q, {.dropout_p = 0.5});
  manual_seed(4);
  const DrawsOf part(BatchRows{1, 1, 2});
  const Tensor second = q.narrow(0, 1, 1);
  const Tensor alone = scaled_dot_product_attention(second, second, second, {.dropout_p = 0.5});
  CHECK(max(abs(sub(alone, whole.narrow(0, 1, 1)))).item<double>() < 1e-5);
}
