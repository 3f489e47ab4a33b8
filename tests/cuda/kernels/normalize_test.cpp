// SPDX-License-Identifier: Apache-2.0
// Layer, RMS and group normalisation against the CPU backend.
#include "device.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

struct NormTypes {
  DType x, weight, out;
};
// One dtype throughout; float32 parameters; float32 results of a region.
constexpr NormTypes kNormTypes[] = {{DType::f32, DType::f32, DType::f32},   {DType::f16, DType::f16, DType::f16},
                                    {DType::bf16, DType::f32, DType::bf16}, {DType::f16, DType::f32, DType::f32},
                                    {DType::bf16, DType::bf16, DType::f32}, {DType::f64, DType::f64, DType::f64}};

void check_normalize(const NormArgs& a, const NormTypes& t, bool affine = true, int64_t shift = 0,
                     MemoryFormat format = MemoryFormat::contiguous) {
  const bool last = format == MemoryFormat::channels_last;
  const Shape parameter{a.groups * a.channels}, slices{a.rows * a.groups};
  const Shape shape = last ? Shape{a.rows, parameter[0], a.inner, 1} : Shape{a.rows, a.groups, a.channels, a.inner};
  const DType wide = t.x == DType::f64 ? t.x : DType::f32;
  const std::string what = "normalize " + std::to_string(a.rows) + "x" + std::to_string(a.groups) + "x" +
                           std::to_string(a.channels) + "x" + std::to_string(a.inner) + (last ? " channels-last" : "");
  const auto lying = [&](const Buffer& made) { return laid(made, format); };
  const Buffer x = lying(uniform(t.x, shape, 3, -1, 5)), g = lying(uniform(t.out, shape, 4)), w = uniform(t.weight, parameter, 5),
               b = uniform(t.weight, parameter, 6);
  const TensorView none;
  const OnDevice dev_x(x, shift), dev_g(g, shift), dev_w(w), dev_b(b);
  const TensorView &dw = affine ? dev_w.view : none, &db = affine ? dev_b.view : none;

  const Buffer y = lying(poisoned(t.out, shape)), mean = poisoned(wide, slices), rstd = poisoned(wide, slices);
  const Buffer want_y = lying(make(t.out, shape)), want_mean = make(wide, slices), want_rstd = make(wide, slices);
  cpu().normalize(a, x, affine ? w.view : none, affine ? b.view : none, want_y, a.centered ? want_mean.view : none, want_rstd);
  {
    const OnDevice dev_y(y), dev_mean(mean), dev_rstd(rstd);
    cuda::normalize(queue(), a, dev_x, dw, db, dev_y, a.centered ? dev_mean.view : none, dev_rstd);
    for (const OnDevice* d : {&dev_y, &dev_mean, &dev_rstd}) d->fetch();
  }
  check_close(y, want_y, 2, 4e-6, what);
  if (a.centered) check_close(mean, want_mean, 8, 1e-6, what + " mean");
  check_close(rstd, want_rstd, 64, 1e-6, what + " rstd");

  const Buffer dx = lying(poisoned(t.x, shape)), dweight = poisoned(wide, parameter), dbias = poisoned(wide, parameter);
  const Buffer want_dx = lying(make(t.x, shape)), want_dweight = make(wide, parameter), want_dbias = make(wide, parameter);
  cpu().normalize_backward(a, g, x, affine ? w.view : none, a.centered ? want_mean.view : none, want_rstd, want_dx, want_dweight,
                           want_dbias);
  {
    const OnDevice dev_mean(want_mean), dev_rstd(want_rstd), dev_dx(dx), dev_dweight(dweight), dev_dbias(dbias);
    cuda::normalize_backward(queue(), a, dev_g, dev_x, dw, a.centered ? dev_mean.view : none, dev_rstd, dev_dx, dev_dweight,
                             dev_dbias);
    for (const OnDevice* d : {&dev_dx, &dev_dweight, &dev_dbias}) d->fetch();
  }
  const double sums = 1e-6 * double(a.rows * a.inner + 8);
  check_close(dx, want_dx, 4, 5e-5, what + " dx");
  check_close(dweight, want_dweight, 16, sums, what + " dweight");
  check_close(dbias, want_dbias, 16, sums, what + " dbias");
}

