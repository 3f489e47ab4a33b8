// SPDX-License-Identifier: Apache-2.0
// In-place forms, errors and dtypes of the ops that take indices and masks.
#include <doctest/doctest.h>

#include "framework/ops/index/index_ops.h"
#include "framework/ops/index/masks.h"
#include "framework/ops/shape/create.h"
#include "framework/ops/shape/rearrange.h"
#include "halfstep.h"

using namespace halfstep;

namespace {

Tensor ints(const std::vector<int64_t>& v) { return from_vector(v, {int64_t(v.size())}); }
Tensor matrix() { return arange(0.0, 12.0, 1, {.dtype = DType::f32}).reshape({3, 4}); }

}  // namespace

TEST_CASE("in place, an index op gives what its other form gives, recorded or not") {
  const Tensor index = ints({2, 0}), each = from_vector(std::vector<int64_t>{0, 3, 1, 1}, {2, 2}), mask = gt(matrix(), 4.0);
  const Tensor rows = full({2, 4}, 7.0), part = full({2, 2}, 9.0);
  const std::vector<std::pair<std::function<Tensor(const Tensor&)>, std::function<void(const Tensor&)>>> forms{
      {[&](const Tensor& x) { return x.index_add(0, index, rows, 0.5); },
       [&](const Tensor& x) { x.index_add_(0, index, rows, 0.5); }},
      {[&](const Tensor& x) { return x.index_copy(0, index, rows); }, [&](const Tensor& x) { x.index_copy_(0, index, rows); }},
      {[&](const Tensor& x) { return x.index_put({index}, rows); }, [&](const Tensor& x) { x.index_put_({index}, rows); }},
      {[&](const Tensor& x) {
         return x.index_put({Tensor(), index}, rows.slice(1, 0, 1).flatten(), true);
       },
       [&](const Tensor& x) {
         x.index_put_({Tensor(), index}, rows.slice(1, 0, 1).flatten(), true);
       }},
      {[&](const Tensor& x) { return x.scatter(1, each, part); }, [&](const Tensor& x) { x.scatter_(1, each, part); }},
      {[&](const Tensor& x) { return x.scatter(1, each, -2.0); }, [&](const Tensor& x) { x.scatter_(1, each, -2.0); }},
      {[&](const Tensor& x) { return x.scatter_add(1, each, part); }, [&](const Tensor& x) { x.scatter_add_(1, each, part); }},
      {[&](const Tensor& x) { return x.masked_fill(mask, 3.0); }, [&](const Tensor& x) { x.masked_fill_(mask, 3.0); }},
      {[&](const Tensor& x) { return x.tril(1); }, [&](const Tensor& x) { x.tril_(1); }},
      {[&](const Tensor& x) { return x.triu(); }, [&](const Tensor& x) { x.triu_(); }}};
  for (const auto& [form, in_place] : forms) {
    const Tensor want = form(matrix());
    const Tensor plain = matrix();
    const uint64_t before = plain.version();
    in_place(plain);
    CHECK(equal(plain, want));
    CHECK(plain.version() > before);
    const Tensor strided = matrix().t().contiguous().t();
    in_place(strided);
    CHECK(equal(strided, want));
    // Recorded: the gradient is the other form's.
    const Tensor leaf = matrix().set_requires_grad(), other = matrix().set_requires_grad(), changed = leaf * 2.0;
    in_place(changed);
    changed.sum().backward();
    form(other * 2.0).sum().backward();
    CHECK(equal(leaf.grad(), other.grad()));
    CHECK_THROWS_AS(in_place(leaf), AutogradError);
  }
}

TEST_CASE("an index op in place reads what shares its memory before it writes") {
  const Tensor x = matrix();
  x.index_copy_(0, ints({1, 2}), x.narrow(0, 0, 2));
  CHECK(equal(x.select(0, 1), matrix().select(0, 0)));
  CHECK(equal(x.select(0, 2), matrix().select(0, 1)));
}

