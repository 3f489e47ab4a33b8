// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tables/label_looks.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <optional>

#include "framework/base/list_text.h"
#include "framework/base/number_text.h"
#include "framework/data/tokens/unicode.h"

namespace halfstep {
namespace {

// Characters that look or mean the same as those of `plain`; each of a range as the one at its place from the first of `plain` on.
struct Alike {
  char32_t first, last;
  const char* plain;
  bool counts;  // whether the range counts up from `plain`
};
constexpr Alike kAlike[] = {
    {0x00ad, 0x00ad, "", false}, {0x00b2, 0x00b3, "2", true}, {0x00b5, 0x00b5, "\xce\xbc", false}, {0x00b9, 0x00b9, "1", false},
    {0x0660, 0x0669, "0", true}, {0x06f0, 0x06f9, "0", true}, {0x0966, 0x096f, "0", true}, {0x200b, 0x200f, "", false},
    {0x2010, 0x2015, "-", false}, {0x2018, 0x201b, "'", false}, {0x201c, 0x201f, "\"", false}, {0x2026, 0x2026, "...", false},
    {0x202a, 0x202e, "", false}, {0x2060, 0x2069, "", false}, {0x2070, 0x2070, "0", false}, {0x2074, 0x2079, "4", true},
    {0x2080, 0x2089, "0", true}, {0x2212, 0x2212, "-", false}, {0xfb00, 0xfb00, "ff", false}, {0xfb01, 0xfb01, "fi", false},
    {0xfb02, 0xfb02, "fl", false}, {0xfb03, 0xfb03, "ffi", false}, {0xfb04, 0xfb04, "ffl", false},
    {0xfb05, 0xfb06, "st", false}, {0xfe00, 0xfe0f, "", false}, {0xfe58, 0xfe58, "-", false}, {0xfe63, 0xfe63, "-", false},
    {0xfeff, 0xfeff, "", false}, {0xff01, 0xff5e, "!", true}};

// Returns the shortest form of a number's value; "" for a text that is none, or has more digits than a double.
std::string value_of(std::string text, char decimal) {
  constexpr std::ptrdiff_t kMostDigits = 15;
  const char thousands = decimal == ',' ? '.' : ',';
  if (const size_t first = text.find(thousands); first != text.npos) {  // groups of three digits, up to the decimal separator
    const size_t begin = text.find_first_of("0123456789");
    const size_t point = std::min({text.find_first_not_of("0123456789,.", begin), text.find(decimal), text.size()});
    if (begin == text.npos || first <= begin || first - begin > 3) return "";
    for (size_t at = first; at < point; at += 4)
      if (text[at] != thousands || at + 4 > point || !std::all_of(&text[at + 1], &text[at + 1] + 3, is_digit)) return "";
    std::erase(text, thousands);
  }
  std::replace(text.begin(), text.end(), decimal, '.');
  if (text.starts_with('+')) text.erase(0, 1);
  const size_t sign = text.starts_with('-') ? 1 : 0;
  if (text.size() == sign || !(is_digit(text[sign]) || text[sign] == '.')) return "";
  if (std::count_if(text.begin(), text.end(), is_digit) > kMostDigits) return "";
  const std::optional<double> value = number_of(text);
  return value && std::isfinite(*value) ? general_text(*value == 0 ? 0 : *value, 17) : "";
}

}  // namespace

std::string look_of(std::string_view key, char decimal) {
  std::string out;
  for (size_t at = 0, bytes = 0; at < key.size(); at += bytes) {
    bytes = std::max<size_t>(1, utf8_length(key, at));
    const char32_t point = utf8_length(key, at) > 1 ? utf8_at(key, at, bytes) : 0;
    const auto found =
        std::find_if(std::begin(kAlike), std::end(kAlike), [&](const Alike& a) { return point >= a.first && point <= a.last; });
    if (point == 0 || found == std::end(kAlike))
      out += key.substr(at, bytes);
    else if (found->counts)
      append_utf8(out, char32_t(uint8_t(found->plain[0])) + (point - found->first));
    else
      out += found->plain;
  }
  // Full-width capitals in a text without a lower case of its own.
  out = lower_case(out);
  if (out == "true" || out == "false") return out == "true" ? "1" : "0";
  const std::string value = value_of(out, decimal);
  return value.empty() ? out : value;
}

std::string spelled_apart(std::string_view label) {
  std::string out = "\"";
  for (size_t at = 0, bytes = 0; at < label.size(); at += bytes) {
    bytes = std::max<size_t>(1, utf8_length(label, at));
    const char32_t point = utf8_length(label, at) > 0 ? utf8_at(label, at, bytes) : 0;
    const PointClass kind = class_of(point);
    if (point < 0x80 || kind == PointClass::letter || kind == PointClass::number) {
      const std::string quoted = spelled(label.substr(at, bytes));
      out += quoted.substr(1, quoted.size() - 2);
      continue;
    }
    char escape[16];
    std::snprintf(escape, sizeof escape, point > 0xffff ? "\\U%08x" : "\\u%04x", unsigned(point));
    out += escape;
  }
  return out + '"';
}

}  // namespace halfstep
