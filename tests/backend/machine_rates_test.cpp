// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/machine_rates.h"

#include <doctest/doctest.h>

#include "framework/base/check.h"

using namespace halfstep;

TEST_CASE("rates of a machine are measured once, and grow with the work") {
  MachineRates rates(Device::cpu);
  const double small = rates.product_seconds(DType::f32, 64, 64, 64);
  CHECK(small > 0);
  CHECK(rates.product_seconds(DType::f32, 64, 64, 64) == small);
  CHECK(rates.product_seconds(DType::f32, 64, 64, 64, 3) == 3 * small);
  CHECK(rates.product_seconds(DType::f32, 512, 512, 512) > 8 * small);  // 512 times the operations
  // A product of minutes is known after a part of its rows.
  CHECK(rates.product_seconds(DType::bf16, 1 << 22, 1024, 1024) > 1000 * small);
  CHECK(rates.product_seconds(DType::f16, 0, 8, 8) == 0);
  CHECK(rates.bytes_per_second() == rates.bytes_per_second());
  CHECK(rates.bytes_per_second() > 1e8);
  CHECK_THROWS_AS(rates.product_seconds(DType::i64, 8, 8, 8), DTypeError);
  CHECK_THROWS_AS(rates.product_seconds(DType::f32, -8, 8, 8), ValueError);
}
