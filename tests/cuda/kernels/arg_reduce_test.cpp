// SPDX-License-Identifier: Apache-2.0
// The first index of the extreme against the CPU backend.
#include <limits>

#include "device.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

void check_arg(bool largest, const Buffer& x, int dim, bool with_values = true, int64_t shift = 0) {
  Shape shape = x.view.shape;
  if (!shape.empty()) shape[dim] = 1;
  const Buffer values = poisoned(x.view.dtype, shape), indices = poisoned(DType::i64, shape);
  const Buffer want = make(x.view.dtype, shape), want_indices = make(DType::i64, shape);
  cpu().arg_reduce(largest, x, dim, want, want_indices);
  const OnDevice dev_x(x, shift), dev_values(values, shift), dev_indices(indices, shift);
  cuda::arg_reduce(queue(), largest, dev_x, dim, with_values ? dev_values.view : TensorView{}, dev_indices);
  dev_indices.fetch();
  CHECK(indices.values() == want_indices.values());
  if (!with_values) return;
  dev_values.fetch();
  check_close(values, want, 0, 0, "values");
}

}  // namespace

TEST_CASE("argmax and argmin of rows and columns, with ties") {
  for (DType t : kAll) {
    for (int64_t n : kSizes) {
      const bool largest = n % 2 == 0;
      check_arg(largest, uniform(t, {2, n}, 1, 0, 3), 1, true, 1);  // few distinct integers: the first of equals
      check_arg(!largest, uniform(t, {n, 3}, 2, 0, 100), 0, n > 100);
    }
  }
}

TEST_CASE("argmax of strided tensors, long columns and the middle dimension") {
  for (DType t : {DType::f32, DType::bf16, DType::f64, DType::i32}) {
    for (Layout layout : kLayouts) {
      for (int dim : {0, 1, 2}) check_arg(dim != 1, uniform(t, {4, 9, 33}, 3, 0, 5, layout), dim);
    }
    check_arg(true, uniform(t, {130, 4100}, 4), 0);
    check_arg(false, uniform(t, {1, 70}, 4), 0);
    check_arg(true, uniform(t, {11, 1500}, 6, 0, 99), 1);  // more long rows than a tiny device has blocks
    check_arg(true, uniform(t, {3, 700}, 7, 0, 99), 0);    // more short columns than it has threads
  }
  check_arg(true, uniform(DType::f32, {}, 1), 0);
  check_arg(true, make(DType::f32, {0, 5}), 1);
}

TEST_CASE("the first NaN is the extreme") {
  for (DType t : kFloating) {
    for (bool largest : {false, true}) {
      for (int64_t n : {5, 64, 3000}) {
        for (bool column : {false, true}) {
          const Buffer x = uniform(t, column ? Shape{n, 1} : Shape{1, n}, 5);
          set(x.view, n / 3, largest ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity());
          set(x.view, n / 2, std::nan(""));
          set(x.view, n - 1, std::nan(""));
          check_arg(largest, x, column ? 0 : 1);
        }
      }
    }
  }
}
