// SPDX-License-Identifier: Apache-2.0
// Numbers as text and back, in the same form in every locale. printf and strtod follow the locale that a program sets with
// setlocale(). framework/base/text_stream.h has streams.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "framework/base/guard.h"

namespace halfstep {

// Return text as printf writes it with %.2f, %.3g and %.4e; "" if it would have more than 400 characters.
std::string fixed_text(double v, int decimals);
std::string general_text(double v, int digits);  // significant digits
std::string exponent_text(double v, int decimals);

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Works as std::from_chars, also where the standard library lacks it for double.
std::from_chars_result read_number(const char* first, const char* last, double& value);
// Returns the number that a text is; nothing for other texts. Numbers out of range become infinity or 0.
std::optional<double> number_of(std::string_view text);
// Returns the number that a text begins with, after blanks and a plus sign.
std::optional<double> number_before(std::string_view text);

// Gives this thread's C functions the classic locale while it lives: for a library that reads numbers by strtod.
class PlainLocale : LocalGuard {
 public:
  [[nodiscard]] PlainLocale();
  ~PlainLocale();

 private:
  void* saved_;  // a locale_t
};

}  // namespace halfstep
