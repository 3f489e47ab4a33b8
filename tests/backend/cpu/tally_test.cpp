// SPDX-License-Identifier: Apache-2.0
#include "tests/backend/tally_cases.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

std::vector<int64_t> tallied(const TensorView& x, bool exponents) {
  std::vector<int64_t> row(exponents ? math::kTallyAll : math::kTallyCounts, -1);
  cpu().tally(x, exponents, TensorView{row.data(), DType::i64, {int64_t(row.size())}, {1}});
  return row;
}

}  // namespace

TEST_CASE("tally counts values of every kind and dtype, in any layout") {
  for (DType t : kFloating) {
    for (Layout layout : kLayouts) {
      for (const Shape& shape : {Shape{1, 1}, Shape{7, 9}, Shape{40, 333}}) {
        const Buffer x = odd_values(t, shape, 3, layout);
        for (const bool exponents : {false, true}) CHECK(tallied(x, exponents) == tally_of(x, exponents));
      }
    }
    const Buffer none = make(t, {0, 5}), zeros = make(t, {3}, {0, 0, 0});
    CHECK(tallied(none, true) == tally_of(none, true));
    CHECK(tallied(zeros, true) == tally_of(zeros, true));
  }
  const Buffer large = odd_values(DType::f16, {300, 2000}, 5, Layout::dense);  // on all threads
  CHECK(tallied(large, true) == tally_of(large, true));
}
