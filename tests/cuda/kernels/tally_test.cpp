// SPDX-License-Identifier: Apache-2.0
#include "device.h"
#include "tests/backend/tally_cases.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("tally counts as the CPU does") {
  for (DType t : kFloating) {
    for (Layout layout : kLayouts) {
      for (const Shape& shape : {Shape{1, 1}, Shape{7, 9}, Shape{40, 133}, Shape{0, 5}}) {
        const Buffer x = odd_values(t, shape, 3, layout);
        const OnDevice dev_x(x);
        for (const bool exponents : {false, true}) {
          const Buffer row = make(DType::i64, {exponents ? math::kTallyAll : math::kTallyCounts});
          const OnDevice dev_row(row);
          cuda::tally(queue(), dev_x, exponents, dev_row);
          dev_row.fetch();
          const int64_t* const got = row.view.as<int64_t>();
          CHECK(std::vector<int64_t>(got, got + row.numel()) == tally_of(x, exponents));
        }
      }
    }
  }
}
