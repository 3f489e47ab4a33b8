// SPDX-License-Identifier: Apache-2.0
// x.index({...}), x.index_put_({...}, y) and x[0] = y, as Python does them.
#include "framework/ops/index/slicing.h"

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "halfstep.h"
#include "tests/support/errors.h"

using namespace halfstep;
using halfstep::testing::error_of;
using namespace halfstep::indexing;

namespace {

// [[0, 1, 2, 3], [10, 11, 12, 13], [20, 21, 22, 23]]
Tensor grid() { return arange(3, {.dtype = DType::f32}).unsqueeze(1) * 10 + arange(4, {.dtype = DType::f32}); }
std::vector<int> values(const Tensor& t) { return t.to_vector<int>(); }
using V = std::vector<int>;
Tensor whole(std::initializer_list<double> v) { return tensor(std::vector<double>(v), {.dtype = DType::i64}); }

}  // namespace

TEST_CASE("numbers, slices, None and Ellipsis make views") {
  const Tensor x = grid();
  CHECK(values(x.index({1})) == V{10, 11, 12, 13});
  CHECK(values(x.index({-1, 2})) == V{22});
  CHECK(x.index({-1, 2}).dim() == 0);
  CHECK(values(x.index({Slice(1, 3)})) == V{10, 11, 12, 13, 20, 21, 22, 23});
  CHECK(values(x.index({Slice(), Slice(None, None, 3)})) == V{0, 3, 10, 13, 20, 23});
  CHECK(values(x.index({Slice(-2), -1})) == V{13, 23});
  CHECK(values(x.index({Slice(None, -2), 0})) == V{0});
  CHECK(x.index({Slice(7, 9)}).shape() == Shape{0, 4});
  CHECK(values(x.index({Ellipsis, 1})) == V{1, 11, 21});
  CHECK(values(x.index({"...", 1})) == V{1, 11, 21});
  CHECK(x.index({None, Slice(), None, 0}).shape() == Shape{1, 3, 1});
  CHECK(x.index({0, Ellipsis, None}).shape() == Shape{4, 1});
  CHECK(x.index({0, 1, Ellipsis}).dim() == 0);
  CHECK(x.index({Ellipsis}).same(x));
  CHECK(x.index({Slice(1), 2}).shares_memory_with(x));
}

TEST_CASE("an integer tensor without a dimension is as a number") {
  const Tensor x = grid(), one = tensor(1), last = tensor(-1).to(DType::i32);
  CHECK(x.index({one}).shares_memory_with(x));
  CHECK(values(x.index({one, last})) == V{13});
  CHECK(values(x.index({Slice(), one})) == V{1, 11, 21});
  x.index({last, Slice(0, 2)}) = 5;
  x.index_put_({one, last}, 7);
  CHECK(values(x) == V{0, 1, 2, 3, 10, 11, 12, 7, 5, 5, 22, 23});
  CHECK_THROWS_AS(x.index({tensor(3)}), IndexError);
  CHECK(values(x.index({one, whole({0, 3})})) == V{10, 7});
  CHECK(x.index({tensor(true)}).shape() == Shape{1, 3, 4});
  CHECK(x.index({whole({1})}).shape() == Shape{1, 4});
}

TEST_CASE("an empty index has a dtype, too") {
  const Tensor x = grid(), none = zeros({0});
  for (const auto& f : std::vector<std::function<void()>>{
           [&] { x.index({none}); }, [&] { x.index(Tensors{none}); }, [&] { index_select(x, 0, none); }, [&] { take(x, none); },
           [&] {
             index_put(x, {none}, zeros({0, 4}));
           },
           [&] {
             index_add(x, 0, none, zeros({0, 4}));
           },
           [&] { index_fill(x, 0, none, 1); }, [&] { embedding(x, none); }, [&] { one_hot(none, 3); }})
    CHECK_THROWS_AS(f(), DTypeError);
  CHECK(x.index({none.to(DType::i64)}).shape() == Shape{0, 4});
  CHECK(gather(x, 0, zeros({0, 4})).shape() == Shape{0, 4});  // as in PyTorch
}

