// SPDX-License-Identifier: Apache-2.0
#include "framework/base/number_text.h"

#include <locale.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <system_error>

namespace halfstep {
namespace {

std::string text_of(double v, std::chars_format format, int precision) {
  std::array<char, 400> text;  // the largest double has 309 digits before its point; the rest is for decimals
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), v, format, precision);
  return error == std::errc() ? std::string(text.data(), end) : std::string();
}

locale_t plain_locale() {
  static const locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr);
  return plain;
}

struct ParsedNumber {
  std::optional<double> value;
  const char* end;
};
// Parses the number that the text begins with.
ParsedNumber parse_number(std::string_view text) {
  double value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = read_number(text.data(), last, value);
  if (error == std::errc()) return {value, end};
  if (error != std::errc::result_out_of_range) return {{}, text.data()};
  return {strtod_l(std::string(text.data(), end).c_str(), nullptr, plain_locale()), end};  // from_chars sets no value
}

}  // namespace

PlainLocale::PlainLocale() : saved_(uselocale(plain_locale())) {}
PlainLocale::~PlainLocale() { uselocale(static_cast<locale_t>(saved_)); }

std::string fixed_text(double v, int decimals) { return text_of(v, std::chars_format::fixed, decimals); }
std::string general_text(double v, int digits) { return text_of(v, std::chars_format::general, digits); }
std::string exponent_text(double v, int decimals) { return text_of(v, std::chars_format::scientific, decimals); }

std::from_chars_result read_number(const char* first, const char* last, double& value) {
#ifdef __cpp_lib_to_chars
  return std::from_chars(first, last, value);
#else  // libc++, whose from_chars reads integers only
  const std::string text(first, last);
  // strtod takes more than from_chars does: blanks, a plus sign, hexadecimal digits.
  if (text.find_first_of("+xX \t\r\n\v\f") == 0 || text.find_first_of("xX") != std::string::npos)
    return {first, std::errc::invalid_argument};
  char* end = nullptr;
  const double parsed = strtod_l(text.c_str(), &end, plain_locale());
  if (end == text.c_str()) return {first, std::errc::invalid_argument};
  value = parsed;  // infinite where the number is too large
  return {first + (end - text.c_str()), std::errc()};
#endif
}

std::optional<double> number_before(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n\v\f"), text.size()));
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  return parse_number(text).value;
}

std::optional<double> number_of(std::string_view text) {
  const ParsedNumber number = parse_number(text);
  return number.end == text.data() + text.size() ? number.value : std::nullopt;
}

}  // namespace halfstep
