// SPDX-License-Identifier: Apache-2.0
// Values and gradients where geometry or numbers are out of the ordinary; expected values are PyTorch's.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "framework/autograd/autograd.h"
#include "framework/backend/kernel_log.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/ops.h"

using namespace halfstep;
using Json = nlohmann::json;

namespace {

const double kNaN = std::numeric_limits<double>::quiet_NaN();

// The same values without any geometry of note.
Tensor plain(const Tensor& t) { return t.detach().clone(); }

void check_same(const Tensor& got, const Tensor& expected) {
  CHECK(got.shape() == expected.shape());
  CHECK(got.dtype() == expected.dtype());
  const auto a = got.to_vector<double>(), b = expected.to_vector<double>();
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK(a[i] == doctest::Approx(b[i]).epsilon(is_half(got.dtype()) ? 1e-2 : 1e-5));
}

}  // namespace

TEST_CASE("products of expanded operands") {
  for (DType t : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64}) {
    CAPTURE(name(t));
    const Tensor one = tensor({2}, {.dtype = t}), v = tensor({1, 2, 3, 4, 5}, {.dtype = t});
    const Tensor row = tensor({1, 2, 3}, {.dtype = t}).unsqueeze(0).expand({5, 3});
    const Tensor column = tensor({1, 2, 3}, {.dtype = t}).unsqueeze(1).expand({3, 4});
    check_same(matmul(one.expand({5}), v), scalar(30, {.dtype = t}));
    check_same(matmul(v, one.expand({5})), scalar(30, {.dtype = t}));
    check_same(mm(row, column), full({5, 4}, 14, {.dtype = t}));
    check_same(mm(row.t(), plain(row)), mm(plain(row).t(), plain(row)));
    check_same(linear(plain(row), row), full({5, 5}, 14, {.dtype = t}));
    check_same(matmul(one.expand({2, 3, 5}), one.expand({2, 5, 4})), full({2, 3, 4}, 20, {.dtype = t}));
  }
}

TEST_CASE("batches whose strides do not nest") {
  for (DType t : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    CAPTURE(name(t));
    Generator generator(3);
    const Tensor wide = randn({3, 14, 5}, {}, &generator).to(t), b = randn({3, 5, 2}, {}, &generator).to(t);
    const Tensor a = wide.slice(1, 1, 14, 3);  // 5 rows, 15 apart, in batches of 70: the last step would leave the batch
    const Tensor a2 = randn({5, 7, 5}, {}, &generator).to(t).slice(0, 0, 5, 2).transpose(0, 1);
    check_same(bmm(a, b), bmm(plain(a), b));
    check_same(bmm(b.transpose(1, 2), a.transpose(1, 2)), bmm(plain(b.transpose(1, 2)), plain(a.transpose(1, 2))));
    check_same(bmm(a2, b.slice(0, 0, 1).expand({7, 5, 2})), bmm(plain(a2), plain(b.slice(0, 0, 1).expand({7, 5, 2}))));
  }
}

TEST_CASE("maximum and minimum pass their gradient on through NaN") {
  for (bool larger : {true, false}) {
    const Tensor a = tensor({1, kNaN, 2, kNaN}, {.requires_grad = true}), b = tensor({kNaN, 1, 2, kNaN}, {.requires_grad = true});
    const Tensor y = larger ? maximum(a, b) : minimum(a, b);
    y.backward(ones({4}), /*retain_graph=*/true);
    CHECK(a.grad().to_vector<double>() == std::vector<double>{1, 1, 0.5, 1});
    CHECK(b.grad().to_vector<double>() == std::vector<double>{1, 1, 0.5, 1});
    CHECK(grad({y}, {a}, {ones({4})}, {.create_graph = true})[0].to_vector<double>() == std::vector<double>{1, 1, 0.5, 1});
  }
}