TEST_CASE("a list in braces keeps its dimension, a number drops it") {
  const Tensor x = grid();
  CHECK(x.index({Slice(), -1}).shape() == Shape{3});
  CHECK(x.index({Slice(), {-1}}).shape() == Shape{3, 1});
  CHECK(values(x.index({Slice(), {-1}})) == V{3, 13, 23});
  CHECK(values(x.index({Slice(0, 2), {3, 0}})) == V{3, 0, 13, 10});
  CHECK(x.index({{0}}).shape() == Shape{1, 4});
  CHECK(x.index({{1}}).shape() == Shape{1, 4});
  CHECK(values(x.index({{2, 0}})) == V{20, 21, 22, 23, 0, 1, 2, 3});
  CHECK(values(x.index({{0, 1}, {1, 2}})) == V{1, 12});
  CHECK(values(x.index({{true, false, true}, 1})) == V{1, 21});
  CHECK(x.index({Slice(), {}}).shape() == Shape{3, 0});
  CHECK_THROWS_AS(x.index({{3}}), IndexError);
  const int last = 3;
  CHECK(x.index({Slice(), {last}}).shape() == Shape{3, 1});
  const Tensor y = grid();
  y.index_put_({Slice(), {-1}}, tensor({7, 8, 9}, {3, 1}));
  CHECK(values(y.index({Slice(), 3})) == V{7, 8, 9});
  y.index_put_({{0, 2}, {0, 1}}, -5);
  CHECK(y.index({0, 0}).item<int>() == -5);
  CHECK(y.index({2, 1}).item<int>() == -5);
  CHECK(y.index({0, 1}).item<int>() == 1);
}

TEST_CASE("tensors and masks among them take elements") {
  const Tensor x = grid();
  CHECK(values(x.index({whole({2, 0})})) == V{20, 21, 22, 23, 0, 1, 2, 3});
  CHECK(values(x.index({Slice(1), whole({3, 0})})) == V{13, 10, 23, 20});
  CHECK(values(x.index({whole({0, 1}), whole({1, 2})})) == V{1, 12});
  CHECK(values(x.index({1, whole({3, 3})})) == V{13, 13});
  CHECK(values(x.index({x > 12})) == V{13, 20, 21, 22, 23});
  CHECK(values(x.index({Slice(0, 2), whole({1, 0, 0, 1}) > 0})) == V{0, 3, 10, 13});
  CHECK(x.index({None, whole({0, 1, 1})}).shape() == Shape{1, 3, 4});
  CHECK(x.index({whole({0, 1}), None, Slice()}).shape() == Shape{2, 1, 4});
  CHECK(x.index({Ellipsis, whole({0, 1})}).shape() == Shape{3, 2});
  CHECK(x.index({true}).shape() == Shape{1, 3, 4});
  CHECK(x.index({false}).shape() == Shape{0, 3, 4});
  CHECK(x.index({Slice(), true}).shape() == Shape{3, 1, 4});
  CHECK(x.index({scalar(1, {.dtype = DType::boolean})}).shape() == Shape{1, 3, 4});
  CHECK(!x.index({whole({0})}).shares_memory_with(x));
}

TEST_CASE("the gradient of what was indexed goes to where it was") {
  const Tensor x = grid().set_requires_grad();
  (x.index({Slice(1), None, 2}) * 3).sum().backward();
  CHECK(values(x.grad()) == V{0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 3, 0});
  x.zero_grad();
  x.index({Slice(1), whole({0, 0, 3})}).sum().backward();
  CHECK(values(x.grad()) == V{0, 0, 0, 0, 2, 0, 0, 1, 2, 0, 0, 1});
}

TEST_CASE("index_put_ writes at slices, indices and masks") {
  Tensor x = grid();
  x.index_put_({Slice(1), 2}, 5);
  CHECK(values(x) == V{0, 1, 2, 3, 10, 11, 5, 13, 20, 21, 5, 23});
  x.index_put_({Ellipsis, Slice(0, 2)}, tensor({7.0, 8}));
  CHECK(values(x) == V{7, 8, 2, 3, 7, 8, 5, 13, 7, 8, 5, 23});
  x.index_put_({x > 7}, 0);
  CHECK(values(x) == V{7, 0, 2, 3, 7, 0, 5, 0, 7, 0, 5, 0});
  x.index_put_({0, whole({3, 0})}, tensor({1.0, 4}));
  CHECK(values(x) == V{4, 0, 2, 1, 7, 0, 5, 0, 7, 0, 5, 0});
  x.index_put_({Slice(0, 2)}, ones({1, 1, 2, 4}));  // leading sizes of 1 do not matter
  CHECK(values(x) == V{1, 1, 1, 1, 1, 1, 1, 1, 7, 0, 5, 0});
  x.index_put_({true}, full({1, 1, 3, 4}, 2.0));  // also behind a bool and beside indices
  CHECK(values(x) == V(12, 2));
  x.index_put_({Slice(), whole({1, 3})}, tensor({{{3.0, 4}}}));
  CHECK(values(x) == V{2, 3, 2, 4, 2, 3, 2, 4, 2, 3, 2, 4});
  x.index_put_({Ellipsis}, 6);
  x.index({Ellipsis})[0] = 5;
  CHECK(values(x) == V{5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 6});
  x.index({Ellipsis}) = grid();
  CHECK(values(x) == values(grid()));
  Tensor n = whole({1, 2, 3});
  n.index_put_({Slice(1)}, 9);
  CHECK(n.dtype() == DType::i64);
  CHECK(values(n) == V{1, 9, 9});
}

