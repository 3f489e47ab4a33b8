// SPDX-License-Identifier: Apache-2.0
// Batch normalisation against the CPU backend.
#include <algorithm>

#include "device.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

void check_batch_norm(const BatchNormArgs& a, DType t, DType parameters, bool given = true, int64_t shift = 0) {
  const Shape shape{a.batch, a.channels, a.inner}, channels{a.channels};
  const DType wide = t == DType::f64 ? t : DType::f32;
  const std::string what = "batch_norm " + std::to_string(a.batch) + "x" + std::to_string(a.channels) + "x" +
                           std::to_string(a.inner) + (a.training ? " training" : "");
  const Buffer x = uniform(t, shape, 3, -1, 5), g = uniform(t, shape, 4), w = uniform(parameters, channels, 5),
               b = uniform(parameters, channels, 6);
  const TensorView none;
  const auto or_none = [&](const TensorView& v) -> const TensorView& { return given ? v : none; };
  const OnDevice dev_x(x, shift), dev_g(g, shift), dev_w(w), dev_b(b);

  const Buffer running_mean = uniform(parameters, channels, 7), running_var = uniform(parameters, channels, 8, 0.5, 2);
  const Buffer want_running_mean = uniform(parameters, channels, 7), want_running_var = uniform(parameters, channels, 8, 0.5, 2);
  const Buffer batches = make(DType::i64, {}, {41}), want_batches = make(DType::i64, {}, {41});
  const Buffer y = poisoned(t, shape), mean = poisoned(wide, channels), rstd = poisoned(wide, channels);
  const Buffer want_y = make(t, shape), want_mean = make(wide, channels), want_rstd = make(wide, channels);
  const auto running = [&](const TensorView& v) -> const TensorView& { return given || !a.training ? v : none; };
  cpu().batch_norm(a, x, or_none(w), or_none(b), none, running(want_running_mean), running(want_running_var), want_batches, want_y,
                   want_mean, want_rstd);
  {
    const OnDevice dev_running_mean(running_mean), dev_running_var(running_var), dev_batches(batches), dev_y(y), dev_mean(mean),
        dev_rstd(rstd);
    cuda::batch_norm(queue(), a, dev_x, or_none(dev_w), or_none(dev_b), none, running(dev_running_mean), running(dev_running_var),
                     dev_batches, dev_y, dev_mean, dev_rstd);
    for (const OnDevice* d : {&dev_running_mean, &dev_running_var, &dev_batches, &dev_y, &dev_mean, &dev_rstd}) d->fetch();
  }
  CHECK(batches.raw() == want_batches.raw());
  check_close(y, want_y, 2, 4e-6, what);
  check_close(mean, want_mean, 8, 1e-6, what + " mean");
  check_close(rstd, want_rstd, 64, 1e-6, what + " rstd");
  check_close(running_mean, want_running_mean, 2, 1e-6, what + " running mean");
  check_close(running_var, want_running_var, 2, 1e-6, what + " running var");

  const Buffer dx = poisoned(t, shape), dweight = poisoned(wide, channels), dbias = poisoned(wide, channels);
  const Buffer want_dx = make(t, shape), want_dweight = make(wide, channels), want_dbias = make(wide, channels);
  cpu().batch_norm_backward(a, g, x, or_none(w), none, want_mean, want_rstd, want_dx, or_none(want_dweight), or_none(want_dbias));
  {
    const OnDevice dev_mean(want_mean), dev_rstd(want_rstd), dev_dx(dx), dev_dweight(dweight), dev_dbias(dbias);
    cuda::batch_norm_backward(queue(), a, dev_g, dev_x, or_none(dev_w), none, dev_mean, dev_rstd, dev_dx, or_none(dev_dweight),
                              or_none(dev_dbias));
    for (const OnDevice* d : {&dev_dx, &dev_dweight, &dev_dbias}) d->fetch();
  }
  const double sums = 1e-6 * double(a.batch * a.inner + 8);
  check_close(dx, want_dx, 4, 2e-5, what + " dx");
  if (!given) return;
  check_close(dweight, want_dweight, 16, sums, what + " dweight");
  check_close(dbias, want_dbias, 16, sums, what + " dbias");
}

// What the kernels give with the ReLU in them, or beside them.
struct WithRelu {
  Buffer y, dx, dweight, dbias;