TEST_CASE("clamp with bounds in the wrong order gives the upper bound") {
  const Tensor x = tensor({-1, 0, 0.25, 0.5, 1, 2}, {.requires_grad = true});
  const Tensor y = clamp(x, 1, 0.25);
  CHECK(y.to_vector<double>() == std::vector<double>(6, 0.25));
  y.backward(ones({6}));
  CHECK(x.grad().to_vector<double>() == std::vector<double>(6, 0));
}

TEST_CASE("0-dim tensors along a dimension") {
  const Tensor x = scalar(3);
  CHECK_THROWS_AS(max(x, 1), IndexError);
  CHECK_THROWS_AS(min(x, -2), IndexError);
  CHECK_FALSE(max(x, 0).first.shares_memory_with(x));

  const Tensor to = scalar(1, {.requires_grad = true}), from = scalar(2, {.requires_grad = true});
  const Tensor sum = scatter_add(to, 0, scalar(0, {.dtype = DType::i64}), from);
  CHECK(sum.shape() == Shape{});
  CHECK(sum.item<double>() == 3);
  sum.backward();
  CHECK(to.grad().item<double>() == 1);
  CHECK(from.grad().item<double>() == 1);
}

TEST_CASE("a recorded backward through the mean of nothing is finite") {
  const Tensor x = zeros({2, 0}, {.requires_grad = true}), g = scalar(1, {.requires_grad = true});
  const Tensor dx = grad({mean(x)}, {x}, {g}, {.create_graph = true})[0];
  CHECK(dx.shape() == Shape{2, 0});
  CHECK(grad({sum(dx)}, {g})[0].item<double>() == 0);
}

TEST_CASE("sum and mean in float64 accumulate in it") {
  const Tensor x = tensor({1, 1e-12, 1e-12, 1e-12});
  const double tiny = tensor({1e-12}).item<double>();
  // To a rounding: the order of the additions is the kernel's.
  CHECK(std::fabs(sum(x, {}, false, DType::f64).item<double>() - (1 + 3 * tiny)) <= epsilon(DType::f64));
  CHECK(std::fabs(mean(x, {0}, true, DType::f64).item<double>() * 4 - (1 + 3 * tiny)) <= epsilon(DType::f64));
  x.set_requires_grad();
  sum(x, {}, false, DType::f64).backward();
  CHECK(x.grad().dtype() == DType::f32);
}

TEST_CASE("softmax of a 0-dim tensor that is not finite is NaN") {
  const double inf = std::numeric_limits<double>::infinity();
  for (double v : {kNaN, inf, -inf}) CHECK(std::isnan(softmax(scalar(v), 0).item<double>()));
  for (double v : {kNaN, inf, -inf}) {
    const Tensor x = scalar(v).set_requires_grad(), y = scalar(v).set_requires_grad();
    softmax(x, 0).backward();
    log_softmax(y, 0).backward();
    CHECK(std::isnan(x.grad().item<double>()));
    CHECK(std::isnan(y.grad().item<double>()));
  }
  const Tensor finite = scalar(2).set_requires_grad();
  log_softmax(finite, 0).backward(scalar(3));
  CHECK(finite.grad().item<double>() == 0);
  CHECK(softmax(scalar(-3), 0).item<double>() == 1);
  CHECK(log_softmax(scalar(-3), -1).item<double>() == 0);
}

TEST_CASE("gradients of nothing add up, also when they are expanded") {
  const Tensor x = zeros({5, 0}, {.requires_grad = true});
  const Tensor y = x * 1.0;
  (sum(y) + sum(y)).backward();
  CHECK(x.grad().shape() == Shape{5, 0});
  const Tensor twice = zeros({5, 0}, {.requires_grad = true});
  for (int i = 0; i < 2; ++i) sum(twice).backward();
  CHECK(twice.grad().shape() == Shape{5, 0});
}