TEST_CASE("gather names the first bad index, of many blocks and in any layout, and reads nothing there") {
  const int64_t rows = 50, columns = 4000;
  const Tensor x = arange(rows * columns).to(kFloat32).reshape({rows, columns});
  const Tensor good = (arange(rows * columns) % columns).reshape({rows, columns});
  CHECK(equal(gather(x, 1, good), x));
  const auto expect_bad = [&](int64_t dim, const Tensor& index, const std::string& says) {
    CAPTURE(dim);
    CHECK_THROWS_WITH_AS(gather(x, dim, index), doctest::Contains(says.c_str()), IndexError);
  };
  for (const int64_t value : {columns, int64_t(-1), int64_t(1) << 62}) {
    Tensor bad = good.clone();
    bad[49][3999].fill_(0), bad[49][7].fill_(value), bad[3][2500].fill_(value), bad[3][2501].fill_(-5);
    const std::string says = "[gather] index " + std::to_string(value) + " at position ";
    expect_bad(1, bad, says + "14500 is outside [0, 4000)");
    expect_bad(1, bad.t().contiguous().t(), says + "14500 is outside [0, 4000)");
  }
  const Tensor wide = full({1, columns}, 0).to(kInt64);
  wide[0][1234].fill_(50);
  expect_bad(0, wide.expand({rows, columns}), "[gather] index 50 at position 1234 is outside [0, 50)");
  const Tensor along = zeros({rows, 1}, kInt64);  // one index for a row of elements
  along[30][0].fill_(columns);
  expect_bad(1, along.expand({rows, columns}), "[gather] index 4000 at position 120000 is outside [0, 4000)");
}

TEST_CASE("indices outside their dimension are IndexErrors that name them") {
  const Tensor x = matrix();
  CHECK_THROWS_WITH_AS(index_select(x, 0, ints({0, 3})), "[index_select] index 3 at position 1 is outside [0, 3)", IndexError);
  CHECK_THROWS_WITH_AS(index_select(x, 0, ints({-1})), "[index_select] index -1 at position 0 is outside [0, 3)", IndexError);
  CHECK_THROWS_WITH_AS(index(x, {ints({2, -4})}), "[index] index -4 at position 1 is outside [-3, 3)", IndexError);
  CHECK_THROWS_WITH_AS(take(x, ints({12})), "[take] index 12 at position 0 is outside [-12, 12)", IndexError);
  CHECK_THROWS_AS(x.gather(1, from_vector(std::vector<int64_t>{4}, {1, 1})), IndexError);
  CHECK_THROWS_AS(embedding(x, ints({3})), IndexError);
  CHECK_THROWS_AS(one_hot(ints({3}), 3), IndexError);
  CHECK_THROWS_AS(one_hot(ints({-1})), Error);
  CHECK_THROWS_AS(x.index_put({ints({3})}, scalar(1)), IndexError);
  CHECK_THROWS_AS(index(x, {ints({0}), ints({0}), ints({0})}), IndexError);
  CHECK_THROWS_AS(index(x, {gt(x.select(1, 0), 0.0), ints({0, 1, 0})}), ShapeError);
}

