// SPDX-License-Identifier: Apache-2.0
// The elementwise kernels against the CPU backend: every op, dense, misaligned and strided.
#include "device.h"
#include "framework/math/functors.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

// Both sides run the same functors, but call different libraries' functions. NVIDIA documents errors of up to six units in the last
// place for those of float and double, and some functors put two together; 16-bit results are rounded after that. In halves of a
// unit.
double ulps_of(DType t) { return is_half(t) ? 4 : 16; }
constexpr double kSlack = 2e-6;

void check_unary(int op, DType t, const Shape& shape, Layout layout, int64_t shift) {
  const ElementwiseRow& row = kUnaryRows[op];
  const Buffer x = uniform(t, shape, 1, row.lo, row.hi, layout), g = uniform(t, shape, 2);
  const Buffer y = poisoned(t, shape), dx = poisoned(t, shape), want = make(t, shape), want_dx = make(t, shape);
  cpu().unary(Unary(op), x, want);
  const Buffer& saved = row.saves == OpSaves::y ? want : x;
  cpu().unary_backward(Unary(op), g, saved, want_dx);
  const OnDevice dev_x(x, shift), dev_g(g, shift), dev_saved(saved, shift), dev_y(y, shift), dev_dx(dx, shift);
  cuda::unary(queue(), Unary(op), dev_x, dev_y);
  cuda::unary_backward(queue(), Unary(op), dev_g, dev_saved, dev_dx);
  dev_y.fetch();
  dev_dx.fetch();
  check_close(y, want, ulps_of(t), kSlack, std::string(row.name));
  check_close(dx, want_dx, ulps_of(t), 4 * kSlack, std::string(row.name) + " backward");
}

void check_binary(int op, DType ta, DType tb, const Shape& shape, Layout layout, int64_t shift) {
  const ElementwiseRow& row = kBinaryRows[op];
  const DType to = promote(ta, tb);
  const Buffer a = uniform(ta, shape, 3, row.lo, row.hi), b = uniform(tb, shape, 4, row.lo, row.hi, layout),
               g = uniform(to, shape, 5);
  const Buffer y = poisoned(to, shape), want = make(to, shape);
  cpu().binary(Binary(op), a, b, want);
  const OnDevice dev_a(a, shift), dev_b(b, shift), dev_g(g, shift), dev_y(y, shift);
  cuda::binary(queue(), Binary(op), dev_a, dev_b, dev_y);
  dev_y.fetch();
  check_close(y, want, ulps_of(to), kSlack, std::string(row.name));
  for (int input : {0, 1}) {
    const DType t = input == 0 ? ta : tb;
    const Buffer d = poisoned(t, shape), want_d = make(t, shape);
    cpu().binary_backward(Binary(op), input, g, a, b, want_d);
    const OnDevice dev_d(d, shift);
    cuda::binary_backward(queue(), Binary(op), input, dev_g, dev_a, dev_b, dev_d);
    dev_d.fetch();
    check_close(d, want_d, ulps_of(d.view.dtype), 4 * kSlack, std::string(row.name) + " backward");
  }
}

// How often the kernels round to other numbers of 16 bits than double does, of all numbers up to 12, and by how much at most.
struct Misses {
  int forward = 0, backward = 0;
  int64_t most = 0;  // neighbours between the two
};
template <class T, class F, class D>
Misses misses_of(Unary op, const F& f, const D& slope) {
  std::vector<double> numbers;
  for (uint32_t u = 0; u < 65536; ++u) {
    const double x = double(T::widen(uint16_t(u)));
    if (std::abs(x) <= 12) numbers.push_back(x);
  }
  const DType t = dtype_of<T>;
  const Shape shape{int64_t(numbers.size())};
  const Buffer x = make(t, shape), g = make(t, shape), y = poisoned(t, shape), dx = poisoned(t, shape);
  for (int64_t i = 0; i < shape[0]; ++i) set(x, i, numbers[size_t(i)]), set(g, i, 1);
  const OnDevice dev_x(x), dev_g(g), dev_y(y), dev_dx(dx);
  cuda::unary(queue(), op, dev_x, dev_y);
  cuda::unary_backward(queue(), op, dev_g, dev_x, dev_dx);
  dev_y.fetch();
  dev_dx.fetch();
  const auto place = [](T v) { return (v.bits & 0x8000) ? -int64_t(v.bits & 0x7fff) : int64_t(v.bits); };  // in order
  Misses found;
  for (int64_t i = 0; i < shape[0]; ++i) {
    const auto away = [&](const Buffer& got, double want) {
      const int64_t d = std::abs(place(got.view.template as<T>()[i]) - place(T(float(want))));
      found.most = std::max(found.most, d);
      return d != 0;
    };
    found.forward += away(y, f(numbers[size_t(i)]));
    found.backward += away(dx, slope(numbers[size_t(i)]));
  }
  return found;
}

}  // namespace

