// SPDX-License-Identifier: Apache-2.0
#include "framework/base/number_text.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <locale>
#include <string>

#include "framework/base/check.h"
#include "framework/base/shape.h"

using namespace halfstep;

namespace {

// Of the classic locale, which the slow test "locale" does not run in.
std::string printed(const char* format, int digits, double v) {
  const PlainLocale plain;
  char text[400];
  std::snprintf(text, sizeof text, format, digits, v);
  return text;
}

struct Grouped : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

}  // namespace

TEST_CASE("numbers are written as printf writes them in the classic locale") {
  for (const double v : {0.0, -0.0, 1.0, -1.5, 0.1, 12345.678, 1e-5, 0.00012345, 99999.5, 1e15, 1e21, 1.7e308, 5e-324, 0.5, 2.5,
                         double(INFINITY), -double(INFINITY)})
    for (const int digits : {1, 2, 4, 6, 9}) {
      CAPTURE(v);
      CAPTURE(digits);
      CHECK(fixed_text(v, digits) == printed("%.*f", digits, v));
      CHECK(general_text(v, digits) == printed("%.*g", digits, v));
      CHECK(exponent_text(v, digits) == printed("%.*e", digits, v));
    }
}

TEST_CASE("numbers are read whole, or from the beginning of a text") {
  CHECK(number_of("1.5") == 1.5);
  CHECK(number_of("-2e3") == -2000);
  CHECK(number_of("1e999") == std::numeric_limits<double>::infinity());
  CHECK(number_of("-1e999") == -std::numeric_limits<double>::infinity());
  CHECK(number_of("1e-999") == 0);
  for (const char* wrong : {"", " 1", "1 ", "+1", "1,5", "x", "1.5x", "max"}) {
    CAPTURE(wrong);
    CHECK_FALSE(number_of(wrong).has_value());
  }
  CHECK(number_before(" \t2.25 MHz") == 2.25);
  CHECK(number_before("+3") == 3);
  CHECK(number_before("1,5") == 1);
  CHECK_FALSE(number_before("+-3").has_value());
  CHECK_FALSE(number_before("MHz").has_value());
}

TEST_CASE("messages and texts have the same numbers under any global locale") {
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Grouped));
  std::string message, text;
  try {
    fail<ShapeError>("op", "got ", Shape{1234, 2}, " and ", 12345.5, " of ", 1000000);
  } catch (const ShapeError& e) { message = e.what(); }
  std::ostringstream program;  // its numbers are as the program wants them, shapes are not numbers
  program << 1234 << ' ' << Shape{1234567};
  double read = 0;
  TextReader("1234.5") >> read;
  std::locale::global(before);
  CHECK(message == "[op] got [1234, 2] and 12345.5 of 1000000");
  CHECK(program.str() == "1.234 [1234567]");
  CHECK(read == 1234.5);
}
