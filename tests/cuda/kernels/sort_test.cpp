// SPDX-License-Identifier: Apache-2.0
// Sorting against the CPU backend: the same order, ties included.
#include <limits>

#include "device.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

void check_sort(const Buffer& x, int dim, bool descending, int64_t k, int64_t shift = 0) {
  Shape shape = x.view.shape;
  if (!shape.empty()) shape[dim] = k;
  const DType t = x.view.dtype;
  const Buffer values = poisoned(t, shape), indices = poisoned(DType::i64, shape), want = make(t, shape);
  const Buffer want_indices = make(DType::i64, shape);
  cpu().sort(x, dim, descending, k, want, want_indices);
  const OnDevice dev_x(x, shift), dev_values(values, shift), dev_indices(indices);
  cuda::sort(queue(), dev_x, dim, descending, k, dev_values, dev_indices);
  dev_values.fetch();
  dev_indices.fetch();
  CHECK(indices.values() == want_indices.values());
  check_close(values, want, 0, 0, "values");
}

}  // namespace

TEST_CASE("sorting rows and columns of every dtype, with ties") {
  for (DType t : kAll) {
    for (int64_t n : {1, 2, 31, 33, 257, 1025, 2049}) {
      check_sort(uniform(t, {3, n}, 1, 0, 20), 1, n % 2 == 0, n, 1);
      check_sort(uniform(t, {n, 2}, 2, 0, 100), 0, n % 2 == 1, (n + 1) / 2);
    }
  }
}

TEST_CASE("sorting long rows, strided tensors and the middle dimension") {
  check_sort(uniform(DType::f32, {2, 9000}, 3), 1, false, 9000);
  check_sort(uniform(DType::i64, {1, 5000}, 3, -50, 50), 1, true, 7);
  for (Layout layout : kLayouts) {
    for (int dim : {0, 1, 2}) check_sort(uniform(DType::bf16, {4, 9, 33}, 4, 0, 5, layout), dim, dim == 1, 4);
  }
  check_sort(uniform(DType::f32, {}, 1), 0, false, 1);
  check_sort(make(DType::f32, {0, 5}), 1, false, 3);
}

TEST_CASE("NaN is the largest, zeros of both signs are equal") {
  for (DType t : kFloating) {
    for (bool descending : {false, true}) {
      const Buffer x = uniform(t, {1, 70}, 5);
      for (int64_t i : {3, 40}) set(x.view, i, std::nan(""));
      set(x.view, 50, std::copysign(std::nan(""), -1.0));
      for (int64_t i : {5, 20, 60}) set(x.view, i, i == 20 ? -0.0 : 0.0);
      set(x.view, 9, std::numeric_limits<double>::infinity());
      set(x.view, 8, -std::numeric_limits<double>::infinity());
      check_sort(x, 1, descending, 70);
      check_sort(x, 1, descending, 3);
    }
  }
}