TEST_CASE("gelu and mish of every number of 16 bits are rounded as float64 rounds them, but for a few") {
  const auto cdf = [](double x) { return 0.5 * std::erfc(x * -0.70710678118654752); };
  const auto gelu = [&](double x) { return x * cdf(x); };
  const auto gelu_slope = [&](double x) { return cdf(x) + x * 0.39894228040143268 * std::exp(-0.5 * x * x); };
  const auto factor = [](double x) { return std::tanh(std::log1p(std::exp(x))); };
  const auto mish = [&](double x) { return x * factor(x); };
  const auto mish_slope = [&](double x) { return factor(x) + x / (1 + std::exp(-x)) * (1 - factor(x) * factor(x)); };
  const auto check = [](const Misses& m) {
    CAPTURE(m.forward);
    CAPTURE(m.backward);
    CAPTURE(m.most);
    CHECK(m.forward <= 8);
    CHECK(m.backward <= 16);
    CHECK(m.most <= 1);
  };
  check(misses_of<f16>(Unary::gelu, gelu, gelu_slope));
  check(misses_of<bf16>(Unary::gelu, gelu, gelu_slope));
  check(misses_of<f16>(Unary::mish, mish, mish_slope));
  check(misses_of<bf16>(Unary::mish, mish, mish_slope));
}

TEST_CASE("unary kernels: every op, dense and strided, in every floating dtype") {
  for (int op = 0; op < kUnaryCount; ++op) {
    for (DType t : kFloating) {
      check_unary(op, t, {77}, Layout::dense, 0);
      check_unary(op, t, {77}, Layout::dense, 1);
      check_unary(op, t, {3, 5, 7}, Layout::transposed, 0);
    }
  }
}

TEST_CASE("unary kernels at the sizes where loops end") {
  for (DType t : kStored) {
    for (int64_t n : kSizes) {
      for (int64_t shift : {0, 1}) check_unary(int(Unary::silu), t, {n}, Layout::dense, shift);
    }
    for (Layout layout : kLayouts) check_unary(int(Unary::tanh), t, {4, 9, 33}, layout, 0);
    const int64_t packs = 4 * 2048 * 4;  // as many as a launch has threads on four multiprocessors
    check_unary(int(Unary::relu), t, {packs * 16 / int64_t(size_of(t)) + 1000}, Layout::dense, 0);
    check_unary(int(Unary::exp), t, {}, Layout::dense, 0);
    check_unary(int(Unary::exp), t, {0, 3}, Layout::dense, 0);
  }
}

TEST_CASE("unary kernels of kind any keep integers") {
  for (DType t : {DType::i8, DType::i32, DType::i64, DType::u8}) {
    const Buffer x = make(t, {4}, {1, 0, 3, 2}), y = poisoned(t, {4}), want = make(t, {4});
    cpu().unary(Unary::neg, x, want);
    const OnDevice dev_x(x), dev_y(y);
    cuda::unary(queue(), Unary::neg, dev_x, dev_y);
    dev_y.fetch();
    CHECK(y.values() == want.values());
  }
}

TEST_CASE("binary kernels: every op, dense, mixed and broadcast") {
  for (int op = 0; op < kBinaryCount; ++op) {
    for (DType t : kFloating) {
      check_binary(op, t, t, {77}, Layout::dense, 0);
      check_binary(op, t, t, {77}, Layout::dense, 1);
      check_binary(op, t, DType::f32, {4, 33}, Layout::repeated, 0);
    }
  }
}

TEST_CASE("binary kernels at the sizes where loops end") {
  for (DType t : kStored) {
    for (int64_t n : kSizes) check_binary(int(Binary::mul), t, t, {n}, Layout::dense, 0);
    for (Layout layout : kLayouts) check_binary(int(Binary::sub), t, t, {4, 9, 33}, layout, 0);
  }
}

namespace {

// A C++ number as an operand: in the host's memory for both sides.
struct HostNumber {
  double real;
  int64_t whole;
  TensorView view;