TEST_CASE("shapes and dtypes that do not fit are refused") {
  const Tensor x = matrix();
  CHECK_THROWS_AS(index_select(x, 2, ints({0})), IndexError);
  CHECK_THROWS_AS(index_select(x, 0, x), DTypeError);
  CHECK_THROWS_AS(index_add(x, 0, ints({0}), full({2, 4}, 1.0)), ShapeError);
  CHECK_THROWS_AS(index_add(x, 0, ints({0}), full({1, 4}, 1, {.dtype = DType::f16})), DTypeError);
  CHECK_THROWS_AS(index_put(x, {ints({0, 1})}, full({3, 4}, 1.0)), ShapeError);
  CHECK_THROWS_AS(index_put(x, {}, scalar(1)), ValueError);
  CHECK_THROWS_AS(masked_fill(x, x, 1), DTypeError);
  CHECK_THROWS_AS(masked_fill(x, gt(x, 0.0), full({1}, 1.0)), ShapeError);
  CHECK_THROWS_AS(x.masked_fill_(gt(full({2, 3, 4}, 1.0), 0.0), 1), ShapeError);
  CHECK_THROWS_AS(tril(ints({1})), ShapeError);
  CHECK_THROWS_AS(split(x, 0), ValueError);
  CHECK_THROWS_AS(split(x, std::vector<int64_t>{1, 1}), ValueError);
  CHECK_THROWS_AS(repeat(x, {2}), ShapeError);
  CHECK_THROWS_AS(repeat(x, {int64_t(1) << 62, int64_t(1) << 62}), ShapeError);
  CHECK_THROWS_AS(expand(full({1, 1}, 1.0), {int64_t(1) << 40, int64_t(1) << 40}), ShapeError);
  CHECK_THROWS_AS(reshape(x, {-3, -4}), ShapeError);
  CHECK_THROWS_AS(diagonal(x, 0, 1, 1), ValueError);
  CHECK_THROWS_AS(rand({2}, {.dtype = DType::i64}), DTypeError);
  CHECK_THROWS_AS(bernoulli(x), ValueError);
  CHECK_THROWS_AS(multinomial(x, 5), ValueError);
}

TEST_CASE("parts are views, and one part's gradient leaves zeros in the others") {
  const Tensor x = matrix().set_requires_grad();
  const Tensors parts = split(x, 3, 1);
  CHECK(parts.size() == 2);
  CHECK(parts[1].shares_memory_with(x));
  CHECK(diagonal(x).shares_memory_with(x));
  parts[1].sum().backward();
  CHECK(x.grad().to_vector<int>() == std::vector<int>{0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1});
}

TEST_CASE("an embedding's padding row gets no gradient") {
  const Tensor weight = matrix().set_requires_grad();
  embedding(weight, ints({1, 2, 1, 0}), 1).sum().backward();
  CHECK(weight.grad().to_vector<int>() == std::vector<int>{1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1});
  const Tensor again = matrix().set_requires_grad();
  embedding(again, ints({2, 2, 0}), {}, true).sum().backward();
  CHECK(again.grad().to_vector<int>() == std::vector<int>{1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1});
}

TEST_CASE("autocast widens what index ops join, and leaves forms in place alone") {
  const Autocast region(Device::cpu, DType::bf16);
  const Tensor low = full({3, 4}, 1, {.dtype = DType::bf16}), wide = full({2, 4}, 2.0);
  CHECK(index_put(low, {ints({0, 1})}, wide).dtype() == DType::f32);
  CHECK(index_copy(low, 0, ints({0, 1}), wide).dtype() == DType::f32);
  CHECK(scatter_add(low, 0, zeros({2, 4}, {.dtype = DType::i64}), wide).dtype() == DType::f32);
  CHECK(index_select(low, 0, ints({0})).dtype() == DType::bf16);
  CHECK_THROWS_AS(low.index_copy_(0, ints({0, 1}), wide), DTypeError);
}

TEST_CASE("a tensor of indices may index itself in place") {
  const Tensor x = ints({1, 0});
  x.index_put_({x}, ints({1 << 30, 5}));
  CHECK(x.to_vector<int64_t>() == std::vector<int64_t>{5, 1 << 30});
}

TEST_CASE("drawn classes follow their weights") {
  manual_seed(3);
  const Tensor drawn = multinomial(tensor({1.0, 0, 3}), 4000, true);
  const double twos = sum(eq(drawn, 2.0).to(DType::f64)).item<double>();
  CHECK(sum(eq(drawn, 1.0).to(DType::f64)).item<double>() == 0);
  CHECK(twos == doctest::Approx(3000).epsilon(0.05));
  for (int64_t v : multinomial(tensor({0.0, 2, 3, 0}), 2).to_vector<int64_t>()) CHECK((v == 1 || v == 2));
}

