// SPDX-License-Identifier: Apache-2.0
#include "framework/base/check.h"

#include <doctest/doctest.h>

#include <sstream>

#include "framework/base/device.h"

using namespace halfstep;

TEST_CASE("a failed check says where, the rule, what came, and the cure") {
  check<ShapeError>(true, "op", "unused");
  CHECK_THROWS_WITH_AS(check<ShapeError>(false, "linear", "weight must be [out, ", 3, "], got ", 4),
                       "[linear] weight must be [out, 3], got 4", ShapeError);
  CHECK_THROWS_WITH_AS(fail<AmpError>("scaler", "step before unscale", Help{"call unscale"}),
                       "[scaler] step before unscale\nhelp: call unscale", AmpError);
  CHECK_THROWS_AS(fail<DataError>("data", "x"), Error);
  CHECK_THROWS_AS(fail<IoError>("io", "x"), std::runtime_error);
}

TEST_CASE("devices") {
  CHECK(parse_device("cpu") == Device::cpu);
  CHECK(parse_device("cuda") == Device::cuda);
  CHECK(parse_device("cuda:3") == Device{Device::Type::cuda, 3});
  for (const char* text : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:200", "cpu:0"}) {
    CHECK_THROWS_WITH_AS(
        parse_device(text),
        (std::string("[device] unknown device \"") + text + "\"\nhelp: use \"cpu\", \"cuda\", \"cuda:<index>\" or \"meta\"")
            .c_str(),
        DeviceError);
  }
  std::ostringstream out;
  out << Device::cpu << ' ' << Device{Device::Type::cuda, 2};
  CHECK(out.str() == "cpu cuda:2");
  CHECK(Device::cuda.is_cuda());
  CHECK_FALSE(Device::cuda.is_cpu());
}