TEST_CASE("a gradient that is cut off is zero even where an infinite one arrives") {
  // d sqrt(0) is infinite; relu and its kin pass nothing of it below their kink.
  const auto slope = [](const std::function<Tensor(const Tensor&)>& f) {
    const Tensor x = tensor({-1}, {.dtype = DType::f64, .requires_grad = true});
    const double plain = grad({sqrt(f(x))}, {x})[0].item<double>();
    const double recorded = grad({sqrt(f(x))}, {x}, {}, {.create_graph = true})[0].item<double>();
    CHECK(plain == recorded);
    return plain;
  };
  CHECK(slope([](const Tensor& x) { return relu(x); }) == 0);
  CHECK(slope([](const Tensor& x) { return relu6(x); }) == 0);
  CHECK(slope([](const Tensor& x) { return maximum(x, 0.0); }) == 0);
  CHECK(slope([](const Tensor& x) { return floor(x + 1.0); }) == 0);
  CHECK(slope([](const Tensor& x) { return sign(x + 1.0); }) == 0);
}

TEST_CASE("integer powers stay integers") {
  const Tensor a = from_vector<int64_t>({2, -1, 3, -1}, {4}), b = from_vector<int64_t>({10, 3, 0, -2}, {4});
  const Tensor p = pow(a, b);
  CHECK(p.dtype() == DType::i64);
  CHECK(p.to_vector<int64_t>() == std::vector<int64_t>{1024, -1, 1, 1});
}

TEST_CASE("the largest of a tensor with NaN sends its gradient to the NaNs") {
  const Tensor x = tensor({1, NAN, 3, NAN}, {.dtype = DType::f64, .requires_grad = true});
  CHECK(grad({max(x)}, {x})[0].to_vector<double>() == std::vector<double>{0, 0.5, 0, 0.5});
}

TEST_CASE("an expected gradient of the loss changes when the gradient is made, never its bits") {
  const Tensor target = rand({7, 5});
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
      const Tensor x = rand({7, 5}).to(dtype).set_requires_grad(), seed = full({}, 1024.0);
      const auto bits = [&](const Tensor& given, const std::function<void()>& before_backward) {
        x.zero_grad();
        const Tensor loss = mse_loss(x, target, reduction, seed).to(DType::f32);
        before_backward();
        loss.backward(given);
        return x.grad().to_vector<double>();
      };
      const auto plain = [&](double g) {
        x.zero_grad();
        mse_loss(x, target, reduction).to(DType::f32).backward(full({}, g));
        return x.grad().to_vector<double>();
      };
      CHECK(bits(seed, [] {}) == plain(1024));
      CHECK(bits(full({}, 2.0), [] {}) == plain(2));            // another
      CHECK(bits(seed, [&] { seed.fill_(4); }) == plain(4));  // changed since
      // Kept graphs: the second backward makes it anew.
      x.zero_grad();
      const Tensor loss = mse_loss(x, target, reduction, seed).to(DType::f32);
      loss.backward(seed, /*retain_graph=*/true);
      const std::vector<double> once = x.grad().to_vector<double>();
      x.zero_grad();
      loss.backward(seed);
      CHECK(x.grad().to_vector<double>() == once);
    }
  }
}

TEST_CASE("so with an expected gradient of cross entropy, also of padded rows, weights and ignored targets") {
  const Tensor target = from_vector<int64_t>({0, 4, -100, 2, 1, 1}, {6}), weight = rand({5}) + 0.5;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const CrossEntropyOptions& o : {CrossEntropyOptions{}, CrossEntropyOptions{weight, -100, Reduction::sum, 0.1},
                                         CrossEntropyOptions{{}, -100, Reduction::none}}) {
      const Tensor x = rand({6, 8}).to(dtype).set_requires_grad(), seed = full({}, 1024.0);
      const auto bits = [&](const Tensor& expected, const Tensor& given) {
        x.zero_grad();
        const Tensor loss = cross_entropy(x.narrow(1, 0, 5), target, o, expected).to(DType::f32);
        (loss.dim() > 0 ? sum(loss) : loss).backward(given);
        return x.grad().to_vector<double>();
      };
      CHECK(bits(seed, seed) == bits(Tensor(), seed));
      CHECK(bits(seed, full({}, 2.0)) == bits(Tensor(), full({}, 2.0)));
    }
  }
  const Tensor x = rand({6, 5}).set_requires_grad(), seed = full({}, 1024.0);
  const auto passes = [&](const Tensor& expected) {
    KernelLog log(Device::cpu);
    cross_entropy(x, target, {}, expected).backward(seed);
    return std::count_if(log.events().begin(), log.events().end(),
                         [](const KernelEvent& e) { return e.kernel == "cross_entropy_backward"; });
  };
  CHECK(passes(seed) == 0);
  CHECK(passes(Tensor()) == 1);
}