  WithRelu(BatchNormArgs a, DType t, DType parameters, bool fused, bool given, int64_t shift)
      : y(poisoned(t, {a.batch, a.channels, a.inner})), dx(poisoned(t, y.view.shape)) {
    const Shape channels{a.channels};
    const DType wide = t == DType::f64 ? t : DType::f32;
    dweight = poisoned(wide, channels), dbias = poisoned(wide, channels);
    const Buffer x = uniform(t, y.view.shape, 3, -1, 5), g = uniform(t, y.view.shape, 4), w = uniform(parameters, channels, 5),
                 b = uniform(parameters, channels, 6, -0.5, 0.5), running_mean = uniform(parameters, channels, 7, 1, 3),
                 running_var = uniform(parameters, channels, 8, 0.5, 2);
    set(w.view, 0, t == DType::f16 ? 4e-8 : 1e-40);  // about the smallest that t holds: some results are stored as 0
    set(b.view, 0, 0);
    if (a.channels > 1) {  // results of exactly 0
      set(w.view, 1, 0);
      set(b.view, 1, 0);
    }
    const TensorView none;
    const OnDevice dev_x(x, shift), dev_g(g, shift), dev_w(w), dev_b(b), dev_running_mean(running_mean),
        dev_running_var(running_var), dev_y(y), dev_dx(dx), dev_dweight(dweight), dev_dbias(dbias), mean(poisoned(wide, channels)),
        rstd(poisoned(wide, channels)), normalized(poisoned(t, y.view.shape)), masked(poisoned(t, y.view.shape));
    const auto or_none = [&](const OnDevice& v) -> TensorView { return given ? TensorView(v) : none; };
    a.relu = fused;
    const OnDevice& out = fused ? dev_y : normalized;
    cuda::batch_norm(queue(), a, dev_x, or_none(dev_w), or_none(dev_b), none, dev_running_mean, dev_running_var, none, out, mean,
                     rstd);
    if (!fused) {
      cuda::unary(queue(), Unary::relu, normalized, dev_y);
      cuda::unary_backward(queue(), Unary::relu, dev_g, dev_y, masked);
    }
    cuda::batch_norm_backward(queue(), a, fused ? dev_g : masked, dev_x, or_none(dev_w), fused ? or_none(dev_b) : none, mean, rstd,
                              dev_dx, or_none(dev_dweight), or_none(dev_dbias));
    for (const OnDevice* d : {&dev_y, &dev_dx, &dev_dweight, &dev_dbias}) d->fetch();
  }
};

void check_relu(const BatchNormArgs& a, DType t, DType parameters, bool given = true, int64_t shift = 0) {
  const WithRelu fused(a, t, parameters, true, given, shift), plain(a, t, parameters, false, given, shift);
  CAPTURE(a.batch);
  CAPTURE(a.channels);
  CAPTURE(a.inner);
  CAPTURE(a.training);
  CAPTURE(name(t));
  const std::vector<double> y = plain.y.values();
  CHECK(std::any_of(y.begin(), y.end(), [](double v) { return v == 0; }));
  CHECK(std::any_of(y.begin(), y.end(), [](double v) { return v > 0; }));
  CHECK(fused.y.raw() == plain.y.raw());
  CHECK(fused.dx.raw() == plain.dx.raw());
  CHECK(fused.dweight.raw() == plain.dweight.raw());
  CHECK(fused.dbias.raw() == plain.dbias.raw());
}

// Compares the kernels with a residual, `shift` elements off an aligned address, with batch_norm and add_relu.
void check_residual(const BatchNormArgs& a, DType t, DType parameters, bool given, int64_t shift) {
  const Shape shape{a.batch, a.channels, a.inner}, channels{a.channels};
  const DType wide = t == DType::f64 ? t : DType::f32;
  CAPTURE(a.batch);
  CAPTURE(a.channels);
  CAPTURE(a.inner);
  CAPTURE(a.training);
  CAPTURE(name(t));
  const Buffer x = uniform(t, shape, 3, -1, 5), residual = uniform(t, shape, 4, -3, 3);
  const Buffer fused = poisoned(t, shape), plain = poisoned(t, shape), got = poisoned(wide, channels),
               want = poisoned(wide, channels);
  const OnDevice dev_x(x), dev_residual(residual, shift), dev_w(uniform(parameters, channels, 5)),
      dev_b(uniform(parameters, channels, 6)), normalized(poisoned(t, shape)), dev_fused(fused), dev_plain(plain),
      rstd(poisoned(wide, channels)), fused_rstd(poisoned(wide, channels));
  const TensorView none;
  const auto or_none = [&](const OnDevice& v) -> TensorView { return given ? TensorView(v) : none; };
  const Buffer running[] = {uniform(parameters, channels, 7, 1, 3), uniform(parameters, channels, 8, 0.5, 2)};
  const auto run = [&](const TensorView& added, const OnDevice& out, const Buffer& mean_buffer, const OnDevice& deviation) {
    const OnDevice running_mean(running[0]), running_var(running[1]), mean(mean_buffer);
    cuda::batch_norm(queue(), a, dev_x, or_none(dev_w), or_none(dev_b), added, running_mean, running_var, none, out, mean,
                     deviation);
    mean.fetch();
  };
  run(dev_residual, dev_fused, got, fused_rstd);
  run(none, normalized, want, rstd);
  cuda::add_relu(queue(), normalized, dev_residual, dev_plain);
  dev_fused.fetch();
  dev_plain.fetch();
  const std::vector<double> y = plain.values();
  CHECK(std::any_of(y.begin(), y.end(), [](double v) { return v == 0; }));
  CHECK(std::any_of(y.begin(), y.end(), [](double v) { return v > 0; }));
  CHECK(fused.raw() == plain.raw());
  CHECK(got.raw() == want.raw());
}

}  // namespace