// x = a + b, and the gradient of x from elsewhere: the bits of the sum, the norm and a conversion by their own kernels, which are
// close to the CPU's.
struct SumTypes {
  DType a, b, sum, weight, out, copy;  // copy: f64 for none
};
constexpr SumTypes kSumTypes[] = {{DType::f32, DType::f32, DType::f32, DType::f32, DType::f32, DType::f64},
                                  {DType::f32, DType::f16, DType::f32, DType::f32, DType::f16, DType::f16},
                                  {DType::f32, DType::bf16, DType::f32, DType::f32, DType::f32, DType::bf16},
                                  {DType::f16, DType::f16, DType::f16, DType::f32, DType::f32, DType::f64},
                                  {DType::bf16, DType::bf16, DType::bf16, DType::bf16, DType::bf16, DType::f64},
                                  {DType::f64, DType::f32, DType::f64, DType::f64, DType::f64, DType::f64}};

void check_same_bytes(const Buffer& got, const Buffer& want, const std::string& what) {
  CHECK_MESSAGE(got.raw() == want.raw(), what, " ", name(want.view.dtype));
}

// Compares the sums of d's columns with those in float64, but for the roundings of sums in float32 and of the result.
void check_column_sums(const Buffer& sums, const Buffer& d, const std::string& what) {
  const int64_t rows = d.view.shape[0], columns = d.view.shape[1];
  bool close = true;
  for (int64_t c = 0; c < columns; ++c) {
    double exact = 0, size = 0;
    for (int64_t r = 0; r < rows; ++r) exact += d[r * columns + c], size += std::abs(d[r * columns + c]);
    close = close && std::abs(sums[c] - exact) <= 1e-6 * size + epsilon(sums.view.dtype) * std::abs(exact);
  }
  CHECK_MESSAGE(close, what, " sums of columns in ", name(sums.view.dtype));
}

