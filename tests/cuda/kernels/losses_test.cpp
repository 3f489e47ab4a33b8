// SPDX-License-Identifier: Apache-2.0
// Cross entropy and the mean squared error against the CPU backend.
#include "device.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

// Checks that a gradient with rows of whole packs has the bits of `dx`, also of one pass, and that nothing is written behind them.
void check_pitched_gradient(const CrossEntropyArgs& args, DType t, const TensorView& g, const TensorView& lse,
                            const TensorView& total, const Buffer& dx) {
  const int64_t rows = args.logits.shape[0], classes = args.logits.shape[1], pitch = (classes + 8) / 8 * 8;
  const DType to = t == DType::f64 ? DType::f64 : DType::f32;
  const Buffer longer = pitched(t, rows, classes, pitch, 7), once = pitched(t, rows, classes, pitch, 7),
               before = pitched(t, rows, classes, pitch, 7);
  const OnDevice dev_longer(longer), dev_once(once), dev_loss(poisoned(to, {}));
  cuda::cross_entropy_backward(queue(), args, g, lse, total, dev_longer);
  cuda::cross_entropy(queue(), args, dev_loss, lse, total, {g, dev_once});
  dev_longer.fetch();
  dev_once.fetch();
  const bool reordered = t == DType::f64 && args.weight;
  check_close(longer, dx, 0, 0, "gradient with longer rows");
  check_close(once, dx, reordered ? 8 : 0, reordered ? 1e-14 : 0, "gradient with longer rows in one pass");
  bool untouched = true;
  for (Buffer b : {longer, once}) {
    Buffer first = before;
    for (Buffer* all : {&b, &first}) all->view.shape[1] = pitch;
    for (int64_t i = 0; i + pitch - classes < rows * pitch; ++i)
      if (i % pitch >= classes) untouched = untouched && b[i] == first[i];
  }
  CHECK(untouched);
}

// bad: some targets out of range; they count as ignored ones.
void check_cross_entropy(DType t, int64_t rows, int64_t classes, Reduction reduction, bool weighted, double smoothing,
                         int64_t shift = 1, int64_t pitch = 0, bool bad = false) {
  const DType to = t == DType::f64 ? DType::f64 : DType::f32;
  const Shape each = reduction == Reduction::none ? Shape{rows} : Shape{};
  const Buffer x = pitched(t, rows, classes, pitch ? pitch : classes, 1, -5, 5), target = make(DType::i64, {rows}),
               bad_target = make(DType::i64, {rows}), w = uniform(to, {classes}, 2, 0.5, 2);
  const double out_of_range[] = {-1, double(classes), 1e15, -1e15};
  for (int64_t r = 0; r < rows; ++r) {
    set(target.view, r, r % 5 == 4 || (bad && r % 3 == 0) ? -100 : double(r * 7 % classes));
    set(bad_target.view, r, bad && r % 3 == 0 ? out_of_range[r / 3 % 4] : target[r]);
  }
  const Buffer g = uniform(to, each, 3, 0.5, 2);
  const Buffer loss = poisoned(to, each), lse = poisoned(to, {rows}), total = poisoned(to, {}), dx = poisoned(t, {rows, classes});
  const Buffer want_loss = make(to, each), want_lse = make(to, {rows}), want_total = make(to, {}),
               want_dx = make(t, {rows, classes});
  const OnDevice dev_x(x, shift), dev_target(bad_target), dev_w(w), dev_g(g), dev_loss(loss), dev_lse(lse), dev_total(total),
      dev_dx(dx);
  const auto arguments = [&](const TensorView& logits, const TensorView& targets, const TensorView& weight) {
    return CrossEntropyArgs{logits, targets, weighted ? weight : TensorView{}, -100, smoothing, reduction};
  };
  const CrossEntropyArgs on_cpu = arguments(x, target, w), on_device = arguments(dev_x, dev_target, dev_w);
  cpu().cross_entropy(on_cpu, want_loss, want_lse, want_total, {});
  cpu().cross_entropy_backward(on_cpu, g, want_lse, want_total, want_dx);
  cuda::cross_entropy(queue(), on_device, dev_loss, dev_lse, dev_total, {});
  cuda::cross_entropy_backward(queue(), on_device, dev_g, dev_lse, dev_total, dev_dx);
  dev_loss.fetch();
  dev_lse.fetch();
  dev_total.fetch();
  dev_dx.fetch();
  check_close(loss, want_loss, 8, 2e-6, "loss");
  check_close(lse, want_lse, 4, 2e-6, "lse");
  check_close(total, want_total, 4, 0, "total");
  check_close(dx, want_dx, 4, 4e-6, "cross entropy backward");
  if (reduction == Reduction::none) return;
  check_pitched_gradient(on_device, t, dev_g, dev_lse, dev_total, dx);
  const Buffer once = poisoned(t, {rows, classes}), same = poisoned(to, {});
  const OnDevice dev_once(once), dev_same(same);
  cuda::cross_entropy(queue(), on_device, dev_same, dev_lse, dev_total, {dev_g, dev_once});
  dev_once.fetch();
  dev_same.fetch();
  const bool reordered = t == DType::f64 && weighted;  // sums of weights: else the same bits
  check_close(once, dx, reordered ? 8 : 0, reordered ? 1e-14 : 0, "gradient in one pass");
  CHECK(same.raw() == loss.raw());
}

}  // namespace