TEST_CASE("x[0] = y writes into x; a variable becomes another tensor") {
  Tensor x = grid();
  const uint64_t before = x.version();
  x[0] = x[2];
  CHECK(x.version() > before);
  CHECK(values(x[0]) == V{20, 21, 22, 23});
  x[1] = 4;
  x[1][0] = 0.0;
  CHECK(values(x[1]) == V{0, 4, 4, 4});
  x[2] += x[1];
  CHECK(values(x[2]) == V{20, 25, 26, 27});
  x.index({Slice(), Slice(1, 3)}) = -1;
  x.select(1, 0) = ones({3});
  CHECK(values(x) == V{1, -1, -1, 23, 1, -1, -1, 4, 1, -1, -1, 27});
  Tensor row = x[0];
  row = x[1];  // another handle, nothing written
  CHECK(values(x[0]) == V{1, -1, -1, 23});
  CHECK(row.shares_memory_with(x));
  Tensor a = ones({2}), b = zeros({2});
  std::tie(a, b) = std::pair(b, a);
  CHECK(values(a) == V{0, 0});
}

TEST_CASE("a write that would be lost is refused, and so is one into a parameter while a graph is recorded") {
  const Tensor x = grid();
  CHECK(error_of([&] { x.index({x > 3}) = 0; }).starts_with("[operator=] the left side must be a view of another tensor"));
  CHECK(error_of([&] { grid() = x; }).starts_with("[operator=]"));
  CHECK(error_of([&] { x[0] = ones({3}); }).starts_with("[expand]"));
  const Tensor w = grid().set_requires_grad(), y = w * 2;
  y[0] = x[0];
  CHECK(values(y[0]) == values(x[0]));
  CHECK_THROWS_AS(w[0] = x[0], AutogradError);
  const NoGrad off;
  w[0] = x[1];
  CHECK(values(w[0]) == V{10, 11, 12, 13});
}

TEST_CASE("wrong indices are named") {
  const Tensor x = grid();
  CHECK(error_of([&] { x.index({0, 1, 2}); }) == "[index] too many indices for shape [3, 4]: they are for 3 dimensions");
  CHECK(error_of([&] { x.index({Ellipsis, Ellipsis}); }) == "[index] there may be one Ellipsis, got 2");
  CHECK(error_of([&] { x.index({Slice(0, 3, 0)}); }) == "[slice] step must be positive, got 0");
  CHECK(error_of([&] { x.index({3}); }).find("[select]") == 0);
  CHECK(error_of([&] { x.index({".."}); }) == "[index] text among the indices must be \"...\", got \"..\"");
  CHECK(error_of([&] { x.index({tensor({0.5})}); }).find("[index]") == 0);
  CHECK(error_of([&] { x.index({whole({0, 1}) > 0}); }).find("[index] a mask of shape [2] does not fit") == 0);
}

TEST_CASE("a list of indices may be made at run time") {
  const Tensor x = arange(12).reshape({3, 4});
  std::vector<TensorIndex> list{Slice(1, 3)};
  list.push_back(-1);
  CHECK(values(x.index(list)) == V{7, 11});
  CHECK(x.index(list).shares_memory_with(x));
  x.index_put_(list, tensor({-7, -11}));
  CHECK(values(x.select(1, 3)) == V{3, -7, -11});
  list[1] = tensor({0, 2});
  CHECK(values(x.index(list)) == V{4, 6, 8, 10});
  x.index_put_(list, 0);
  CHECK(values(x.index(list)) == V{0, 0, 0, 0});
  list.push_back(0);
  CHECK_THROWS_AS(x.index(list), IndexError);
}
