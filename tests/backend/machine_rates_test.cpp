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
  // Copies of any size: as measured at powers of four, in between by a line, beyond by the largest one's rate.
  CHECK(rates.copy_seconds(0) == 0);
  CHECK(rates.copy_seconds(1) == rates.copy_seconds(4096));
  CHECK(rates.copy_seconds(1e8) > 10 * rates.copy_seconds(4096));
  CHECK(rates.copy_seconds(4e9) == doctest::Approx(4e9 / rates.bytes_per_second()));
  const double low = rates.copy_seconds(1 << 16), high = rates.copy_seconds(1 << 18);
  CHECK(rates.copy_seconds((1 << 16) + (1 << 17)) == doctest::Approx(low + (high - low) * 2 / 3));
  LoggedCall call;
  call.bytes_read = 3 << 16, call.bytes_written = 1 << 16;
  CHECK(rates.floor_seconds(call) == high);
  call.casts = {{DType::f32, DType::bf16, 1 << 15, false}, {DType::f32, DType::bf16, 1 << 15, true}};  // 3 << 16 of the bytes
  CHECK(rates.floor_seconds(call) == low);
  call.products = {{.dtype = DType::f32, .batch = 9, .m = 512, .n = 512, .k = 512}};
  CHECK(rates.floor_seconds(call) == 9 * rates.product_seconds(DType::f32, 512, 512, 512));
  // Products that share a kernel have the rate of a large one, however thin they are.
  const double large = rates.product_seconds(DType::f32, 2048, 2048, 2048);
  call.products = {{.dtype = DType::f32, .fused = true, .batch = 64, .m = 2048, .n = 2048, .k = 16}};
  CHECK(rates.floor_seconds(call) == doctest::Approx(large / 2));
  CHECK_THROWS_AS(rates.product_seconds(DType::i64, 8, 8, 8), DTypeError);
  CHECK_THROWS_AS(rates.product_seconds(DType::f32, -8, 8, 8), ValueError);
}
