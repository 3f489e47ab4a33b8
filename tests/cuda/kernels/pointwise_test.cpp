// SPDX-License-Identifier: Apache-2.0
// The kernels of pointwise.def's rows against the CPU backend: every row and gradient, dense, mixed, repeated and strided.
#include "framework/math/pointwise.h"

#include "device.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

constexpr double kPointwiseUlps = 4,
                 // Both sides run the same functors; the device's own maths may differ in the last places.
                 kPointwiseSlack = 1e-5;
constexpr double kP = 0.6, kQ = 0.9;  // p, q: legal in every row

void check_row(int op, DType in_type, DType out_type, const Shape& shape, Layout layout, int64_t shift) {
  const PointwiseRow& row = kPointwiseRows[op];
  std::vector<Buffer> in;
  std::vector<TensorView> host, device;
  std::vector<std::unique_ptr<OnDevice>> held;
  const auto to_device = [&](const Buffer& b) {
    held.push_back(std::make_unique<OnDevice>(b, shift));
    return held.back()->view;
  };
  // Inside the domains of all: probabilities, variances, targets.
  for (int k = 0; k < row.arity; ++k)
    in.push_back(uniform(in_type, shape, 3 + unsigned(k), 0.05, 0.95, k == 1 ? layout : Layout::dense));
  for (const Buffer& b : in) {
    host.push_back(b);
    device.push_back(to_device(b));
  }
  const std::string what(row.op);
  const Buffer y = poisoned(out_type, shape), want = make(out_type, shape);
  cpu().pointwise(Pointwise(op), host, kP, kQ, want);
  const OnDevice dev_y(y, shift);
  cuda::pointwise(queue(), Pointwise(op), device, kP, kQ, dev_y);
  dev_y.fetch();
  check_close(y, want, kPointwiseUlps, kPointwiseSlack, what);

  const Buffer g = uniform(out_type, shape, 9);
  const TensorView dev_g = to_device(g);
  for (int input = 0; input < row.arity; ++input) {
    // A tensor that the gradient does not use is missing.
    std::vector<TensorView> host_named(host), device_named(device);
    for (int k = 0; k < row.arity; ++k)
      if (!(row.names[input] >> (k + 1) & 1)) host_named[size_t(k)] = device_named[size_t(k)] = TensorView{};
    const Buffer d = poisoned(in_type, shape), want_d = make(in_type, shape);
    cpu().pointwise_backward(Pointwise(op), input, g, host_named, kP, kQ, want_d);
    const OnDevice dev_d(d, shift);
    cuda::pointwise_backward(queue(), Pointwise(op), input, dev_g, device_named, kP, kQ, dev_d);
    dev_d.fetch();
    check_close(d, want_d, kPointwiseUlps, kPointwiseSlack, what + " backward");
  }
}

}  // namespace

TEST_CASE("pointwise kernels: every row, dense, misaligned and repeated, in every floating dtype") {
  for (int op = 0; op < kPointwiseCount; ++op) {
    for (DType t : kFloating) {
      check_row(op, t, t, {77}, Layout::dense, 0);
      check_row(op, t, t, {77}, Layout::dense, 1);
      check_row(op, t, t, {4, 33}, Layout::repeated, 0);
    }
    check_row(op, DType::f16, DType::f32, {77}, Layout::dense, 0);  // a loss in a region
  }
}

TEST_CASE("pointwise kernels at the sizes where loops end") {
  for (DType t : kStored) {
    for (int64_t n : kSizes) check_row(int(Pointwise::huber_loss), t, t, {n}, Layout::dense, 0);
    for (Layout layout : kLayouts) check_row(int(Pointwise::lerp), t, t, {4, 9, 33}, layout, 0);
    check_row(int(Pointwise::prelu), t, t, {}, Layout::dense, 0);
    check_row(int(Pointwise::prelu), t, t, {0, 3}, Layout::dense, 0);
    const int64_t packs = 4 * 2048;  // as many as a launch has threads on four multiprocessors
    check_row(int(Pointwise::leaky_relu), t, t, {packs * 8 + 1003}, Layout::dense, 0);
  }
}

TEST_CASE("pointwise kernels read one element for all, and integers") {
  const Buffer x = uniform(DType::f32, {100}, 1);
  Buffer g = uniform(DType::f32, {100}, 2);
  g.view.strides[0] = 0;
  const Buffer d = poisoned(DType::f32, {100}), want = make(DType::f32, {100});
  const TensorView in[] = {x};
  cpu().pointwise_backward(Pointwise::elu, 0, g, in, 1, 0, want);
  const OnDevice dev_x(x), dev_g(g), dev_d(d);
  const TensorView dev_in[] = {dev_x};
  cuda::pointwise_backward(queue(), Pointwise::elu, 0, dev_g, dev_in, 1, 0, dev_d);
  dev_d.fetch();
  check_close(d, want, kPointwiseUlps, kPointwiseSlack, "elu backward of one gradient");

  const Buffer target = make(DType::i64, {4}, {1, -1, 1, -1}), a = make(DType::f32, {4}, {0.5, 0.25, -2, 3}),
               y = poisoned(DType::f32, {4});
  const OnDevice dev_target(target), dev_a(a), dev_y(y);
  const TensorView pair[] = {dev_a, dev_target};
  cuda::pointwise(queue(), Pointwise::hinge_embedding_loss, pair, 1, 0, dev_y);
  dev_y.fetch();
  CHECK(y.values() == std::vector<double>{0.5, 0.75, -2, 0});
}
