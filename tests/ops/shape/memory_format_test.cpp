// SPDX-License-Identifier: Apache-2.0
// Tensors in channels_last: the format of results, and what may lie in it.
#include <doctest/doctest.h>

#include "halfstep.h"

using namespace halfstep;

namespace {

constexpr MemoryFormat kLast = MemoryFormat::channels_last, kRows = MemoryFormat::contiguous;

Tensor image(const Shape& shape) { return randn(shape).to(kLast); }

}  // namespace

TEST_CASE("a format is in the strides, and the shape stays") {
  const Tensor x = arange(2 * 3 * 2 * 2).reshape({2, 3, 2, 2}), y = x.to(kLast);
  CHECK(y.shape() == x.shape());
  CHECK(y.strides() == Strides{12, 1, 6, 3});
  CHECK(y.is_contiguous(kLast));
  CHECK_FALSE(y.is_contiguous());
  CHECK(y.format() == kLast);
  CHECK(x.format() == kRows);
  CHECK(y.to_vector<double>() == x.to_vector<double>());
  CHECK(y.to(kLast).same(y));
  CHECK(y.contiguous().is_contiguous());
  CHECK(y.contiguous().to_vector<double>() == x.to_vector<double>());
  CHECK(y.permute({0, 2, 3, 1}).is_contiguous());  // a view of rows of pixels
  CHECK(Tensor::empty({1, 2, 3, 4, 5}, {.format = kLast}).strides() == Strides{120, 1, 40, 10, 2});
}

TEST_CASE("what lies in both formats counts as contiguous, and is in both") {
  for (const Shape& shape : {Shape{4, 1, 5, 6}, Shape{4, 3, 1, 1}, Shape{0, 3, 2, 2}}) {
    CAPTURE(shape);
    const Tensor x = zeros(shape);
    CHECK(x.is_contiguous(kLast));
    CHECK(x.to(kLast).same(x));
    CHECK(x.format() == kRows);
  }
  // The channels of a slice of pixels do not lie in either.
  const Tensor part = image({2, 3, 4, 4}).narrow(3, 0, 2);
  CHECK_FALSE(part.is_contiguous(kLast));
  CHECK(part.format() == kRows);
}

TEST_CASE("only images and volumes have channels behind their pixels") {
  CHECK_THROWS_WITH_AS(zeros({2, 3, 4}).to(kLast),
                       "[clone] channels_last is a format of tensors [N, C, H, W] or [N, C, D, H, W], got [2, 3, 4]", ShapeError);
}

TEST_CASE("results of ops on images keep their format, and so do gradients") {
  const Tensor x = image({2, 4, 6, 6}).set_requires_grad(), w = image({8, 4, 3, 3}).set_requires_grad();
  const Tensor mean = zeros({8}), var = ones({8});
  Tensor y = conv2d(x, w, zeros({8}), {.padding = 1});
  CHECK(y.format() == kLast);
  y = batch_norm(y, mean, var, ones({8}), zeros({8}), true, 0.1, 1e-5);
  CHECK(y.format() == kLast);
  y = max_pool2d(relu(y), 2, {});
  CHECK(y.format() == kLast);
  y = interpolate(y, {.size = {4, 4}, .mode = "bilinear"}) * y.mean({2, 3}, true) + 1.0;
  CHECK(y.format() == kLast);
  y = dropout(y.to(DType::bf16), 0.5, true);
  CHECK(y.format() == kLast);
  y = group_norm(y, 2, {}, {});
  CHECK(y.format() == kLast);
  avg_pool2d(y, 2, {}).to(DType::f32).sum().backward();
  CHECK(x.grad().format() == kLast);
  CHECK(w.grad().format() == kLast);
}

TEST_CASE("a gradient lies as its parameter does, wherever it came from") {
  const Tensor w = randn({3, 4, 2, 2}).set_requires_grad();
  w.grad();
  (w * image({3, 4, 2, 2})).sum().backward();
  CHECK(w.grad().format() == kRows);
  const Tensor v = image({3, 4, 2, 2}).set_requires_grad();
  (v * randn({3, 4, 2, 2})).sum().backward();
  CHECK(v.grad().format() == kLast);
  (v.contiguous() * 2.0).sum().backward();
  CHECK(v.grad().format() == kLast);
}

TEST_CASE("of two formats the first operand of the result's shape decides") {
  const Tensor rows = randn({2, 3, 4, 4}), last = image({2, 3, 4, 4}), row = randn({1, 3, 1, 1});
  CHECK((rows + last).format() == kRows);
  CHECK((last + rows).format() == kLast);
  CHECK((row + last).format() == kLast);
  CHECK((last + rows).to_vector<double>() == (rows + last).to_vector<double>());
  CHECK(where(last > 0.0, last, rows).format() == kLast);
  CHECK(last.add_(rows).format() == kLast);
}

TEST_CASE("a convolution works in channels_last where its input or its weight lies so") {
  const Tensor x = randn({2, 4, 5, 5}), w = randn({6, 4, 3, 3});
  const Tensor want = conv2d(x, w);
  for (const auto& [a, b] : {std::pair{x.to(kLast), w}, {x, w.to(kLast)}, {x.to(kLast), w.to(kLast)}}) {
    const Tensor y = conv2d(a, b);
    CHECK(y.format() == kLast);
    CHECK(allclose(y, want, 1e-5, 1e-5));
  }
}

TEST_CASE("random numbers belong to elements, not to places in memory") {
  const Tensor x = ones({2, 3, 5, 5});
  manual_seed(5);
  const Tensor a = dropout(x, 0.5, true);
  manual_seed(5);
  CHECK(dropout(x.to(kLast), 0.5, true).to_vector<double>() == a.to_vector<double>());
  const Tensor y = zeros({2, 3, 5, 5}).to(kLast), z = zeros({2, 3, 5, 5});
  manual_seed(5);
  uniform_(y, 0, 1);
  manual_seed(5);
  uniform_(z, 0, 1);
  CHECK(y.to_vector<double>() == z.to_vector<double>());
}
