// SPDX-License-Identifier: Apache-2.0
// Regions in dtypes that cannot be: a warning, and the region is off.
#include <doctest/doctest.h>

#include <string>

#include "amp/autocast/autocast.h"
#include "framework/base/log.h"

using namespace halfstep;

namespace {

int warnings = 0;
std::string last_warning;
void count_warning(logging::Level level, std::string_view text) {
  warnings += level == logging::Level::warn;
  last_warning = text;
}

}  // namespace

TEST_CASE("amp 36: an enabled region in an unsupported dtype warns and is disabled; a disabled one is silent") {
  const logging::Capture capture(&count_warning);
  for (Device device : {Device::cpu, Device::cuda}) {
    const DType before = autocast::dtype(device.type);
    for (DType dtype : {DType::f32, DType::f64, DType::i64}) {
      CAPTURE(dtype);
      warnings = 0;
      {
        const Autocast region(device, dtype);
        CHECK(!autocast::is_enabled(device.type));
      }
      CHECK(warnings == 1);
      {
        const Autocast region(device, dtype, /*enabled=*/false);
        CHECK(!autocast::is_enabled(device.type));
      }
      CHECK(warnings == 1);
    }
    CHECK(autocast::dtype(device.type) == before);
  }
  const Tensor x = Tensor::empty({2, 2});
  x.fill_(1);
  const Autocast region(Device::cpu, DType::f32);
  CHECK(last_warning == "[autocast] cpu regions run in float16 or bfloat16, not float32: this region is disabled");
  CHECK(x.mm(x).dtype() == DType::f32);
}