TEST_CASE("cross entropy, forward and backward") {
  for (DType t : kFloating) {
    for (Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum}) {
      for (int64_t classes : {1, 10, 33, 257, 1000}) check_cross_entropy(t, 9, classes, reduction, false, 0);
      check_cross_entropy(t, 33, 10, reduction, true, 0);
      check_cross_entropy(t, 33, 31, reduction, true, 0.1);
      check_cross_entropy(t, 7, 31, reduction, false, 0.1);
    }
  }
  check_cross_entropy(DType::f32, 1100, 3, Reduction::mean, false, 0);
  check_cross_entropy(DType::f32, 1, 300, Reduction::sum, true, 0.9);  // the sum of many weights matters
}

TEST_CASE("cross entropy of aligned rows, a warp or a block for each, and of targets out of range") {
  for (DType t : kStored) {
    for (int64_t classes : {16, 1000, 1024, 1032, 2056}) {
      for (double smoothing : {0.0, 0.1}) check_cross_entropy(t, 11, classes, Reduction::mean, smoothing != 0, smoothing, 0);
      check_cross_entropy(t, 13, classes, Reduction::sum, true, 0.1, 0, 0, true);
      check_cross_entropy(t, 13, classes, Reduction::none, false, 0, 1, 0, true);
      check_cross_entropy(t, 3, classes, Reduction::none, false, 0, 0, classes + 8);
      check_cross_entropy(t, 1, classes + 3, Reduction::mean, false, 0, 0);  // packs and a rest
    }
  }
}

TEST_CASE("cross entropy of rows of any length, which begin anywhere within a pack") {
  for (DType t : kStored) {
    for (int64_t classes : {127, 129, 134, 1001, 1027, 2063}) {
      check_cross_entropy(t, 17, classes, Reduction::mean, false, 0, 0);
      check_cross_entropy(t, 17, classes, Reduction::sum, true, 0.1, 0, 0, true);
      check_cross_entropy(t, 9, classes, Reduction::mean, false, 0, 0, classes + 8);
      check_cross_entropy(t, 9, classes, Reduction::mean, false, 0, 0, classes + 3);  // the gradient's rows begin elsewhere
      check_cross_entropy(t, 9, classes, Reduction::none, false, 0, 1);
    }
  }
}

TEST_CASE("cross entropy of rows that a block does not hold") {
  for (DType t : kStored) {
    for (int64_t classes : {8192, 8200, 20003}) check_cross_entropy(t, 2, classes, Reduction::sum, true, 0.1, 0);
  }
  check_cross_entropy(DType::f64, 2, 8200, Reduction::sum, true, 0.1, 0);
}

TEST_CASE("cross entropy of more rows than a launch has groups for") {
  check_cross_entropy(DType::f16, 9000, 8, Reduction::mean, false, 0, 0);     // more rows than warps
  check_cross_entropy(DType::f32, 1030, 1032, Reduction::mean, false, 0, 0);  // more rows than blocks
}