  HostNumber(double x, DType t, const Shape& shape) : real(x), whole(int64_t(x)) {
    Strides none = contiguous_strides(shape);
    for (int d = 0; d < shape.size(); ++d) none[d] = 0;
    view = {t == DType::i64 ? static_cast<void*>(&whole) : &real, t, shape, none, true};
  }
  HostNumber(const HostNumber&) = delete;
};

// The ways of two inputs to lie in `shape`, [rows, columns] or [planes, rows, columns].
enum class Form { dense, pitched, row, column, one, plane };
constexpr Form kForms[] = {Form::dense, Form::pitched, Form::row, Form::column, Form::one, Form::plane};

Buffer formed(Form form, DType t, const Shape& shape, unsigned seed, double lo, double hi) {
  const int r = shape.size();
  Shape kept = shape;
  if (form == Form::pitched) kept[r - 1] += 8;
  for (int d = 0; d < r; ++d) {
    const bool last = d == r - 1, goes = form == Form::row ? !last : form == Form::column ? last : form == Form::plane && d == 0;
    if (goes || form == Form::one) kept[d] = 1;
  }
  Buffer b = uniform(t, kept, seed, lo, hi);
  for (int d = 0; d < r; ++d)
    if (kept[d] == 1) b.view.strides[d] = 0;
  b.view.shape = shape;
  return b;
}

}  // namespace

TEST_CASE("binary kernels of every mixture of dtypes and every broadcast are the CPU's, bit for bit") {
  constexpr DType kMixed[] = {DType::f32, DType::f16, DType::bf16, DType::boolean};
  for (const Shape& shape : {Shape{6, 64}, Shape{3, 5, 24}, Shape{5, 13}}) {  // packs along the rows; none
    for (Form form : kForms) {
      for (DType ta : kMixed) {
        for (DType tb : kMixed) {
          const DType to = promote(ta, tb);
          if (to == DType::boolean) continue;
          for (int64_t shift : {0, 1}) {
            const Buffer a = uniform(ta, shape, 3), b = formed(form, tb, shape, 4, -2, 2), g = uniform(to, shape, 5);
            const Buffer y = poisoned(to, shape), z = poisoned(to, shape), d = poisoned(to, shape), r = poisoned(to, shape);
            const Buffer want_y = make(to, shape), want_z = make(to, shape), want_d = make(to, shape), want_r = make(to, shape);
            cpu().binary(Binary::mul, a, b, want_y);
            cpu().binary(Binary::sub, b, a, want_z);
            cpu().binary_backward(Binary::mul, 0, g, a, b, want_d);
            cpu().add_relu(a, b, want_r);
            const OnDevice dev_a(a, shift), dev_b(b, shift), dev_g(g), dev_y(y), dev_z(z, shift), dev_d(d), dev_r(r);
            cuda::binary(queue(), Binary::mul, dev_a, dev_b, dev_y);
            cuda::binary(queue(), Binary::sub, dev_b, dev_a, dev_z);
            cuda::binary_backward(queue(), Binary::mul, 0, dev_g, dev_a, dev_b, dev_d);
            cuda::add_relu(queue(), dev_a, dev_b, dev_r);
            for (const OnDevice* v : {&dev_y, &dev_z, &dev_d, &dev_r}) v->fetch();
            CHECK_MESSAGE(y.values() == want_y.values(), name(ta), " ", name(tb), " form ", int(form), " shift ", shift);
            CHECK_MESSAGE(z.values() == want_z.values(), name(ta), " ", name(tb), " form ", int(form), " shift ", shift);
            CHECK_MESSAGE(d.values() == want_d.values(), name(ta), " ", name(tb), " form ", int(form), " shift ", shift);
            CHECK_MESSAGE(r.values() == want_r.values(), name(ta), " ", name(tb), " form ", int(form), " shift ", shift);
          }
        }
      }
    }
  }
  for (const Shape& shape : {Shape{6, 64}, Shape{5, 13}}) {
    const Buffer a = uniform(DType::f64, shape, 3), b = uniform(DType::f64, shape, 4), r = poisoned(DType::f64, shape),
                 want = make(DType::f64, shape);
    cpu().add_relu(a, b, want);
    const OnDevice dev_a(a), dev_b(b), dev_r(r);
    cuda::add_relu(queue(), dev_a, dev_b, dev_r);
    dev_r.fetch();
    CHECK(r.values() == want.values());
  }
}