void check_add_normalize(const NormArgs& n, const SumTypes& t, bool affine, bool residual, int64_t shift = 0) {
  const Shape shape{n.rows, n.channels}, parameter{n.channels}, rows{n.rows};
  const DType wide = t.sum == DType::f64 ? t.sum : DType::f32;
  const std::string what = "add_normalize " + std::to_string(n.rows) + "x" + std::to_string(n.channels);
  const Buffer a = uniform(t.a, shape, 3, -1, 5), b = uniform(t.b, shape, 4), w = uniform(t.weight, parameter, 5),
               bias = uniform(t.weight, parameter, 6), g = uniform(wide, shape, 7), more = uniform(t.sum, shape, 8);
  const TensorView none;
  const auto w_of = [&](const TensorView& v) { return affine ? v : none; };
  const auto mean_of = [&](const TensorView& v) { return n.centered ? v : none; };
  const auto more_of = [&](const TensorView& v) { return residual ? v : none; };
  const OnDevice dev_a(a, shift), dev_b(b, shift), dev_w(w), dev_bias(bias), dev_g(g, shift), dev_more(more, shift);

  const Buffer sum = poisoned(t.sum, shape), y = poisoned(t.out, shape), mean = poisoned(wide, rows), rstd = poisoned(wide, rows);
  const Buffer plain_sum = poisoned(t.sum, shape), plain_y = poisoned(t.out, shape), plain_mean = poisoned(wide, rows),
               plain_rstd = poisoned(wide, rows);
  const Buffer want_sum = make(t.sum, shape), want_y = make(t.out, shape), want_mean = make(wide, rows),
               want_rstd = make(wide, rows);
  {
    const OnDevice dev_sum(sum, shift), dev_y(y, shift), dev_mean(mean), dev_rstd(rstd), sum_2(plain_sum, shift),
        y_2(plain_y, shift), mean_2(plain_mean), rstd_2(plain_rstd);
    const int launches = launches_of([&] {
      cuda::add_normalize(queue(), n, dev_a, dev_b, w_of(dev_w), w_of(dev_bias), dev_sum, dev_y, mean_of(dev_mean), dev_rstd);
    });
    CHECK(launches == 1);
    cuda::binary(queue(), Binary::add, dev_a, dev_b, sum_2);
    cuda::normalize(queue(), n, sum_2, w_of(dev_w), w_of(dev_bias), y_2, mean_of(mean_2), rstd_2);
    for (const OnDevice* d : {&dev_sum, &dev_y, &dev_mean, &dev_rstd, &sum_2, &y_2, &mean_2, &rstd_2}) d->fetch();
  }
  check_same_bytes(sum, plain_sum, what + " sum");
  check_same_bytes(y, plain_y, what + " y");
  check_same_bytes(rstd, plain_rstd, what + " rstd");
  if (n.centered) check_same_bytes(mean, plain_mean, what + " mean");
  cpu().add_normalize(n, a, b, w_of(w), w_of(bias), want_sum, want_y, mean_of(want_mean), want_rstd);
  check_same_bytes(sum, want_sum, what + " CPU's sum");
  check_close(y, want_y, 2, 4e-6, what);

  const bool copied = t.copy != DType::f64;
  const DType sums_type = n.rows % 2 ? DType::f32 : copied ? t.copy : t.sum;
  const Buffer dx = poisoned(t.sum, shape), copy = poisoned(t.copy, shape), dw = poisoned(wide, parameter),
               db = poisoned(wide, parameter), columns = poisoned(sums_type, parameter), again = poisoned(sums_type, parameter),
               want_columns = make(sums_type, parameter);
  const Buffer plain_dx = poisoned(t.sum, shape), plain_copy = poisoned(t.copy, shape), plain_dw = poisoned(wide, parameter),
               plain_db = poisoned(wide, parameter);
  const Buffer want_dx = make(t.sum, shape), want_copy = make(t.copy, shape), want_dw = make(wide, parameter),
               want_db = make(wide, parameter);
  const auto copy_of = [&](const TensorView& v) { return copied ? v : none; };
  {
    const OnDevice dev_sum(want_sum, shift), dev_mean(want_mean), dev_rstd(want_rstd), dev_dx(dx, shift), dev_copy(copy, shift),
        dev_dw(dw), dev_db(db), dx_2(plain_dx, shift), copy_2(plain_copy, shift), dw_2(plain_dw), db_2(plain_db),
        dev_columns(columns), dev_again(again);
    const auto backward = [&](const TensorView& d, const TensorView& c, const TensorView& of_w, const TensorView& of_b,
                              const TensorView& of_columns) {
      cuda::add_normalize_backward(queue(), n, dev_g, more_of(dev_more), dev_sum, w_of(dev_w), mean_of(dev_mean), dev_rstd, d,
                                   copy_of(c), of_w, of_b, of_columns);
    };
    backward(dx_2, copy_2, none, none, dev_again);  // the sums alone: the same bits
    const int launches = launches_of([&] { backward(dev_dx, dev_copy, dev_dw, dev_db, none); });
    const int with_columns = launches_of([&] { backward(dev_dx, dev_copy, dev_dw, dev_db, dev_columns); });
    CHECK((with_columns == launches || launches != 2));  // not one more where a row is read once
    cuda::normalize_backward(queue(), n, dev_g, dev_sum, w_of(dev_w), mean_of(dev_mean), dev_rstd, dx_2, dw_2, db_2);
    if (residual) cuda::binary(queue(), Binary::add, dx_2, dev_more, dx_2);
    if (copied) cuda::copy(queue(), dx_2, copy_2);
    for (const OnDevice* d : {&dev_dx, &dev_copy, &dev_dw, &dev_db, &dx_2, &copy_2, &dw_2, &db_2, &dev_columns, &dev_again})
      d->fetch();
  }
  check_same_bytes(columns, again, what + " sums of columns");
  check_column_sums(columns, copied ? copy : dx, what);
  check_same_bytes(dx, plain_dx, what + " dx");
  check_same_bytes(copy, plain_copy, what + " copy");
  check_same_bytes(dw, plain_dw, what + " dweight");
  check_same_bytes(db, plain_db, what + " dbias");
  cpu().add_normalize_backward(n, g, more_of(more), want_sum, w_of(w), mean_of(want_mean), want_rstd, want_dx, copy_of(want_copy),
                               want_dw, want_db, want_columns);
  check_column_sums(want_columns, copied ? want_copy : want_dx, what + " CPU's");
  check_close(dx, want_dx, 4, 5e-5, what + " CPU's dx");
  if (copied) check_close(copy, want_copy, 4, 5e-5, what + " CPU's copy");
  const double sums = 1e-6 * double(n.rows + 8);
  check_close(dw, want_dw, 16, sums, what + " CPU's dweight");
  check_close(db, want_db, 16, sums, what + " CPU's dbias");
}

}  // namespace