TEST_CASE("bool is refused where PyTorch refuses it, and its square is a number") {
  const Tensor b = tensor({1, 0}, {.dtype = DType::boolean}), x = tensor({1.0, 2});
  for (const auto& f :
       {&halfstep::neg, &halfstep::abs, &halfstep::relu, &halfstep::relu6, &halfstep::floor, &halfstep::ceil, &halfstep::trunc})
    CHECK_THROWS_AS(f(b), DTypeError);
  CHECK_THROWS_AS(round(b), DTypeError);
  CHECK_THROWS_AS(b.neg_(), DTypeError);
  CHECK_THROWS_AS(sub(b, b), DTypeError);
  CHECK_THROWS_AS(sub(b, x), DTypeError);
  CHECK_THROWS_AS(sub(1.0, b), DTypeError);
  CHECK_THROWS_AS(remainder(b, b), DTypeError);
  CHECK_THROWS_AS(fmod(b, b), DTypeError);
  CHECK_THROWS_AS(floor_divide(b, b), DTypeError);
  CHECK_THROWS_AS(pow(b, b), DTypeError);
  CHECK(pow(b, 2).dtype() == DType::i64);
  CHECK(sign(b).dtype() == DType::boolean);
  CHECK(square(b).dtype() == DType::i64);
  CHECK(square(b).to_vector<int64_t>() == std::vector<int64_t>{1, 0});
  CHECK_THROWS_AS(b.square_(), DTypeError);
  CHECK(square(tensor({3}, {.dtype = DType::u8})).dtype() == DType::u8);
}

TEST_CASE("integers to a negative power are refused where it is a number, as in PyTorch") {
  const Tensor x = tensor({2, 1, -1});
  for (const DType dtype : {DType::i64, DType::u8, DType::boolean}) CHECK_THROWS_AS(pow(x.to(dtype), -1), ValueError);
  CHECK_THROWS_WITH_AS(pow(x, -1),
                       "[pow] integers to a negative power are no integers, got int64 and the power -1\nhelp: give the power as a "
                       "floating-point number, such as -1.0, for results of float32",
                       ValueError);
  CHECK_THROWS_AS(x.clone().pow_(-3), ValueError);
  CHECK_THROWS_AS(x.pow(-3), ValueError);
  CHECK(pow(x, -1.0).to_vector<double>() == std::vector<double>{0.5, 1, -1});
  CHECK(pow(x, tensor({-1, -1, -3})).to_vector<int64_t>() == std::vector<int64_t>{0, 1, -1});
  CHECK(pow(2, tensor({-1, 3})).to_vector<int64_t>() == std::vector<int64_t>{0, 8});
}

TEST_CASE("atan2 at the origin has gradient 0, as in PyTorch, and near it no overflow") {
  for (const double at : {0.0, 1e-23}) {
    const Tensor y = tensor({at}).to(DType::f32).set_requires_grad(), x = tensor({at}).to(DType::f32).set_requires_grad();
    atan2(y, x).backward();
    const double expected = at == 0 ? 0 : 0.5 / at;
    CHECK(y.grad().item<double>() == doctest::Approx(expected));
    CHECK(x.grad().item<double>() == doctest::Approx(-expected));
  }
}

