// SPDX-License-Identifier: Apache-2.0
// Numbers as text and back, the same whatever the program's locale: setlocale() changes how printf and strtod write and read them,
// and belongs to the program. framework/base/text_stream.h has streams.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

namespace halfstep {

std::string fixed_text(double v, int decimals);     // as printf's %.2f writes it
std::string general_text(double v, int digits);     // %.3g: significant digits
std::string exponent_text(double v, int decimals);  // %.4e

// Works as std::from_chars, also where the standard library lacks it for double.
std::from_chars_result read_number(const char* first, const char* last, double& value);
// Returns the number that a text is; nothing for other texts. Numbers out of range become infinity or 0.
std::optional<double> number_of(std::string_view text);
// Returns the number that a text begins with, after blanks and a plus sign.
std::optional<double> number_before(std::string_view text);

// Gives this thread's C functions the classic locale in a scope: for a library that reads numbers by strtod.
class PlainLocale {
 public:
  [[nodiscard]] PlainLocale();
  ~PlainLocale();
  PlainLocale(const PlainLocale&) = delete;
  PlainLocale& operator=(const PlainLocale&) = delete;

 private:
  void* before_;  // a locale_t
};

}  // namespace halfstep