TEST_CASE("a C++ number is an argument of the kernel and counts as on the CPU, bit for bit") {
  for (DType t : {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i32, DType::i64}) {
    for (const Shape& shape : {Shape{77}, Shape{64}, Shape{3, 40}, Shape{1}}) {
      for (int64_t shift : {0, 1}) {
        const DType number_type = is_floating(t) ? DType::f64 : DType::i64;
        const HostNumber half(is_floating(t) ? 0.1 : 3, number_type, shape),
            big(is_floating(t) ? 1.0009765 : 0x1p52 + 1, number_type, shape);
        const Buffer x = uniform(t, shape, 3), g = uniform(t, shape, 4);
        const OnDevice dev_x(x, shift), dev_g(g, shift);
        for (const HostNumber* number : {&half, &big}) {
          const auto check = [&](const Buffer& got, const Buffer& want, const auto& on_cpu, const auto& on_device) {
            on_cpu(want.view);
            const OnDevice dev(got, shift);
            on_device(dev.view);
            dev.fetch();
            CHECK_MESSAGE(got.values() == want.values(), name(t), " ", shape.size(), " ", number->real);
          };
          const TensorView& n = number->view;
          for (Binary op : {Binary::add, Binary::sub, Binary::mul, Binary::maximum}) {
            check(
                poisoned(t, shape), make(t, shape), [&](const TensorView& out) { cpu().binary(op, x, n, out); },
                [&](const TensorView& out) { cuda::binary(queue(), op, dev_x, n, out); });
            check(
                poisoned(t, shape), make(t, shape), [&](const TensorView& out) { cpu().binary(op, n, x, out); },
                [&](const TensorView& out) { cuda::binary(queue(), op, n, dev_x, out); });
          }
          for (Comparison op : {Comparison::lt, Comparison::eq, Comparison::logical_xor}) {
            check(
                poisoned(DType::boolean, shape), make(DType::boolean, shape),
                [&](const TensorView& out) { cpu().test(op, x, n, out); },
                [&](const TensorView& out) { cuda::test(queue(), op, dev_x, n, out); });
          }
          const Buffer cond = uniform(DType::boolean, shape, 6, 0, 2);
          const OnDevice dev_cond(cond, shift);
          check(
              poisoned(t, shape), make(t, shape), [&](const TensorView& out) { cpu().where(cond, n, x, out); },
              [&](const TensorView& out) { cuda::where(queue(), dev_cond, n, dev_x, out); });
          check(
              poisoned(t, shape), make(t, shape), [&](const TensorView& out) { cpu().where(cond, x, n, out); },
              [&](const TensorView& out) { cuda::where(queue(), dev_cond, dev_x, n, out); });
          if (is_floating(t))
            check(
                poisoned(t, shape), make(t, shape),
                [&](const TensorView& out) { cpu().binary_backward(Binary::mul, 0, g, x, n, out); },
                [&](const TensorView& out) { cuda::binary_backward(queue(), Binary::mul, 0, dev_g, dev_x, n, out); });
        }
      }
    }
  }
}

TEST_CASE("relu's gradient of the sum of two gradients is the CPU's, bit for bit, also in place of one of them") {
  for (DType t : kFloating) {
    for (const Shape& shape : {Shape{6, 64}, Shape{5, 13}, Shape{3, 1}}) {
      for (int64_t shift : {0, 1}) {
        for (Layout layout : kLayouts) {
          const Buffer a = uniform(t, shape, 3, -2, 2), b = uniform(t, shape, 4, -2, 2, layout), y = uniform(t, shape, 5);
          set(y.view, 0, 0.0);
          set(y.view, 1, -0.0);
          set(y.view, 2, std::nan(""));
          set(a.view, 0, INFINITY);
          const Buffer d = poisoned(t, shape), want = make(t, shape), sum = make(t, shape), steps = make(t, shape);
          cpu().add_relu_backward(a, b, y, want);
          cpu().binary(Binary::add, a, b, sum);
          cpu().unary_backward(Unary::relu, sum, y, steps);
          CHECK(want.values() == steps.values());
          const OnDevice dev_a(a, shift), dev_b(b, shift), dev_y(y, shift), dev_d(d, shift);
          cuda::add_relu_backward(queue(), dev_a, dev_b, dev_y, dev_d);
          cuda::add_relu_backward(queue(), dev_a, dev_b, dev_y, dev_a);
          dev_d.fetch();
          dev_a.fetch();
          CHECK(d.values() == want.values());
          CHECK(a.values() == want.values());
        }
      }
    }
  }
}