TEST_CASE("many classes are drawn from few numbers, each as often as its weight says") {
  const int64_t classes = 20000, draws = 100000;  // a number for each class and draw would be 8 GB
  manual_seed(4);
  const Tensor even = bincount(multinomial(ones({classes}), draws, true), Tensor(), classes).to(DType::f64);
  CHECK(even.numel() == classes);
  CHECK(even.sum().item<double>() == double(draws));
  const double chi = square(even - 5.0).sum().item<double>() / 5;  // its deviation is sqrt(2 * 20000)
  CHECK(chi == doctest::Approx(double(classes)).epsilon(0.05));
  for (const DType dtype : {DType::f16, DType::f32, DType::f64}) {
    const Tensor weights = tensor({{0.0, 1.0, 0.0, 0.0, 3.0, 0.0}, {2.0, 0.0, 0.0, 1e-4, 0.0, 0.0}}, {.dtype = dtype});
    const Tensor drawn = multinomial(weights, 40000, true);
    CHECK(drawn.shape() == Shape{2, 40000});
    const auto count = [&](int64_t row, int64_t c) { return eq(drawn[row], c).to(DType::i64).sum().item<int64_t>(); };
    CHECK(count(0, 1) + count(0, 4) == 40000);
    CHECK(count(0, 4) == doctest::Approx(30000).epsilon(0.02));
    CHECK(count(1, 0) + count(1, 3) == 40000);
    CHECK(count(1, 3) < 20);
  }
  manual_seed(8);
  const Tensor again = multinomial(ones({9}), 50, true);
  manual_seed(8);
  CHECK(equal(multinomial(ones({9}), 50, true), again));
  CHECK(multinomial(tensor({0.0, 0.0, 5.0}), 7, true).eq(2).all().item<bool>());
}

TEST_CASE("draws with replacement need memory of the samples and of a row, not of copies of all weights") {
  const int64_t rows = 32, classes = 4096;
  for (const DType dtype : {DType::f32, DType::f64}) {
    Tensor weights = zeros({rows, classes}, {.dtype = dtype});
    for (int64_t c = 0; c < 3; ++c) weights.select(1, 1000 * c + 7).fill_(double(c + 1));
    Allocator& memory = allocator(Device::cpu);
    memory.reset_peak();
    const size_t before = memory.stats().live;
    manual_seed(2);
    const Tensor drawn = multinomial(weights, 500, true);
    CHECK(memory.stats().peak - before < 4 * drawn.nbytes());
    for (int64_t c = 0; c < 3; ++c)
      CHECK(drawn.eq(1000 * c + 7).to(DType::i64).sum().item() == doctest::Approx(double(rows * 500 * (c + 1)) / 6).epsilon(0.05));
    CHECK(logical_or(drawn.eq(7), logical_or(drawn.eq(1007), drawn.eq(2007))).all().item<bool>());  // and no other
    // One row that cannot be drawn from among those that can.
    weights[5].zero_();
    CHECK_THROWS_WITH_AS(multinomial(weights, 2, true), doctest::Contains("too few weights are positive to draw 2"), ValueError);
    for (const double bad : {-1.0, double(NAN), double(INFINITY)}) {
      weights[5][classes - 1] = bad;
      CHECK_THROWS_WITH_AS(multinomial(weights, 2, true), doctest::Contains("finite and not negative"), ValueError);
    }
    const Tensor turned = tensor({{0.0, 5}, {1, 0}}, {.dtype = dtype}).t();  // rows that are columns in memory
    CHECK(multinomial(turned, 3, true).to_vector<int>() == std::vector<int>{1, 1, 1, 0, 0, 0});
  }
}

