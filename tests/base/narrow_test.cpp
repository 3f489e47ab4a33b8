// SPDX-License-Identifier: Apache-2.0
#include "framework/base/narrow.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "framework/base/check.h"
#include "framework/base/exact_text.h"
#include "framework/base/number_text.h"

using namespace halfstep;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("number_as: integers take the whole part of numbers in their range, and nothing else") {
  CHECK(number_as<int8_t>(127.9, "x") == 127);
  CHECK(number_as<int8_t>(-128.0, "x") == -128);
  CHECK(number_as<uint8_t>(-0.0, "x") == 0);
  CHECK(number_as<uint64_t>(0x1.8p63, "x") == uint64_t(3) << 62);
  CHECK(number_as<int64_t>(-0x1p63, "x") == INT64_MIN);
  CHECK(number_as<uint32_t>(int64_t(4294967295), "x") == 4294967295u);
  CHECK(number_as<uint64_t>(INT64_MAX, "x") == uint64_t(INT64_MAX));
  CHECK(number_as<int64_t>(INT64_MIN, "x") == INT64_MIN);
  for (const double v : {128.0, -128.5, 1e300, kNan, kInf, -kInf}) CHECK_THROWS_AS(number_as<int8_t>(v, "x"), ValueError);
  for (const double v : {-0.5, -1.0, 65536.0}) CHECK_THROWS_AS(number_as<uint16_t>(v, "x"), ValueError);
  for (const double v : {0x1p63, -0x1.0000000000001p63, kNan}) CHECK_THROWS_AS(number_as<int64_t>(v, "x"), ValueError);
  CHECK_THROWS_AS(number_as<uint64_t>(0x1p64, "x"), ValueError);
  for (const int64_t v : {int64_t(-1), int64_t(1) << 32}) CHECK_THROWS_AS(number_as<uint32_t>(v, "x"), ValueError);
  CHECK_THROWS_AS(number_as<uint64_t>(int64_t(-1), "x"), ValueError);
  CHECK_THROWS_WITH_AS(number_as<int32_t>(int64_t(1) << 40, "item"),
                       "[item] the number does not fit int32, got 1099511627776\n"
                       "help: read it as double or int64_t, as in item<double>()",
                       ValueError);
}

TEST_CASE("number_as: bool and floating types take every number") {
  CHECK(number_as<bool>(kNan, "x"));
  CHECK(number_as<bool>(int64_t(256), "x"));
  CHECK(std::isinf(number_as<float>(1e300, "x")));
  CHECK(std::isnan(number_as<double>(kNan, "x")));
}

TEST_CASE("fits: the numbers that PyTorch 2.15 writes into each dtype") {
  struct Row {
    DType dtype;
    std::vector<Number> fit, do_not;
  };
  const Row rows[] = {
      {DType::u8, {0, 255, -1, -255, 255.7, true}, {256, -256, 256.0, -1.0, -0.5, kNan, kInf}},
      {DType::i8, {127, -128, 127.5}, {128, -129, -128.5, 128.0, kNan}},
      {DType::i16, {32767, -32768}, {32768, -32769.0}},
      {DType::i32, {2147483647, 2147483647.5, INT32_MIN}, {int64_t(1) << 31, -2147483648.5, 1e10, -kInf}},
      {DType::i64, {INT64_MAX, INT64_MIN, -0x1p63}, {0x1p63, 1e19, uint64_t(1) << 63, kNan}},
      {DType::f16, {65504, -65504.0, kInf, kNan, 1e-30}, {65520, -1e9, 1e300}},
      {DType::bf16, {3.3e38, -kInf}, {3.4e38, -1e39}},
      {DType::f32, {std::numeric_limits<float>::max(), 3.4028235e38, kNan, uint64_t(1) << 63}, {1e39, -1e300}},
      {DType::f64, {1e300, kInf, INT64_MAX}, {}},
      {DType::boolean, {7, -1, kNan, 1e300}, {}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.dtype);
    for (const Number v : row.fit) CHECK_MESSAGE(fits(v, row.dtype), v.floating());
    for (const Number v : row.do_not) CHECK_MESSAGE(!fits(v, row.dtype), v.floating());
  }
  CHECK_NOTHROW(check_fits("full", 255, DType::u8));
  CHECK_THROWS_WITH_AS(check_fits("full", 300, DType::u8),
                       "[full] the number does not fit uint8, got 300\nhelp: use a number in its range or a wider dtype",
                       ValueError);
  CHECK_THROWS_WITH_AS(check_fits("masked_fill", -1e9, DType::f16),
                       "[masked_fill] the number does not fit float16, got -1e+09\n"
                       "help: use an infinity, finfo(dtype).max or a wider dtype",
                       ValueError);
}

TEST_CASE("messages have enough digits to see what does not fit, and helps that name what does") {
  const auto error_of = [](const auto& f) -> std::string {
    try {
      f();
    } catch (const ValueError& e) { return e.what(); }
    return "none";
  };
  CHECK(error_of([] { number_as<int32_t>(2147483648.5, "item"); }) ==
        "[item] the number does not fit int32, got 2147483648.5\nhelp: read it as double or int64_t, as in item<double>()");
  CHECK(error_of([] { check_fits("full", -2147483649.0, DType::i32); }) ==
        "[full] the number does not fit int32, got -2147483649\nhelp: use a number in its range or a wider dtype");
  for (const double v : {1e19, kNan, -kInf}) {
    CHECK(error_of([&] { number_as<int16_t>(v, "to_vector"); }).ends_with("help: read it as double, as in item<double>()"));
    CHECK(error_of([&] { number_as<uint64_t>(-std::abs(v), "item"); }).ends_with("help: read it as double, as in item<double>()"));
  }
  CHECK(error_of([] { check_fits("item", 1e300, DType::f32); }).ends_with("help: read it as double, as in item<double>()"));
  CHECK(error_of([] { check_fits("fill_", kNan, DType::u8); })
            .ends_with("got nan\nhelp: integers have no NaN and no infinity: use a "
                       "floating dtype"));
  CHECK(error_of([] { check_fits("fill_", 1e20, DType::i64); }).ends_with("help: use a number in its range or a floating dtype"));
  for (const double v : {0.1, 1e-5, 5e-324, 1.7976931348623157e308, 2147483648.0, 0.1 + 0.2, -1.0 / 3})
    CHECK(number_of(exact_text(v)) == v);
  CHECK(exact_text(0.1) == "0.1");
  CHECK(exact_text(0.1 + 0.2) == "0.30000000000000004");
  CHECK(exact_text(1e9) == "1e+09");
  CHECK(exact_text(INT64_MIN) == "-9223372036854775808");
}