TEST_CASE("comparisons and selection in packs: broadcast masks and mixed dtypes") {
  for (DType t : kStored) {
    for (const Shape& shape : {Shape{4, 6, 64}, Shape{2, 3, 13}}) {
      for (Form form : kForms) {
        for (int64_t shift : {0, 1}) {
          const Buffer cond = formed(form, DType::boolean, shape, 1, 0, 2), a = uniform(DType::f32, shape, 2),
                       b = formed(form, t, shape, 3, -2, 2), y = poisoned(t, shape), want = make(t, shape);
          const Buffer less = poisoned(DType::boolean, shape), want_less = make(DType::boolean, shape);
          cpu().where(cond, a, b, want);
          cpu().test(Comparison::lt, a, b, want_less);
          const OnDevice dev_cond(cond, shift), dev_a(a, shift), dev_b(b, shift), dev_y(y, shift), dev_less(less, 8 * shift);
          cuda::where(queue(), dev_cond, dev_a, dev_b, dev_y);
          cuda::test(queue(), Comparison::lt, dev_a, dev_b, dev_less);
          dev_y.fetch();
          dev_less.fetch();
          CHECK(y.values() == want.values());
          CHECK(less.values() == want_less.values());
        }
      }
    }
  }
}

TEST_CASE("an output may be the input") {
  const Buffer x = uniform(DType::f32, {1000}, 6), want = make(DType::f32, {1000});
  cpu().unary(Unary::square, x, want);
  const OnDevice dev(x);
  cuda::unary(queue(), Unary::square, dev, dev);
  dev.fetch();
  CHECK(x.values() == want.values());
}

TEST_CASE("comparisons, logic and selection") {
  for (int op = 0; op < kComparisonCount; ++op) {
    for (DType ta : kAll) {
      const Buffer a = make(ta, {2, 3}, {0, 1, 2, 0, 1, 2}), b = make(DType::f32, {2, 3}, {0, 0, 0, 1, 1, 1});
      const Buffer y = poisoned(DType::boolean, {2, 3}), want = make(DType::boolean, {2, 3});
      cpu().test(Comparison(op), a, b, want);
      const OnDevice dev_a(a), dev_b(b), dev_y(y);
      cuda::test(queue(), Comparison(op), dev_a, dev_b, dev_y);
      dev_y.fetch();
      CHECK_MESSAGE(y.values() == want.values(), kComparisonRows[op].name, " ", name(ta));
    }
  }
  for (DType t : kAll) {
    const Buffer cond = make(DType::boolean, {4}, {1, 0, 1, 0}), a = make(t, {4}, {1, 1, 0, 1}), b = make(t, {4}, {0, 1, 1, 0});
    const Buffer y = poisoned(t, {4});
    const OnDevice dev_c(cond), dev_a(a), dev_b(b), dev_y(y);
    cuda::where(queue(), dev_c, dev_a, dev_b, dev_y);
    dev_y.fetch();
    CHECK(y.values() == std::vector<double>{1, 1, 0, 0});
  }
}

TEST_CASE("bits of integers and bool, also beside a number") {
  const double six = 6;
  for (DType t : {DType::boolean, DType::u8, DType::i8, DType::i16, DType::i32, DType::i64}) {
    const bool flags = t == DType::boolean;
    const Buffer a = flags ? make(t, {2, 3}, {0, 1, 0, 1, 1, 0}) : make(t, {2, 3}, {0, 1, 100, 5, 64, 127}),
                 b = flags ? make(t, {2, 3}, {0, 0, 1, 1, 0, 1}) : make(t, {2, 3}, {1, 0, 3, 7, 8, 70});
    for (int op = 0; op < (flags ? 3 : 5); ++op) {
      const Buffer y = poisoned(t, {2, 3}), want = make(t, {2, 3});
      const OnDevice dev_a(a), dev_b(b), dev_y(y);
      cpu().bitwise(Bitwise(op), a, b, want);
      cuda::bitwise(queue(), Bitwise(op), dev_a, dev_b, dev_y);
      dev_y.fetch();
      CHECK_MESSAGE(y.values() == want.values(), "op ", op, " ", name(t));
      if (flags) continue;
      const TensorView number{const_cast<double*>(&six), DType::f64, Shape{2, 3}, {0, 0}, true};
      cpu().bitwise(Bitwise(op), a, number, want);
      cuda::bitwise(queue(), Bitwise(op), dev_a, number, dev_y);
      dev_y.fetch();
      CHECK_MESSAGE(y.values() == want.values(), "op ", op, " beside a number, ", name(t));
    }
  }
}
