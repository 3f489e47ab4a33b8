// SPDX-License-Identifier: Apache-2.0
// Running sums and products against the CPU backend.
#include "device.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

void check_scan(Scan op, const Buffer& x, int dim, bool reverse = false, std::optional<DType> to = {}, int64_t shift = 0) {
  const DType t = to.value_or(is_floating(x.view.dtype) ? x.view.dtype : DType::i64);
  const Buffer y = poisoned(t, x.view.shape), want = make(t, x.view.shape);
  cpu().scan(op, x, dim, reverse, want);
  const OnDevice dev_x(x, shift), dev_y(y, shift);
  cuda::scan(queue(), op, dev_x, dim, reverse, dev_y);
  dev_y.fetch();
  check_close(y, want, 4, t == DType::f64 ? 1e-10 : 1e-4, "scan");
}

}  // namespace

TEST_CASE("running sums of rows and columns, both ways") {
  for (DType t : {DType::f32, DType::bf16, DType::f64, DType::i32, DType::boolean}) {
    for (int64_t n : kSizes) {
      check_scan(Scan::sum, uniform(t, {2, n}, 1, 0, 2), 1, n % 2 == 0, {}, 1);
      check_scan(Scan::sum, uniform(t, {n, 3}, 2, 0, 2), 0, n % 2 == 1);
    }
  }
  check_scan(Scan::sum, uniform(DType::f16, {3, 40}, 1), 1, false, DType::f32);
  check_scan(Scan::sum, uniform(DType::i32, {3, 40}, 1, -9, 9), 1, false, DType::f32);
}

TEST_CASE("running products") {
  for (DType t : kFloating) {
    check_scan(Scan::prod, uniform(t, {3, 2050}, 1, 0.99, 1.01), 1);
    check_scan(Scan::prod, uniform(t, {130, 4100}, 1, 0.9, 1.1), 0, true);
  }
  check_scan(Scan::prod, uniform(DType::i64, {3, 60}, 1, -3, 3), 1);
  check_scan(Scan::prod, uniform(DType::i64, {3, 3000}, 1, -1, 2), 1);
  check_scan(Scan::prod, uniform(DType::i64, {60, 40}, 1, -1, 2), 0);
}

TEST_CASE("running sums of strided tensors, the middle dimension and rows of several segments") {
  for (Layout layout : kLayouts) {
    for (int dim : {0, 1, 2}) check_scan(Scan::sum, uniform(DType::f32, {4, 9, 33}, 3, -2, 2, layout), dim, dim == 1);
  }
  check_scan(Scan::sum, uniform(DType::f32, {2, 50000}, 4, -1, 1), 1);
  check_scan(Scan::sum, uniform(DType::i64, {33000, 1}, 4, -9, 9), 0, true);
  check_scan(Scan::sum, uniform(DType::f32, {}, 4), 0);
  check_scan(Scan::sum, make(DType::f32, {0, 3}), 0);
}
