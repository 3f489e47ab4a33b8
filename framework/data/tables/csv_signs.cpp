// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tables/csv_signs.h"

#include <algorithm>
#include <array>

#include "framework/data/tokens/unicode.h"

namespace halfstep {
namespace {

bool is_minus(char32_t p) {  // hyphens, the en dash, the minus sign, and their full-width and small forms
  return p == 0x2010 || p == 0x2011 || p == 0x2013 || p == 0x2212 || p == 0xfe63 || p == 0xff0d;
}

// Returns the digit, or -1; accepts full-width digits and both rows of Arabic ones.
int digit_of(char32_t p) {
  for (const char32_t zero : {0xff10, 0x660, 0x6f0})
    if (p >= zero && p < zero + 10) return int(p - zero);
  return -1;
}

bool is_fixed_blank(char32_t p) { return p == 0xa0 || p == 0x202f || p == 0x2007 || p == 0x2009; }

bool is_blank_at(std::string_view text, size_t at, size_t& bytes) {
  bytes = utf8_length(text, at);
  return bytes > 0 && is_blank_point(utf8_at(text, at, bytes));
}

std::string_view trimmed(std::string_view cell) {
  size_t bytes = 0;
  while (!cell.empty() && is_blank_at(cell, 0, bytes)) cell.remove_prefix(bytes);
  while (!cell.empty()) {
    size_t last = cell.size() - 1;
    while (last > 0 && (uint8_t(cell[last]) & 0xc0) == 0x80) --last;
    if (!is_blank_at(cell, last, bytes)) break;
    cell.remove_suffix(cell.size() - last);
  }
  return cell;
}

// Returns the length in bytes of a minus sign at the beginning or end.
size_t minus_at(std::string_view cell, bool end) {
  if (end ? cell.ends_with('-') : cell.starts_with('-')) return 1;
  for (const size_t bytes : {size_t(2), size_t(3)}) {
    if (cell.size() <= bytes) return 0;
    const size_t at = end ? cell.size() - bytes : 0;
    if (utf8_length(cell, at) == bytes && is_minus(utf8_at(cell, at, bytes))) return bytes;
  }
  return 0;
}

constexpr std::array<std::string_view, 9> kCurrencies = {
    "$", "\xe2\x82\xac", "\xc2\xa3", "\xc2\xa5", "\xe2\x82\xb9", "\xe2\x82\xbd", "\xe2\x82\xa9", "\xe2\x82\xba", "\xef\xbf\xa5"};

// Removes a currency sign at either end.
bool take_currency(std::string_view& cell, CsvNumberForm& form) {
  for (const std::string_view sign : kCurrencies) {
    const bool front = cell.starts_with(sign);
    if (!front && !cell.ends_with(sign)) continue;
    front ? cell.remove_prefix(sign.size()) : cell.remove_suffix(sign.size());
    cell = trimmed(cell);
    form.currency = sign;
    return true;
  }
  return false;
}

}  // namespace

CsvPlainCell with_plain_signs(std::string_view cell, const CsvFormat& f) {
  CsvPlainCell out;
  const auto plain = [](char c) { return uint8_t(c) < 0x80 && c != '\''; };
  if (std::all_of(cell.begin(), cell.end(), plain)) return out;
  char32_t group = 0;  // separator of thousands
  for (size_t at = 0, bytes = 0; at < cell.size(); at += bytes) {
    bytes = utf8_length(cell, at);
    if (bytes == 0) return {};
    const char32_t p = utf8_at(cell, at, bytes);
    if (is_minus(p) && at == 0) {
      out.text += '-', out.form.what = "another minus sign";
    } else if (const int digit = digit_of(p); digit >= 0) {
      out.text += char('0' + digit), out.form.what = "other digits";
    } else if (p == 0xff0b || p == 0xff0e || p == 0xff0c) {  // full-width
      out.text += char(p - 0xfee0), out.form.what = "other digits";
    } else if (p == 0x66b) {
      out.text += f.decimal, out.form.what = "other digits";
    } else if ((is_fixed_blank(p) || p == '\'' || p == 0x2019 || p == 0x66c) && f.thousands == 0) {
      if (group != 0 && group != p) return {};
      out.form.what = is_fixed_blank(p) ? "no-break blanks between thousands" : "apostrophes between thousands";
      group = p;
      out.text += kCsvGroup;
    } else {
      out.text += cell.substr(at, bytes);
    }
  }
  if (!out.form.what) out.text.clear();
  return out;
}

bool take_accounting_marks(std::string_view& cell, bool& negative, CsvNumberForm& form) {
  const std::string_view given = cell;
  negative = false;
  const auto take_minus = [&](size_t bytes, bool end) {
    end ? cell.remove_suffix(bytes) : cell.remove_prefix(bytes);
    cell = trimmed(cell);
    const bool twice = negative;
    negative = true;
    return !twice;
  };
  if (cell.starts_with('(') && cell.ends_with(')') && cell.size() > 2) {
    cell = trimmed(cell.substr(1, cell.size() - 2));
    negative = true, form.what = "parentheses for negative ones";
  }
  std::string_view behind = cell;  // after a leading minus sign: "-$5"
  if (const size_t bytes = minus_at(cell, false); bytes > 0) {
    behind.remove_prefix(bytes);
    behind = trimmed(behind);
    if (take_currency(behind, form)) {
      if (negative) return false;
      cell = behind, negative = true;
    }
  } else {
    take_currency(cell, form);
  }
  if (!form.currency.empty() && !form.what) form.what = "a currency sign";
  if (const size_t bytes = minus_at(cell, true); bytes > 0 && cell.size() > bytes) {
    form.what = "a minus sign at the end";
    if (!take_minus(bytes, true)) return false;
  }
  if (form.currency.empty() && take_currency(cell, form) && !form.what) form.what = "a currency sign";
  if (negative && !cell.empty() && (minus_at(cell, false) > 0 || cell[0] == '+')) return false;
  return cell != given && !cell.empty();
}

}  // namespace halfstep
