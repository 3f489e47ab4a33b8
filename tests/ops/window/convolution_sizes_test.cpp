// SPDX-License-Identifier: Apache-2.0
// Convolutions of sizes that no library counts, on the device meta, which plans them as the CPU would run them.
#include "framework/ops/window/convolution.h"

#include <doctest/doctest.h>

#include "halfstep.h"

using namespace halfstep;

TEST_CASE("convolutions refuse sizes beyond those that libraries count, and plan all others") {
  constexpr int64_t kMost = int64_t(1) << 30;
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32, DType::f64}) {
    CAPTURE(dtype);
    const auto t = [&](const Shape& shape) { return empty(shape, {.dtype = dtype, .device = Device::meta}); };
    const auto all = [&](int64_t n, const auto& check) {
      CAPTURE(n);
      check([&] { conv1d(t({1, n, 2}), t({1, n, 1})); });
      check([&] { conv2d(t({1, 1, 2, 2}), t({n, 1, 1, 1})); });
      check([&] { conv3d(t({1, 1, 1, 1, n}), t({1, 1, 1, 1, 1})); });
      check([&] { conv2d(t({n, 1, 1, 1}), t({1, 1, 1, 1})); });
      check([&] { conv2d(t({1, n, 1, 1}), t({n, 1, 1, 1}), {}, {.groups = n}); });
      check([&] { conv_transpose1d(t({1, n, 2}), t({n, 1, 1})); });
      check([&] { conv_transpose2d(t({1, 1, 1, 1}), t({1, n, 1, 1})); });
      check([&] { conv_backward_weight(t({1, n, 1}), t({1, 2, 1}), {1}); });
    };
    for (const int64_t n : {kMost + 1, (int64_t(1) << 31) - 1, int64_t(1) << 31, int64_t(1) << 32, (int64_t(1) << 32) + 16})
      all(n, [](const auto& f) { CHECK_THROWS_AS(f(), ShapeError); });
    for (const int64_t n : {kMost, kMost - 1, kMost / 2 + 1}) all(n, [](const auto& f) { CHECK_NOTHROW(f()); });
    // The sizes fit, and their products do not.
    CHECK_NOTHROW(conv2d(t({1, 1 << 20, 1, 1}), t({1 << 20, 1 << 20, 1, 1})));
    CHECK_NOTHROW(conv2d(t({1, 1 << 16, 300, 300}), t({8, 1 << 16, 3, 3})));
    CHECK_THROWS_AS(conv_transpose1d(t({1, 1, kMost}), t({1, 1, 1}), {}, {.stride = 2}), ShapeError);
    const Tensor x = t({1, kMost, 1, 1}).set_requires_grad(), w = t({2, kMost, 1, 1}).set_requires_grad();
    CHECK_NOTHROW(conv2d(x, w).backward(t({1, 2, 1, 1})));
  }
}