TEST_CASE("cross entropy joins its blocks in the launch that reads the logits, whatever the reduction") {
  const Buffer x = uniform(DType::f16, {9000, 8}, 1), target = make(DType::i64, {9000}), loss = poisoned(DType::f32, {}),
               each = poisoned(DType::f32, {9000}), lse = poisoned(DType::f32, {9000}), total = poisoned(DType::f32, {});
  const Buffer seed = make(DType::f32, {}, {2}), dx = poisoned(DType::f16, {9000, 8});
  const OnDevice dev_x(x), dev_target(target), dev_loss(loss), dev_each(each), dev_lse(lse), dev_total(total), dev_seed(seed),
      dev_dx(dx);
  for (Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum}) {
    const CrossEntropyArgs args{dev_x, dev_target, {}, -100, 0, reduction};
    const OnDevice& out = reduction == Reduction::none ? dev_each : dev_loss;
    CHECK(launches_of([&] { cuda::cross_entropy(queue(), args, out, dev_lse, dev_total, {}); }) == 1);
    if (reduction == Reduction::none) continue;
    const LossGradient gradient{dev_seed, dev_dx};
    CHECK(launches_of([&] { cuda::cross_entropy(queue(), args, out, dev_lse, dev_total, gradient); }) == 1);
  }
}

namespace {

void check_mse(const Buffer& a, const Buffer& b, Reduction reduction, int64_t shift) {
  const DType t = a.view.dtype, to = t == DType::f64 ? DType::f64 : DType::f32;
  const Shape& shape = a.view.shape;
  const Buffer g = make(to, {}, {3}), loss = poisoned(to, {}), d = poisoned(t, shape), want = make(to, {}), want_d = make(t, shape);
  const OnDevice dev_a(a, shift), dev_b(b), dev_g(g), dev_loss(loss), dev_d(d);
  cpu().mse(a, b, reduction, want, {});
  cpu().mse_backward(a, b, g, reduction, -1, want_d);
  cuda::mse(queue(), dev_a, dev_b, reduction, dev_loss, {});
  cuda::mse_backward(queue(), dev_a, dev_b, dev_g, reduction, -1, dev_d);
  dev_loss.fetch();
  dev_d.fetch();
  check_close(loss, want, 8, 1e-6, "mse");
  check_close(d, want_d, 2, 0, "mse backward");
  // In one pass: the bits of two.
  const Buffer again = poisoned(want.view.dtype, {}), d_again = poisoned(want_d.view.dtype, want_d.view.shape),
               d_two = poisoned(want_d.view.dtype, want_d.view.shape);
  const OnDevice dev_again(again), dev_d_again(d_again, shift), dev_d_two(d_two, shift);
  cuda::mse(queue(), dev_a, dev_b, reduction, dev_again, {dev_g, dev_d_again});
  cuda::mse_backward(queue(), dev_a, dev_b, dev_g, reduction, 1, dev_d_two);
  dev_again.fetch();
  dev_d_again.fetch();
  dev_d_two.fetch();
  CHECK(again[0] == loss[0]);
  CHECK(d_again.values() == d_two.values());
}

}  // namespace

TEST_CASE("mean squared error, forward and backward") {
  for (DType t : kFloating) {
    for (DType of_target : {DType::f32, t, DType::f16}) {
      for (int64_t n : kSizes) {
        for (int64_t shift : {0, 1}) {
          check_mse(uniform(t, {n}, 1), uniform(of_target, {n}, 2), Reduction::mean, shift);
          check_mse(uniform(t, {n}, 1), uniform(of_target, {n}, 2), Reduction::sum, shift);
        }
      }
      check_mse(uniform(t, {9, 40}, 1, -2, 2, Layout::transposed), uniform(of_target, {9, 40}, 2), Reduction::mean, 0);
      check_mse(pitched(t, 9, 40, 48, 1), uniform(of_target, {9, 40}, 2), Reduction::mean, 0);
    }
  }
}

TEST_CASE("mean squared error of more packs than a launch has threads") {
  const int64_t many = 4 * 1024 * 256 + 4001;
  check_mse(uniform(DType::f32, {many}, 1), uniform(DType::f32, {many}, 2), Reduction::mean, 0);
}