TEST_CASE("a ReLU in the kernels of batch normalisation gives the bits of a kernel of its own") {
  for (bool training : {true, false}) {
    for (DType t : kFloating) {
      const DType parameters = is_half(t) ? DType::f32 : t;
      const auto check = [&](int64_t batch, int64_t channels, int64_t inner, bool given = true, int64_t shift = 0) {
        check_relu({batch, channels, inner, 1e-5, 0.1, training}, t, parameters, given, shift);
      };
      for (int64_t channels : {7, 8, 12, 264}) check(9, channels, 1);
      check(70, 40, 1, false);
      check(300, 72, 1);  // in packs: two segments, two blocks of columns
      check(3, 5, 7);
      check(2, 3, 49);
      check(4, 2, 64, false);
      check(2, 3, 256, true, 1);
      check(3, 1, 8201);
    }
  }
}

TEST_CASE("a residual in the kernels of batch normalisation gives the bits of the normalisation and add_relu") {
  for (bool training : {true, false}) {
    for (DType t : kFloating) {
      const DType parameters = is_half(t) ? DType::f32 : t;
      const auto check = [&](int64_t batch, int64_t channels, int64_t inner, bool given = true, int64_t shift = 0) {
        check_residual({batch, channels, inner, 1e-5, 0.1, training}, t, parameters, given, shift);
      };
      for (int64_t channels : {7, 8, 12, 264}) check(9, channels, 1);
      check(70, 40, 1, false);
      check(300, 72, 1);
      check(64, 32, 1, true, 1);  // the residual alone is not aligned
      check(3, 5, 7);
      check(2, 3, 49);
      check(9, 1, 57);
      check(4, 2, 64, false);
      check(2, 3, 256, true, 1);
      check(3, 1, 8201);
    }
    check_residual({4300, 64, 1, 1e-5, 0.1, training}, DType::f16, DType::f32, true, 0);  // several rounds of each thread
  }
}

TEST_CASE("batch normalisation of rows, short and long channels") {
  for (bool training : {true, false}) {
    for (const auto& [t, parameters] :
         {std::pair{DType::f32, DType::f32}, {DType::f16, DType::f32}, {DType::bf16, DType::bf16}, {DType::f64, DType::f64}}) {
      const auto check = [=, t = t, parameters = parameters](int64_t batch, int64_t channels, int64_t inner, bool given = true,
                                                             int64_t shift = 0) {
        check_batch_norm({batch, channels, inner, 1e-5, 0.1, training}, t, parameters, given, shift);
      };
      for (int64_t channels : {1, 7, 8, 33, 264}) check(9, channels, 1);
      check(300, 40, 1, false);
      check(500, 72, 1);
      check(3, 5, 7);
      check(2, 3, 49);
      check(4, 2, 64, false);
      check(2, 3, 256, true, 1);
      check(3, 2, 4104);
    }
  }
}

TEST_CASE("batch normalisation of channels that are no whole packs: 7 x 7, 14 x 14, and where packs end in the second channel") {
  for (bool training : {true, false}) {
    for (const auto& [t, parameters] : {std::pair{DType::f32, DType::f32}, {DType::f16, DType::f32}, {DType::bf16, DType::bf16}}) {
      for (int64_t inner : {9, 49, 196}) check_batch_norm({3, 5, inner, 1e-5, 0.1, training}, t, parameters);
    }
    check_batch_norm({9, 1, 57, 1e-5, 0.1, training}, DType::f16, DType::f32, false);
    check_batch_norm({2, 3, 49, 1e-5, 0.1, training}, DType::f16, DType::f32, true, 1);
    check_batch_norm({3, 1, 8201, 1e-5, 0.1, training}, DType::f16, DType::f32);  // several segments for the sums
  }
}

TEST_CASE("batch normalisation of so many channels that their packs are summed in two parts") {
  check_batch_norm({1, 16384 + 3, 9, 1e-5, 0.1, true}, DType::f16, DType::f32);
}

TEST_CASE("batch normalisation of more rows than threads take at once, in more segments than there are octets in a block") {
  for (bool training : {true, false}) check_batch_norm({4300, 64, 1, 1e-5, 0.1, training}, DType::f16, DType::f32);
}

TEST_CASE("more channels than are summed at once") {
  check_batch_norm({3, 16384 + 40, 1, 1e-5, 0.1, true}, DType::f32, DType::f32);
}
