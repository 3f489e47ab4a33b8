// The elementwise kernels against the CPU backend: every op, dense, misaligned and strided.
#include "device.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

// Both sides run the same functors; the device's own maths may differ in the last places.
constexpr double kUlps = 4, kSlack = 2e-6;

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
  check_close(y, want, kUlps, kSlack, std::string(row.name));
  check_close(dx, want_dx, kUlps, 4 * kSlack, std::string(row.name) + " backward");
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
  check_close(y, want, kUlps, kSlack, std::string(row.name));
  for (int input : {0, 1}) {
    const DType t = input == 0 ? ta : tb;
    const Buffer d = poisoned(t, shape), want_d = make(t, shape);
    cpu().binary_backward(Binary(op), input, g, a, b, want_d);
    const OnDevice dev_d(d, shift);
    cuda::binary_backward(queue(), Binary(op), input, dev_g, dev_a, dev_b, dev_d);
    dev_d.fetch();
    check_close(d, want_d, kUlps, 4 * kSlack, std::string(row.name) + " backward");
  }
}

}  // namespace

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

TEST_CASE("an output may be the input") {
  const Buffer x = uniform(DType::f32, {1000}, 6), want = make(DType::f32, {1000});
  cpu().unary(Unary::square, x, want);
  const OnDevice dev(x);
  cuda::unary(queue(), Unary::square, dev, dev);
  dev.fetch();
  CHECK(x.values() == want.values());
}

TEST_CASE("comparisons, logic and selection") {
  for (int op = 0; op < kTestCount; ++op) {
    for (DType ta : kAll) {
      const Buffer a = make(ta, {2, 3}, {0, 1, 2, 0, 1, 2}), b = make(DType::f32, {2, 3}, {0, 0, 0, 1, 1, 1});
      const Buffer y = poisoned(DType::boolean, {2, 3}), want = make(DType::boolean, {2, 3});
      cpu().test(Test(op), a, b, want);
      const OnDevice dev_a(a), dev_b(b), dev_y(y);
      cuda::test(queue(), Test(op), dev_a, dev_b, dev_y);
      dev_y.fetch();
      CHECK_MESSAGE(y.values() == want.values(), kTestRows[op].name, " ", name(ta));
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