TEST_CASE("layer and RMS normalisation of rows of every length") {
  for (const NormTypes& t : kNormTypes) {
    for (bool centered : {true, false}) {
      for (int64_t n : {1, 7, 8, 31, 32, 33, 256, 264, 1024, 1025, 2056}) check_normalize({9, 1, n, 1, 1e-5, centered}, t);
      check_normalize({70, 1, 40, 1, 1e-3, centered}, t, false);
      check_normalize({3, 1, 64, 1, 1e-5, centered}, t, true, 1);  // not on 16 bytes
    }
  }
}

TEST_CASE("group normalisation of short and long channels") {
  for (const NormTypes& t : kNormTypes) {
    check_normalize({3, 2, 3, 5, 1e-5}, t);
    check_normalize({2, 4, 2, 8, 1e-5}, t);
    check_normalize({2, 3, 1, 49, 1e-5}, t);
    check_normalize({2, 2, 4, 400, 1e-5}, t, false);
    check_normalize({5, 4, 1, 1, 1e-5}, t);
    check_normalize({4, 8, 4, 1, 1e-5}, t);
  }
}

// Strips of one group and of several, in packs and not, the last of which has fewer; more columns than a block has threads for.
TEST_CASE("group normalisation in channels_last") {
  const auto check = [](const NormArgs& a, const NormTypes& t, bool affine = true, int64_t shift = 0) {
    check_normalize(a, t, affine, shift, MemoryFormat::channels_last);
  };
  for (const NormTypes& t : kNormTypes) check({2, 12, 10, 37, 1e-5}, t);  // packs of two groups
  for (const NormTypes& t : {kNormTypes[1], kNormTypes[5]}) {
    check({3, 2, 3, 5, 1e-5}, t);
    check({2, 40, 1, 9, 1e-5}, t);  // each channel a group
    check({2, 4, 40, 70, 1e-5}, t, false);
    check({2, 3, 8, 6, 1e-5}, t, true, 1);  // not on 16 bytes
    check({2, 8, 33, 70, 1e-5}, t);
    check({1, 2, 72, 9, 1e-5}, t);
  }
  // So many strips that each has several packs, or columns.
  check({13, 328, 1, 3, 1e-5}, kNormTypes[1]);
  check({13, 41, 8, 3, 1e-5}, kNormTypes[2]);
  check({13, 316, 1, 3, 1e-5}, kNormTypes[5]);
  check({1, 1, 2056, 3, 1e-5}, kNormTypes[3]);
  check({1, 8, 257, 3, 1e-5}, kNormTypes[1]);  // wide groups that are no whole packs
  check({1, 1, 257, 3, 1e-5}, kNormTypes[5]);
}

TEST_CASE("sums over many rows take several segments") {
  for (const NormTypes& t : {kNormTypes[0], kNormTypes[1]}) {
    check_normalize({300, 1, 136, 1, 1e-5}, t);
    check_normalize({2500, 1, 3, 1, 1e-5}, t);
    check_normalize({5, 1, 2, 4100, 1e-5}, t);
  }
}

// Up to 1024 elements a warp's registers hold the row, up to 8192 a block's: all gradients come of one read.
TEST_CASE("gradients of rows in registers, with several rows for each warp and each block") {
  for (const NormTypes& t : {kNormTypes[0], kNormTypes[1], kNormTypes[2], kNormTypes[3], kNormTypes[4]}) {
    for (int64_t n : {8, 264}) check_normalize({70, 1, n, 1, 1e-5}, t);
    check_normalize({7, 1, 1032, 1, 1e-5, false}, t);
    check_normalize({35, 3, 40, 1, 1e-5}, t);
  }
  for (int64_t n : {248, 256, 1024}) check_normalize({70, 1, n, 1, 1e-5, false}, kNormTypes[1]);
  check_normalize({7, 1, 4104, 1, 1e-5}, kNormTypes[0]);
  check_normalize({5, 3, 1032, 1, 1e-5}, kNormTypes[0]);
  for (int64_t n : {8192, 8200}) check_normalize({5, 1, n, 1, 1e-5}, kNormTypes[1]);
  check_normalize({4200, 1, 8, 1, 1e-5}, kNormTypes[0]);    // more than two rows for each warp of each segment
  check_normalize({600, 1, 1032, 1, 1e-5}, kNormTypes[1]);  // and for each block
}