TEST_CASE("errors of ops that decompose a matrix name the op that was called") {
  Tensor a = eye(3);
  a.select(0, 1).fill_(INFINITY);
  CHECK_THROWS_WITH_AS(linalg::lstsq(a, eye(3)), doctest::Contains("[linalg_lstsq] needs values that are finite"), ValueError);
  CHECK_THROWS_WITH_AS(linalg::matrix_rank(a), doctest::Contains("[linalg_matrix_rank] needs values"), ValueError);
  CHECK_THROWS_WITH_AS(linalg::svdvals(a), doctest::Contains("[linalg_svdvals] needs values"), ValueError);
  CHECK_THROWS_WITH_AS(linalg::eigvalsh(a), doctest::Contains("[linalg_eigvalsh] needs values"), ValueError);
  CHECK_THROWS_WITH_AS(linalg::pinv(a), doctest::Contains("[pinverse] needs values"), ValueError);
}

TEST_CASE("a 0-dim tensor has no dimension to roll") {
  CHECK_THROWS_AS(roll(scalar(3), {1}, {0}), IndexError);
  CHECK(roll(scalar(3), {1}).item<double>() == 3);
}

TEST_CASE("a rounded quotient has a gradient of 0, also where the quotient has none") {
  for (const RoundingMode mode : {RoundingMode::trunc, RoundingMode::floor}) {
    const Tensor a = tensor({2.0, -7}, {.requires_grad = true}), b = tensor({0.0, 2}, {.requires_grad = true});
    const Tensor y = div(a, b, mode);
    CHECK(y.to_vector<double>() == std::vector<double>{INFINITY, mode == RoundingMode::trunc ? -3.0 : -4.0});
    y.backward(ones({2}));
    CHECK(a.grad().to_vector<double>() == std::vector<double>{0, 0});
    CHECK(b.grad().to_vector<double>() == std::vector<double>{0, 0});
  }
  const Tensor x = tensor({1.25}, {.requires_grad = true});
  round(x, 1).backward(ones({1}));
  CHECK(x.grad().item<double>() == 0);
  CHECK_THROWS_AS(round(tensor({1}, {.dtype = DType::i64}), 1), DTypeError);
  CHECK(div(tensor({-7, 7}, {.dtype = DType::i32}), 2, RoundingMode::trunc).to_vector<int>() == std::vector<int>{-3, 3});
}

TEST_CASE("batch_norm of nothing leaves the running statistics, and gradients are 0") {
  for (const Shape& shape : {Shape{0, 3}, Shape{0, 3, 2}, Shape{2, 3, 0}}) {
    const Tensor x = zeros(shape, {.requires_grad = true}), w = ones({3}, {.requires_grad = true}),
                 b = ones({3}, {.requires_grad = true});
    const Tensor mean = full({3}, 5.0), var = full({3}, 2.0);
    const Tensor y = batch_norm(x, mean, var, w, b, true);
    CHECK(y.shape() == shape);
    CHECK(mean.to_vector<double>() == std::vector<double>(3, 5));
    CHECK(var.to_vector<double>() == std::vector<double>(3, 2));
    y.backward(ones(shape));
    CHECK(w.grad().to_vector<double>() == std::vector<double>(3, 0));
    CHECK(b.grad().to_vector<double>() == std::vector<double>(3, 0));
  }
}

