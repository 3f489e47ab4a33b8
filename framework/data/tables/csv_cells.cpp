// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tables/csv_cells.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "framework/base/check.h"
#include "framework/base/number_text.h"
#include "framework/data/tables/csv_signs.h"

namespace halfstep {
namespace {

// Returns the length of a thousands separator at the beginning of `text`; 0: none.
size_t separator_length(std::string_view text, char thousands) {
  if (thousands == 0) return 0;
  if (!text.empty() && text[0] == thousands) return 1;
  constexpr std::string_view kSpaces[] = {"\xc2\xa0", "\xe2\x80\xaf", "\xe2\x80\x89"};  // no-break, narrow no-break, thin
  for (const std::string_view space : kSpaces)
    if (thousands == ' ' && text.starts_with(space)) return space.size();
  constexpr std::string_view kApostrophe = "\xe2\x80\x99";
  return thousands == '\'' && text.starts_with(kApostrophe) ? kApostrophe.size() : 0;
}

bool is_missing_word(std::string_view cell) {
  constexpr std::string_view kWords[] = {"NA",   "N/A", "n/a", "#N/A", "NaN", "nan",          "NULL",        "null",
                                         "None", "?",   "-",   "--",   ".",   "\xe2\x80\x93", "\xe2\x80\x94"};
  return std::find(std::begin(kWords), std::end(kWords), cell) != std::end(kWords);
}

// Returns the cell without percent sign and accounting marks, which `out` describes.
std::string_view without_marks(std::string_view cell, CsvHint& out) {
  if (cell.ends_with('%')) {
    out = {"a percent sign", "remove the sign from the file"};
    cell.remove_suffix(1);
    while (!cell.empty() && cell.back() == ' ') cell.remove_suffix(1);
    return cell;
  }
  bool negative = false;
  CsvNumberForm form;
  std::string_view bare = cell;
  if (!take_accounting_marks(bare, negative, form)) return cell;
  out = {form.what, "\"accounting\": true"};
  return bare;
}

// Returns an entry of a config, "decimal": ",".
std::string config_entry(const char* key, char c) { return joined('"', key, "\": \"", c, '"'); }

}  // namespace

bool parse_integer(std::string_view text, int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

namespace {
Option<CsvFormat> delimiter_option() {
  Option<CsvFormat> out =
      option("delimiter", &CsvFormat::delimiter,
             "one character, or \"blanks\": any number of blanks and tabs; \"auto\": comma, semicolon, tab or |, "
             "as found in the first line, or blanks where none of them occurs")
          .or_word("auto");
  out.get = [get = out.get](const CsvFormat& f) { return f.delimiter == kCsvBlanks ? OptionValue("blanks") : get(f); };
  out.put = [put = out.put](CsvFormat& f, const OptionValue& value) {
    return value == OptionValue("blanks") ? (f.delimiter = kCsvBlanks, true) : put(f, value);
  };
  return out;
}
}  // namespace
HALFSTEP_OPTIONS(
    CsvFormat, delimiter_option(), option("decimal", &O::decimal, "decimal separator").one_of({".", ","}),
    option("thousands", &O::thousands, "separator of groups of three digits; left out: none").one_of({",", ".", " ", "'", "_"}),
    encoding_of(&O::encoding),
    option("skip_rows", &O::skip_rows, "lines of the file to leave out, the first is 1: a title above the header, units below it")
        .at_least(1)
        .at_most(1e9)
        .of("a line"),
    option("accounting", &O::accounting, "(1.2) and 1.2- are -1.2, and currency signs are passed over"))

bool parse_number(std::string_view cell, double& value) {
  if (cell.size() > 1 && cell[0] == '+' && cell[1] != '-') cell.remove_prefix(1);
  const std::optional<double> number = number_of(cell);
  if (number) value = *number;
  return number.has_value();
}

namespace {

// Parses an ASCII number without accounting marks.
bool parse_plain(std::string_view cell, const CsvFormat& f, double& value) {
  if (f.decimal == '.' && f.thousands == 0) return parse_number(cell, value);
  std::string plain;
  if (!cell.empty() && (cell[0] == '+' || cell[0] == '-')) plain += cell[0], cell.remove_prefix(1);
  size_t group = 0;  // digits since the last separator
  bool has_groups = false;
  while (!cell.empty()) {
    const size_t separator = separator_length(cell, f.thousands);
    if (is_digit(cell[0])) {
      plain += cell[0], cell.remove_prefix(1), ++group;
    } else if (separator > 0) {
      if (group == 0 || group > 3 || (has_groups && group != 3)) return false;
      has_groups = true, group = 0;
      cell.remove_prefix(separator);
    } else {
      break;
    }
  }
  if (has_groups && group != 3) return false;
  if (!cell.empty() && cell[0] == f.decimal) {
    plain += '.', cell.remove_prefix(1);
  } else if (!cell.empty() && cell[0] == '.') {
    return false;
  }
  if (!plain.empty() && !cell.empty() && (cell[0] == '+' || cell[0] == '-')) return false;
  return parse_number(plain += cell, value);
}

// Parses a number without accounting marks, whose signs and digits may be those of other alphabets.
bool parse_signed(std::string_view cell, const CsvFormat& f, double& value, CsvNumberForm& form) {
  CsvPlainCell plain = with_plain_signs(cell, f);
  if (!plain.form.what) return parse_plain(cell, f, value);
  CsvFormat grouped = f;
  if (plain.text.find(kCsvGroup) != std::string::npos) grouped.thousands = kCsvGroup;
  if (!parse_plain(plain.text, grouped, value)) return false;
  if (!form.what) form.what = plain.form.what;
  return true;
}

}  // namespace

bool parse_number(std::string_view cell, const CsvFormat& f, double& value, CsvNumberForm& form) {
  form = {};
  if (parse_signed(cell, f, value, form)) return true;
  bool negative = false;
  CsvNumberForm marks;
  if (!f.accounting || !take_accounting_marks(cell, negative, marks) || !parse_signed(cell, f, value, marks)) return false;
  if (negative) value = -value;
  form = std::move(marks);
  return true;
}

bool parse_number(std::string_view cell, const CsvFormat& f, double& value) {
  CsvNumberForm ignored;
  return parse_number(cell, f, value, ignored);
}

namespace {

// Returns whether digits are in groups of two before the last three, as in India: "12,34,567.5".
bool has_groups_of_two(std::string_view number, const CsvFormat& f) {
  if (!number.empty() && (number[0] == '-' || number[0] == '+')) number.remove_prefix(1);
  const std::string_view whole = number.substr(0, number.find(f.decimal)), rest = number.substr(whole.size());
  const size_t digits = size_t(std::count_if(whole.begin(), whole.end(), is_digit));
  if (f.decimal == ',' || digits < 6 || !is_digit(whole[0])) return false;
  const bool are_digits = rest.empty() || std::all_of(rest.begin() + 1, rest.end(), is_digit);
  size_t before = 0;  // digits behind this place
  for (size_t i = whole.size(); i-- > 0;) {
    const bool separates = before >= 3 && before % 2 == 1 && whole[i + 1] != ',';
    if (separates ? whole[i] != ',' : !is_digit(whole[i])) return false;
    before += !separates;
  }
  return are_digits;
}

// Returns what is within '...', or in the forms by which spreadsheets take a number for a text: ="..." and '...
std::string_view without_text_marks(std::string_view cell) {
  if (cell.size() > 3 && cell.starts_with("=\"") && cell.ends_with('"')) return cell.substr(2, cell.size() - 3);
  if (cell.size() < 2 || cell[0] != '\'') return cell;
  return cell.substr(1, cell.size() - 1 - (cell.size() > 2 && cell.ends_with('\'')));
}

}  // namespace

CsvHint number_hint(std::string_view cell, const CsvFormat& f) {
  if (is_missing_word(cell)) return {"a word for a missing value", joined("\"missing_words\": [\"", cell, "\"]"), true};
  double value = 0;
  CsvHint out;
  if (const std::string_view number = without_text_marks(cell); number.size() < cell.size() && parse_number(number, f, value)) {
    const bool padded = number.size() > 1 && number[0] == '0' && is_digit(number[1]);  // such as a postal code: meant to be a text
    if (!padded) return {"the marks of a text", "write them without"};
  }
  const std::string_view bare = without_marks(cell, out);
  if (bare.empty() || !std::any_of(bare.begin(), bare.end(), is_digit)) return {};
  if (parse_number(bare, f, value)) return out;
  const auto add_hint = [&](const char* what, const std::string& remedy) {
    return CsvHint{out.what.empty() ? what : out.what + " and " + what,
                   out.remedy.empty() ? remedy : remedy + ", and " + out.remedy};
  };
  const char other = f.decimal == '.' ? ',' : '.';
  const auto reads = [&](char decimal, char thousands) {
    return decimal != thousands && parse_number(bare, {f.delimiter, decimal, thousands}, value);
  };
  const bool has_other_decimal = reads(other, f.thousands == other ? '\0' : f.thousands);
  for (const char t : {',', '.', ' ', '\'', '_'}) {
    if (t == f.decimal || !reads(f.decimal, t)) continue;
    const std::string groups = config_entry("thousands", t);
    if (has_other_decimal && t == other)
      return add_hint("commas or points", config_entry("decimal", t) + " or " + groups + ", depending on the meaning");
    return add_hint("thousands separators", groups);
  }
  if (has_other_decimal) return add_hint(other == ',' ? "a decimal comma" : "a decimal point", config_entry("decimal", other));
  for (const char t : {',', '.', ' ', '\'', '_'}) {
    if (t != other && reads(other, t))
      return add_hint(other == ',' ? "a decimal comma" : "a decimal point",
                      config_entry("decimal", other) + ", " + config_entry("thousands", t));
  }
  if (has_groups_of_two(bare, f)) return add_hint("groups of two digits", "write them without commas");
  CsvDate date;
  constexpr const char* kOrders[] = {"ymd", "dmy", "mdy"};
  for (int order = 0; order < 3 && out.what.empty(); ++order) {
    if (!parse_date(cell, CsvDateOrder(order), date)) continue;
    CsvDate month_first;
    const std::string which = order == 0
                                  ? ""
                                  : joined(", \"date_order\": \"", kOrders[order], '"',
                                           order == 1 && parse_date(cell, CsvDateOrder::mdy, month_first) ? " or \"mdy\"" : "");
    return {"dates", "list the column in \"dates\"" + which};
  }
  return {};
}

CsvHint quantity_hint(std::string_view cell, const CsvFormat& f) {
  constexpr size_t kLongestUnit = 12;
  const auto colons = std::count(cell.begin(), cell.end(), ':');
  if (colons == 1 || colons == 2) {  // "1:02:03.5"
    size_t at = cell.find(':');
    bool is_time = at >= 1 && at <= 3 && std::all_of(cell.begin(), cell.begin() + std::ptrdiff_t(at), is_digit);
    for (; is_time && at < cell.size() && cell[at] == ':'; at += 3)
      is_time = at + 2 < cell.size() && is_digit(cell[at + 1]) && is_digit(cell[at + 2]);
    is_time = is_time &&
              (at == cell.size() || (cell[at] == '.' && std::all_of(cell.begin() + std::ptrdiff_t(at) + 1, cell.end(), is_digit)));
    return is_time ? CsvHint{"colons, as of a clock", "write them as seconds or as hours"} : CsvHint();
  }
  const size_t end = cell.find_first_not_of("+-0123456789.,' ");
  if (end == 0 || end == cell.npos) return {};
  std::string_view number = cell.substr(0, end);
  const std::string_view unit = cell.substr(end);
  while (number.ends_with(' ')) number.remove_suffix(1);
  double value = 0;
  if (unit.size() > kLongestUnit || std::any_of(unit.begin(), unit.end(), is_digit) || !parse_number(number, f, value)) return {};
  return {joined("the unit ", unit), "remove it from the file"};
}

}  // namespace halfstep