TEST_CASE("the value of index_fill gets each place's gradient once, however often an index is named") {
  const Tensor x = matrix().set_requires_grad(), value = scalar(1, {.requires_grad = true});
  const Tensor y = index_fill(x, 1, ints({2, -2, 2, 0}), value);  // columns 2 and 0
  y.backward(ones({3, 4}));
  CHECK(value.grad().item<double>() == 6);
  CHECK(x.grad().to_vector<int>() == std::vector<int>{0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1});
  CHECK(y.to_vector<int>() == std::vector<int>{1, 1, 1, 3, 1, 5, 1, 7, 1, 9, 1, 11});
}

TEST_CASE("embedding scales rows down in place, outside the graph") {
  const Tensor weight = tensor({3, 4, 1, 0, 6, 8}, {3, 2}).set_requires_grad();
  const Tensor y = embedding(weight, ints({0, 0, 2}), {}, false, 1.0);
  const auto near = [](const Tensor& t, const std::vector<double>& want) {
    const auto got = t.to_vector<double>();
    for (size_t i = 0; i < want.size(); ++i) CHECK(got[i] == doctest::Approx(want[i]).epsilon(1e-6));
  };
  near(weight, {0.6, 0.8, 1, 0, 0.6, 0.8});
  near(y, {0.6, 0.8, 0.6, 0.8, 0.6, 0.8});
  y.sum().backward();
  CHECK(weight.grad().to_vector<int>() == std::vector<int>{2, 2, 0, 0, 1, 1});
  CHECK_THROWS_WITH_AS(embedding(weight, ints({0}), {}, false, -1.0), doctest::Contains("[embedding]"), ValueError);
}

TEST_CASE("scatter with a reduction takes every one of several for a place") {
  const Tensor x = tensor({2.0, 3, 4}).set_requires_grad(), src = tensor({5.0, 6, 7}).set_requires_grad();
  const Tensor index = ints({0, 0, 1});
  const Tensor y = scatter(x, 0, index, src, ScatterReduce::multiply);
  CHECK(y.to_vector<int>() == std::vector<int>{60, 21, 4});
  CHECK(scatter(x, 0, index, src, ScatterReduce::add).to_vector<int>() == std::vector<int>{13, 10, 4});
  CHECK(scatter(x, 0, index, 5.0, ScatterReduce::multiply).to_vector<int>() == std::vector<int>{50, 15, 4});
  y.backward(ones({3}));
  CHECK(x.grad().to_vector<int>() == std::vector<int>{30, 7, 1});
  CHECK(src.grad().to_vector<int>() == std::vector<int>{12, 10, 3});
}

TEST_CASE("cat takes PyTorch's legacy [0] beside any shape") {
  const Tensor nothing = zeros({0}, {.dtype = DType::f64, .requires_grad = true}), x = matrix();
  const Tensor y = cat({nothing, x, nothing}, 1);
  CHECK(y.shape() == x.shape());
  CHECK(y.dtype() == DType::f64);
  y.sum().backward();
  CHECK(nothing.grad().shape() == Shape{0});
  CHECK(cat({nothing, nothing}).shape() == Shape{0});
  CHECK_THROWS_AS(cat({nothing, scalar(2)}), ShapeError);
  CHECK_THROWS_AS(cat({nothing, x}, 2), IndexError);
  CHECK_THROWS_AS(cat({zeros({0, 1}), x}), ShapeError);
}

TEST_CASE("repeat_interleave holds its result to output_size") {
  CHECK(repeat_interleave(ints({4, 5}), ints({1, 2}), 0, 3).to_vector<int>() == std::vector<int>{4, 5, 5});
  CHECK_THROWS_AS(repeat_interleave(ints({4, 5}), ints({1, 2}), 0, 2), ShapeError);
  CHECK_THROWS_AS(repeat_interleave(ints({4, 5}), 2, {}, 5), ShapeError);
}