TEST_CASE("integers wrap, wherever elements are added or multiplied") {
  const TensorOptions i64{.dtype = DType::i64};
  const int64_t quarter = int64_t(1) << 62, lowest = std::numeric_limits<int64_t>::min();
  const auto is = [](const Tensor& got, const std::vector<int64_t>& expected) { CHECK(got.to_vector<int64_t>() == expected); };
  const Tensor x = tensor({0x1p62, -0x1p63, 3}, i64), y = tensor({0x1p62, 0x1p62, 3}, i64), one = ones({3}, i64);
  is(x + x, {lowest, 0, 6});
  is(zeros({3}, i64) - x, {-quarter, lowest, -3});
  is(-x, {-quarter, lowest, -3});
  is(abs(x), {quarter, lowest, 3});
  is(x * 5, {quarter, lowest, 15});
  is(square(x), {0, 0, 9});
  is(sum(y), {lowest + 3});
  is(prod(y), {0});
  is(cumsum(y, 0), {quarter, lowest, lowest + 3});
  is(cumprod(y, 0), {quarter, 0, 0});
  is(matmul(y, one), {lowest + 3});
  is(matmul(y, y), {9});
  const Tensor none = zeros({3}, i64);
  is(index_add(zeros({1}, i64), 0, none, y), {lowest + 3});
  is(scatter_add(zeros({1}, i64), 0, none, y), {lowest + 3});
  is(scatter_add(zeros({1, 1}, i64), 1, zeros({1, 6}, i64).slice(1, 0, 6, 2), y.unsqueeze(0)), {lowest + 3});
  const Tensor wide = y.unsqueeze(1).expand({3, 40}).contiguous();  // rows of which many are added side by side
  is(sum(wide, {0}), std::vector<int64_t>(40, lowest + 3));
  is(cumsum(wide, 0).select(0, 1), std::vector<int64_t>(40, lowest));
  is(index_add(zeros({1, 40}, i64), 0, none, wide), std::vector<int64_t>(40, lowest + 3));
  is(scatter_add(zeros({1, 40}, i64), 0, zeros({3, 40}, i64), wide), std::vector<int64_t>(40, lowest + 3));
  const Tensor many = full({1 << 18}, 0x1p62, i64);  // in segments, which are joined
  is(sum(many), {0});
  is(cumsum(many, 0).slice(0, (1 << 18) - 3, 1 << 18), {lowest, -quarter, 0});
}

TEST_CASE("a result that is too large to count is refused, not wrapped around") {
  const Tensor none = zeros({0});
  const int64_t huge = int64_t(1) << 62;
  CHECK_THROWS_AS(reshape(none, {0, huge, huge}), ShapeError);
  CHECK_THROWS_AS(none.view({huge, 0, 4}), ShapeError);
  CHECK_THROWS_AS(empty({0, huge, huge}), ShapeError);
}