TEST_CASE("the gradients of a layer norm are one read of its rows and a join, each alone as with the others") {
  const int64_t rows = 40, n = 136;
  const Buffer x = uniform(DType::f16, {rows, n}, 1), g = uniform(DType::f16, {rows, n}, 2), w = uniform(DType::f32, {n}, 3),
               mean = uniform(DType::f32, {rows}, 4), rstd = uniform(DType::f32, {rows}, 5, 0.5, 2);
  const OnDevice dev_x(x), dev_g(g), dev_w(w), dev_mean(mean), dev_rstd(rstd);
  const auto gradients = [&](bool of_x, bool of_weight, bool of_bias, int launches) {
    const Buffer dx = poisoned(DType::f16, {rows, n}), dw = poisoned(DType::f32, {n}), db = poisoned(DType::f32, {n});
    const OnDevice dev_dx(dx), dev_dw(dw), dev_db(db);
    const TensorView none;
    const int count = launches_of([&] {
      cuda::normalize_backward(queue(), {rows, 1, n, 1, 1e-5}, dev_g, dev_x, dev_w, dev_mean, dev_rstd, of_x ? dev_dx.view : none,
                               of_weight ? dev_dw.view : none, of_bias ? dev_db.view : none);
    });
    CHECK(count == launches);
    for (const OnDevice* d : {&dev_dx, &dev_dw, &dev_db}) d->fetch();
    return std::array{dx.raw(), dw.raw(), db.raw()};
  };
  const auto all = gradients(true, true, true, 2), again = gradients(true, true, true, 2);
  CHECK(all == again);
  CHECK(gradients(true, false, false, 1)[0] == all[0]);
  CHECK(gradients(true, true, false, 2)[1] == all[1]);
  CHECK(gradients(true, false, true, 2)[2] == all[2]);
}

TEST_CASE("nothing to normalise leaves gradients of zero") {
  const NormArgs a{0, 1, 5, 1, 1e-5};
  const Buffer x = make(DType::f32, {0, 5}), w = make(DType::f32, {5}), mean = make(DType::f32, {0}),
               dweight = poisoned(DType::f32, {5});
  const OnDevice dev_x(x), dev_w(w), dev_mean(mean), dev_dweight(dweight);
  cuda::normalize(queue(), a, dev_x, dev_w, dev_w, dev_x, dev_mean, dev_mean);
  cuda::normalize_backward(queue(), a, dev_x, dev_x, dev_w, dev_mean, dev_mean, TensorView(), dev_dweight, TensorView());
  dev_dweight.fetch();
  for (int64_t i = 0; i < 5; ++i) CHECK(dweight[i] == 0);
}

TEST_CASE("the norm of a sum and its gradient, with the sum's gradient from elsewhere and a 16-bit copy") {
  for (const SumTypes& t : kSumTypes) {
    for (bool residual : {true, false}) {
      for (int64_t n : {1, 7, 8, 31, 32, 33, 264, 1024, 1025, 1032}) check_add_normalize({9, 1, n, 1, 1e-5}, t, true, residual);
      check_add_normalize({70, 1, 40, 1, 1e-3, false}, t, false, residual);
      check_add_normalize({3, 1, 64, 1, 1e-5}, t, true, residual, 1);  // not on 16 bytes
      check_add_normalize({5, 1, 2056, 1, 1e-5, false}, t, true, residual);
    }
  }
  for (int64_t n : {8192, 8200}) check_add_normalize({5, 1, n, 1, 1e-5}, kSumTypes[1], true, true);
  check_add_normalize({4200, 1, 8, 1, 1e-5}, kSumTypes[1], true, true);    // more than two rows for each warp of each segment
  check_add_normalize({600, 1, 1032, 1, 1e-5}, kSumTypes[1], true, true);  // and for each block
}
