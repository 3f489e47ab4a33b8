// Cross entropy and the mean squared error against the CPU backend.
#include "device.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

void check_cross_entropy(DType t, int64_t rows, int64_t classes, Reduction reduction, bool weighted, double smoothing) {
  const DType to = t == DType::f64 ? DType::f64 : DType::f32;
  const Shape each = reduction == Reduction::none ? Shape{rows} : Shape{};
  const Buffer x = uniform(t, {rows, classes}, 1, -5, 5), target = make(DType::i64, {rows}),
               w = uniform(DType::f32, {classes}, 2, 0.5, 2);
  for (int64_t r = 0; r < rows; ++r) set(target.view, r, r % 5 == 4 ? -100 : double(r * 7 % classes));
  const Buffer g = uniform(to, each, 3, 0.5, 2);
  const Buffer loss = poisoned(to, each), lse = poisoned(to, {rows}), total = poisoned(to, {}), dx = poisoned(t, {rows, classes});
  const Buffer want_loss = make(to, each), want_lse = make(to, {rows}), want_total = make(to, {}),
               want_dx = make(t, {rows, classes});
  const OnDevice dev_x(x, 1), dev_target(target), dev_w(w), dev_g(g), dev_loss(loss), dev_lse(lse), dev_total(total), dev_dx(dx);
  const auto arguments = [&](const TensorView& logits, const TensorView& targets, const TensorView& weight) {
    return CrossEntropyArgs{logits, targets, weighted ? weight : TensorView{}, -100, smoothing, reduction};
  };
  const CrossEntropyArgs on_cpu = arguments(x, target, w), on_device = arguments(dev_x, dev_target, dev_w);
  cpu().cross_entropy(on_cpu, want_loss, want_lse, want_total);
  cpu().cross_entropy_backward(on_cpu, g, want_lse, want_total, want_dx);
  cuda::cross_entropy(queue(), on_device, dev_loss, dev_lse, dev_total);
  cuda::cross_entropy_backward(queue(), on_device, dev_g, dev_lse, dev_total, dev_dx);
  dev_loss.fetch();
  dev_lse.fetch();
  dev_total.fetch();
  dev_dx.fetch();
  check_close(loss, want_loss, 8, 2e-6, "loss");
  check_close(lse, want_lse, 4, 2e-6, "lse");
  check_close(total, want_total, 4, 0, "total");
  check_close(dx, want_dx, 4, 4e-6, "cross entropy backward");
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
  check_cross_entropy(DType::f32, 1100, 3, Reduction::mean, false, 0);  // more rows than blocks
}

TEST_CASE("mean squared error, forward and backward") {
  for (DType t : kFloating) {
    for (int64_t n : kSizes) {
      for (Reduction reduction : {Reduction::mean, Reduction::sum}) {
        const DType to = t == DType::f64 ? DType::f64 : DType::f32;
        const Buffer a = uniform(t, {n}, 1), b = uniform(DType::f32, {n}, 2), g = make(to, {}, {3});
        const Buffer loss = poisoned(to, {}), d = poisoned(t, {n}), want = make(to, {}), want_d = make(t, {n});
        const OnDevice dev_a(a, 1), dev_b(b), dev_g(g), dev_loss(loss), dev_d(d);
        cpu().mse(a, b, reduction, want);
        cpu().mse_backward(a, b, g, reduction, -1, want_d);
        cuda::mse(queue(), dev_a, dev_b, reduction, dev_loss);
        cuda::mse_backward(queue(), dev_a, dev_b, dev_g, reduction, -1, dev_d);
        dev_loss.fetch();
        dev_d.fetch();
        check_close(loss, want, 8, 1e-6, "mse");
        check_close(d, want_d, 2, 0, "mse backward");
      }
    }
  }
}