TEST_CASE("grid_sample in 16 bits is a rounding away from the truth, on large planes too" * doctest::test_suite("values")) {
  Generator generator(7);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const int64_t size : {64, 500}) {
      const Tensor x = (rand({1, 2, size, size}, {}, &generator) * 4.0 - 2.0).to(dtype),
                   g = (rand({1, 2, 20, 30}, {}, &generator) - 0.5).to(dtype);
      const Tensor grid = (rand({1, 20, 30, 2}, {}, &generator) * 2.6 - 1.3).to(dtype);
      for (const SampleMode mode : {SampleMode::bilinear, SampleMode::bicubic, SampleMode::nearest}) {
        for (const SamplePadding padding : {SamplePadding::zeros, SamplePadding::border, SamplePadding::reflection}) {
          for (const bool align : {false, true}) {
            const auto run = [&](DType t) {
              const Tensor a = x.to(t).clone().set_requires_grad(), b = grid.to(t).clone().set_requires_grad();
              const Tensor y = grid_sample(a, b, {mode, padding, align});
              Tensors all = grad({y}, {a, b}, {g.to(t)}, {.allow_unused = true});
              all.insert(all.begin(), y.detach());
              return all;
            };
            const Tensors got = run(dtype), want = run(DType::f64);
            for (size_t i = 0; i < got.size(); ++i) {
              if (!got[i].defined()) continue;
              const auto p = got[i].to_vector<double>(), q = want[i].to_vector<double>();
              const double most = max(abs(want[i])).item<double>();
              int64_t off = 0;
              for (size_t k = 0; k < p.size(); ++k) {
                const double ulp = std::ldexp(1.0, std::max(std::ilogb(q[k]), dtype == DType::f16 ? -14 : -126)) * epsilon(dtype);
                off += q[k] != 0 && std::fabs(p[k] - q[k]) > 0.501 * ulp + 4e-7 * most;
              }
              CHECK_MESSAGE(off == 0, name(dtype), " ", size, " mode ", int(mode), " padding ", int(padding), " align ", align,
                            " tensor ", i);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("a scale beyond all measure reads the last element, not one that no index names") {
  const auto nearest = [](std::string_view op) {
    return invoke(op, {{.one = tensor({1, 2}, {1, 1, 2})}}, Json{{"output_size", {3}}, {"scales", 1e-320}})[0].to_vector<double>();
  };
  CHECK(nearest("upsample_nearest1d") == std::vector<double>{1, 2, 2});
  CHECK(nearest("_upsample_nearest_exact1d") == std::vector<double>{2, 2, 2});
}

TEST_CASE("classes of almost no probability are not drawn, and no exponential time is 0") {
  const int64_t n = 1 << 16, draws = 1500;
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor weights = full({n}, 1e-14, {.dtype = dtype});
    weights.index_put_({3}, 1.0);
    manual_seed(0);
    CHECK(eq(multinomial(weights, draws, true), 3.0).to(DType::i64).sum().item<int64_t>() == draws);
  }
  for (const DType dtype : {DType::f32, DType::f64, DType::f16}) {
    const Tensor logits = full({200, n}, -20.0, {.dtype = dtype});
    logits.select(1, 5).fill_(10.0);
    manual_seed(1);
    CHECK(gumbel_softmax(logits, 1, true).select(1, 5).to(DType::f32).sum().item<double>() == 200);
  }
  const Tensor times = empty({1 << 26});
  exponential_(times);
  CHECK(times.min().item<double>() > 0);
}

TEST_CASE("split takes a list in braces for sizes") {
  const Tensor x = arange(4);
  CHECK(split(x, 2).size() == 2);
  CHECK(split(x, {4}).size() == 1);
  CHECK(x.split({1, 3})[1].to_vector<int>() == std::vector<int>{1, 2, 3});
  CHECK_THROWS_AS(split(x, {2}), ValueError);
  CHECK_THROWS_AS(x.split({2}), ValueError);
}

TEST_CASE("lp_pool passes no gradient to a window whose sum is 0") {
  for (const double p : {1.0, 2.0, 3.0}) {
    CAPTURE(p);
    const Tensor x = tensor({0, 0, 1, -1, 3, 4}, {1, 1, 6}, {.dtype = DType::f64, .requires_grad = true});
    const Tensor y = lp_pool1d(x, p, {2});
    const Tensor dx = grad({y}, {x}, {ones({1, 1, 3}, {.dtype = DType::f64})}, {.retain_graph = true})[0];
    const Tensor again = grad({y}, {x}, {ones({1, 1, 3}, {.dtype = DType::f64})}, {.create_graph = true})[0];
    for (const Tensor& t : {dx, again}) {
      const auto d = t.to_vector<double>();
      CHECK(d[0] == 0);
      CHECK(d[1] == 0);
      if (p != 2) CHECK((d[2] == 0 && d[3] == 0));
      CHECK(d[4] > 0);
      CHECK(std::isfinite(d[5]));
    }
    for (double v : grad({sum(again)}, {x})[0].to_vector<double>()) CHECK(std::isfinite(v));
  }
  CHECK_THROWS_AS(lp_pool1d(ones({1, 1, 4}), 0, {2}), ValueError);
  CHECK_THROWS_AS(lp_pool3d(ones({1, 1, 4, 4, 4}), kNaN, {2}), ValueError);
}

TEST_CASE("instance_norm of a constant with eps 0 is its bias, and its gradient 0") {
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    const Tensor x = tensor({3, 3, 3, 3, 1, 2, 3, 5}, {1, 2, 2, 2}).to(format).detach().set_requires_grad();
    const Tensor w = tensor({2.0, 1}, {.requires_grad = true}), b = tensor({-1.0, 0}, {.requires_grad = true});
    const Tensor y = instance_norm(x, {}, {}, w, b, true, 0.1, 0);
    CHECK(y.select(1, 0).flatten().to_vector<double>() == std::vector<double>(4, -1));
    check_same(y.select(1, 1).flatten(), instance_norm(plain(x), {}, {}, {}, {}, true, 0.1, 1e-14).select(1, 1).flatten());
    y.backward(tensor({1, 2, 3, 4, 5, 6, 7, 9}, {1, 2, 2, 2}));
    CHECK(x.grad().select(1, 0).flatten().to_vector<double>() == std::vector<double>(4, 0));
    CHECK(w.grad().to_vector<double>()[0] == 0);
    CHECK(b.grad().to_vector<double>() == std::vector<double>{10, 27});
  }
}

TEST_CASE("float64 numbers and times are not cut off at the least ones of float32") {
  Generator generator;
  const Generator::State rare{0, 14883995};  // where the first 24 random bits are 0
  const auto drawn = [&](DType dtype, auto draw) {
    generator.set_state(rare);
    const Tensor t = empty({4}, {.dtype = dtype});
    draw(t);
    return t.to_vector<double>();
  };
  const auto uniform = [&](const Tensor& t) { t.uniform_(0, 1, &generator); };
  const auto times = [&](const Tensor& t) { exponential_(t, 1, &generator); };
  CHECK(drawn(DType::f32, uniform)[0] == 0);
  CHECK(drawn(DType::f32, times)[0] == 0x1p-25);
  const auto u = drawn(DType::f64, uniform), wait = drawn(DType::f64, times);
  CHECK(u[0] > 0);
  CHECK(u[0] < 0x1p-25);
  for (size_t i = 0; i < 4; ++i) CHECK(wait[i] == doctest::Approx(-std::log1p(-u[i])).epsilon(1e-14));
  CHECK(unique(rand({1 << 20}, {.dtype = DType::f64}, &generator)).values.numel() == 1 << 20);  // of 24 bits 2^15 would be equal
}

TEST_CASE("grid_sample at NaN is NaN, and so are the gradients of its coordinates") {
  // PyTorch's CPU has NaN for zeros and bicubic, a value of the plane for border, where its backward reads outside of memory.
  const Tensor coordinates = tensor({kNaN, 0.0, 0.0, kNaN, kNaN, 9.0, 0.25, -0.5, 0.5, 9.0}).reshape({1, 5, 1, 2});
  for (const DType dtype : {DType::f32, DType::f64, DType::f16}) {
    for (const SampleMode mode : {SampleMode::bilinear, SampleMode::bicubic, SampleMode::nearest}) {
      for (const SamplePadding padding : {SamplePadding::zeros, SamplePadding::border, SamplePadding::reflection}) {
        for (const bool align : {false, true}) {
          CAPTURE(dtype);
          CAPTURE(int(mode));
          CAPTURE(int(padding));
          CAPTURE(align);
          const Tensor x = arange(1.0, 25.0).reshape({1, 2, 3, 4}).to(dtype).set_requires_grad(),
                       grid = coordinates.to(dtype).clone().set_requires_grad();
          const Tensor y = grid_sample(x, grid, {mode, padding, align});
          const auto values = y.to_vector<double>();
          const bool nearest = mode == SampleMode::nearest;
          for (size_t c = 0; c < 2; ++c)
            for (size_t p = 0; p < 5; ++p) CHECK(std::isnan(values[c * 5 + p]) == (!nearest && p < 3));
          for (const bool create_graph : {true, false}) {
            const Tensors found = grad({y}, {x, grid}, {ones_like(y)}, {.create_graph = create_graph, .allow_unused = true});
            CHECK(isfinite(found[0]).all().item<bool>());  // x gets nothing from such points
            if (nearest) continue;
            const auto slopes = found[1].to_vector<double>();
            for (size_t p = 0; p < 5; ++p)
              for (size_t d = 0; d < 2; ++d) CHECK(std::isnan(slopes[2 * p + d]) == (p < 3));
          }
        }
      }
    }
  }
  const Tensor volume = ones({1, 1, 2, 2, 2}), point = tensor({0.0, 0.0, kNaN}).reshape({1, 1, 1, 1, 3});
  CHECK(std::isnan(grid_sample(volume, point).item<double>()));
  CHECK(std::isnan(grid_sample(volume, point, {SampleMode::bicubic}).item<double>()));
  CHECK(grid_sample(volume, point, {SampleMode::nearest}).item<double>() == 0);
}
