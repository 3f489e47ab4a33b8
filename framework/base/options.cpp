// SPDX-License-Identifier: Apache-2.0
#include "framework/base/options.h"

#include <algorithm>
#include <cmath>

#include "framework/base/check.h"
#include "framework/base/list_text.h"

namespace halfstep {
namespace {

constexpr double kWholeLimit = 0x1p53;  // below it a double holds every integer

template <class Number>
void check_number(std::string_view owner, const OptionFacts& o, Number x) {
  const bool legal = (o.above_least ? double(x) > o.least : double(x) >= o.least) &&
                     (o.below_most ? double(x) < o.most : double(x) <= o.most) && !(o.not_zero && x == Number(0));
  if (legal || (o.zero_is_none && x == Number(0))) [[likely]]
    return;
  if (x == Number(0) && o.not_zero) fail<ValueError>(owner, o.name, " must not be 0");
  if constexpr (std::is_same_v<Number, double>)
    check<ValueError>(!std::isnan(x) || !o.domain().empty(), owner, o.name, " must be a number, got ", x);
  fail<ValueError>(owner, o.name, " must be ", o.domain(), ", got ", x);
}

}  // namespace

std::string OptionFacts::domain() const {
  if (kind == OptionKind::text) return halfstep::one_of(words);
  const auto bound = [](double x) { return std::abs(x) < kWholeLimit && x == std::floor(x) ? joined(int64_t(x)) : joined(x); };
  const bool has_least = std::isfinite(least), has_most = std::isfinite(most);
  if (has_least && has_most && kind == OptionKind::whole && least + 1 == most && !above_least && !below_most)
    return joined(bound(least), " or ", bound(most));
  if (has_least && has_most) return joined("in ", above_least ? '(' : '[', bound(least), ", ", bound(most), below_most ? ')' : ']');
  if (has_least) return joined(above_least ? "> " : ">= ", bound(least));
  if (has_most) return joined(below_most ? "< " : "<= ", bound(most));
  return not_zero ? "not 0" : "";
}

std::string OptionFacts::counts() const {
  const int least = fewest ? fewest : count;
  if (!repeats && count > least + 1) return joined(least, " to ", count);
  std::string out;
  for (int i = least; i <= count; ++i)
    if (!repeats || count % i == 0) out += joined(out.empty() ? "" : i == count ? " or " : ", ", i);
  return out;
}

void check_option(std::string_view owner, const OptionFacts& o, const OptionValue& value) {
  if (const auto* const number = std::get_if<double>(&value)) return check_number(owner, o, *number);
  if (const auto* const whole = std::get_if<int64_t>(&value)) return check_number(owner, o, *whole);
  if (const auto* const numbers = std::get_if<std::vector<double>>(&value)) {
    const int64_t count = std::ssize(*numbers);
    const bool fits = !o.fewest || (count == 0 && !o.needed) || (count >= o.fewest && count <= o.count);
    check<ValueError>(fits, owner, o.name, " must have ", o.counts(), " numbers, got ", count);
    for (const double x : *numbers) check_number(owner, o, x);
  } else if (const auto* const sizes = std::get_if<Sizes>(&value)) {
    for (const int64_t x : sizes->values()) check_number(owner, o, x);
  } else if (const auto* const text = std::get_if<std::string>(&value); text && !o.words.empty()) {
    for (const std::string& word : o.words)
      if (*text == word) return;
    fail<ValueError>(owner, o.name, " must be ", o.kind == OptionKind::text ? "" : "numbers, ", halfstep::one_of(o.words),
                     ", got \"", *text, '"');
  }
}

bool OptionMember<bool>::put(bool& member, const OptionValue& value) {
  if (const auto* const flag = std::get_if<bool>(&value)) return member = *flag, true;
  const auto* const number = std::get_if<double>(&value);
  if (number) member = *number != 0;
  return number;
}
bool OptionMember<int64_t>::put(int64_t& member, const OptionValue& value) {
  if (const auto* const whole = std::get_if<int64_t>(&value)) return member = *whole, true;
  const auto* const number = std::get_if<double>(&value);
  if (!number || !(std::abs(*number) < kWholeLimit)) return false;
  return member = int64_t(*number), true;
}
bool OptionMember<double>::put(double& member, const OptionValue& value) {
  if (const auto* const whole = std::get_if<int64_t>(&value)) return member = double(*whole), true;
  const auto* const number = std::get_if<double>(&value);
  if (number) member = *number;
  return number;
}
bool OptionMember<std::string>::put(std::string& member, const OptionValue& value) {
  const auto* const text = std::get_if<std::string>(&value);
  if (text) member = *text;
  return text;
}
bool OptionMember<char>::put(char& member, const OptionValue& value) {
  if (std::holds_alternative<std::monostate>(value)) return member = 0, true;
  const auto* const text = std::get_if<std::string>(&value);
  return text && text->size() == 1 && (member = (*text)[0], true);
}
bool OptionMember<std::vector<std::string>>::put(std::vector<std::string>& member, const OptionValue& value) {
  if (const auto* const text = std::get_if<std::string>(&value)) return member = {*text}, true;
  const auto* const texts = std::get_if<std::vector<std::string>>(&value);
  if (texts) member = *texts;
  return texts;
}
bool OptionMember<Sizes>::put(Sizes& member, const OptionValue& value) {
  if (const auto* const whole = std::get_if<int64_t>(&value)) return member = *whole, true;
  const auto* const sizes = std::get_if<Sizes>(&value);
  if (sizes) member = *sizes;
  return sizes;
}
bool OptionMember<std::vector<double>>::put(std::vector<double>& member, const OptionValue& value) {
  double number = 0;
  if (OptionMember<double>::put(number, value)) return member = {number}, true;
  const auto* const numbers = std::get_if<std::vector<double>>(&value);
  if (numbers) member = *numbers;
  return numbers;
}
bool OptionMember<std::vector<int64_t>>::put(std::vector<int64_t>& member, const OptionValue& value) {
  std::vector<double> numbers;
  if (!OptionMember<std::vector<double>>::put(numbers, value)) return false;
  for (const double x : numbers)
    if (!(std::abs(x) < kWholeLimit) || x != std::floor(x)) return false;
  member.assign(numbers.begin(), numbers.end());
  return true;
}

StoredOption stored(const OptionValue& value) {
  if (const auto* const text = std::get_if<std::string>(&value)) return *text;
  if (const auto* const numbers = std::get_if<std::vector<double>>(&value)) return *numbers;
  if (const auto* const number = std::get_if<double>(&value)) return std::vector<double>{*number};
  if (const auto* const whole = std::get_if<int64_t>(&value)) return std::vector<double>{double(*whole)};
  if (const auto* const flag = std::get_if<bool>(&value)) return std::vector<double>{*flag ? 1.0 : 0.0};
  std::vector<double> out;
  if (const auto* const sizes = std::get_if<Sizes>(&value)) out.assign(sizes->values().begin(), sizes->values().end());
  return out;
}
OptionValue from_stored(const StoredOption& value, const OptionFacts& option) {
  if (const auto* const text = std::get_if<std::string>(&value)) return *text;
  const auto& numbers = std::get<std::vector<double>>(value);
  if (option.kind == OptionKind::numbers) return numbers;
  if (option.kind == OptionKind::sizes) {
    Dims each;
    for (const double x : numbers) each.push_back(int64_t(x));
    return each.size() == 1 ? Sizes(each[0]) : Sizes(each);
  }
  return numbers.size() == 1 ? OptionValue(numbers[0]) : OptionValue();
}

}  // namespace halfstep
