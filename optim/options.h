// SPDX-License-Identifier: Apache-2.0
// The options of an optimizer as a list that can be walked: its text, its checks, its JSON and the docs are made from it.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "framework/base/check.h"
#include "framework/base/text_stream.h"

namespace halfstep {

// An option of n numbers, as PyTorch's betas: .betas = {0.9, 0.999}, and betas[0] is the first. Another count does not compile.
template <size_t n>
class NumberTuple {
 public:
  template <std::convertible_to<double>... T>
  requires(sizeof...(T) == n) constexpr NumberTuple(T... numbers) : numbers_{double(numbers)...} {}
  constexpr NumberTuple(const std::pair<double, double>& numbers) requires(n == 2) : numbers_{numbers.first, numbers.second} {}
  // -1: the last. Throws IndexError.
  template <std::integral I>
  constexpr double& operator[](I i) {
    return numbers_[place(int64_t(i))];
  }
  template <std::integral I>
  constexpr const double& operator[](I i) const {
    return numbers_[place(int64_t(i))];
  }
  constexpr size_t size() const { return n; }
  constexpr double* begin() { return numbers_.data(); }
  constexpr const double* begin() const { return numbers_.data(); }
  constexpr double* end() { return begin() + n; }
  constexpr const double* end() const { return begin() + n; }
  bool operator==(const NumberTuple&) const = default;

 private:
  static constexpr size_t place(int64_t i) {
    const int64_t at = i < 0 ? i + int64_t(n) : i;
    if (at < 0 || at >= int64_t(n)) [[unlikely]]
      fail<IndexError>("optimizer", "an option of ", n, " numbers has none at index ", i);
    return size_t(at);
  }
  std::array<double, n> numbers_;
};

// An option of the struct O.
template <class O>
struct Option {
  std::string name;
  std::variant<double O::*, NumberTuple<2> O::*, NumberTuple<3> O::*, int64_t O::*, bool O::*, std::string O::*> member;
  std::string doc;
  double least = -std::numeric_limits<double>::infinity(), below = std::numeric_limits<double>::infinity();  // least <= x < below
  bool above_least = false;                                                                                  // least < x
  std::vector<std::string> choices = {};                                                                     // of a text

  Option at_least(double bound) const {
    return with([&](Option& o) { o.least = bound; });
  }
  Option above(double bound) const {
    return with([&](Option& o) { o.least = bound, o.above_least = true; });
  }
  Option under(double bound) const {
    return with([&](Option& o) { o.below = bound; });
  }
  Option one_of(std::vector<std::string> all) const {
    return with([&](Option& o) { o.choices = std::move(all); });
  }

 private:
  template <class F>
  Option with(const F& f) const {
    Option out = *this;
    f(out);
    return out;
  }
};

template <class O, class T>
Option<O> option(std::string name, T O::*member, std::string doc) {
  return {std::move(name), member, std::move(doc)};
}

// The numbers of an option; none of a count, a flag or a text. Options: O or const O.
template <class O, class Options>
auto numbers_of(const Option<O>& option, Options& options) {
  using Numbers = std::span<std::conditional_t<std::is_const_v<Options>, const double, double>>;
  if (const auto* one = std::get_if<double O::*>(&option.member)) return Numbers(&(options.*(*one)), 1);
  if (const auto* two = std::get_if<NumberTuple<2> O::*>(&option.member)) return Numbers(options.*(*two));
  if (const auto* three = std::get_if<NumberTuple<3> O::*>(&option.member)) return Numbers(options.*(*three));
  return Numbers();
}

// "momentum=0.9", or nothing for options without an effect: false, and a 0 that is the default.
template <class O>
std::string shown(const Option<O>& option, const O& options) {
  TextWriter out;
  out << option.name << '=';
  const O defaults;
  if (const auto numbers = numbers_of(option, options); !numbers.empty()) {
    const bool tuple = numbers.size() > 1;
    if (!tuple && numbers[0] == 0 && numbers_of(option, defaults)[0] == 0) return {};
    for (size_t i = 0; i < numbers.size(); ++i) out << (i ? ", " : tuple ? "(" : "") << numbers[i];
    if (tuple) out << ')';
  } else if (const auto* count = std::get_if<int64_t O::*>(&option.member)) {
    out << options.*(*count);
  } else if (const auto* flag = std::get_if<bool O::*>(&option.member)) {
    if (!(options.*(*flag))) return {};
    out << "True";
  } else {
    out << options.*std::get<std::string O::*>(option.member);
  }
  return out.str();
}

// All values in the order of the list, texts as numbers: equal where the options are. `left_out`: numbers that do not count.
template <class O>
std::vector<double> values_of(const O& options, const std::vector<const double*>& left_out = {}) {
  std::vector<double> out;
  for (const Option<O>& option : O::list()) {
    if (const auto numbers = numbers_of(option, options); !numbers.empty()) {
      for (const double& number : numbers) {
        bool counts = true;
        for (const double* other : left_out) counts = counts && other != &number;
        if (counts) out.push_back(number);
      }
    } else if (const auto* count = std::get_if<int64_t O::*>(&option.member)) {
      out.push_back(double(options.*(*count)));
    } else if (const auto* flag = std::get_if<bool O::*>(&option.member)) {
      out.push_back(options.*(*flag));
    } else {
      out.push_back(double(std::hash<std::string>{}(options.*std::get<std::string O::*>(option.member))));
    }
  }
  return out;
}

// The value of an option to be stored: numbers, a flag as 0 or 1, or a text; and back, false for a value of another form.
using StoredOption = std::variant<std::vector<double>, std::string>;
template <class O>
StoredOption stored(const Option<O>& option, const O& options) {
  if (const auto numbers = numbers_of(option, options); !numbers.empty())
    return std::vector<double>(numbers.begin(), numbers.end());
  if (const auto* count = std::get_if<int64_t O::*>(&option.member)) return std::vector<double>{double(options.*(*count))};
  if (const auto* flag = std::get_if<bool O::*>(&option.member)) return std::vector<double>{options.*(*flag) ? 1.0 : 0.0};
  return options.*std::get<std::string O::*>(option.member);
}
template <class O>
bool put_stored(const Option<O>& option, O& options, const StoredOption& value) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    const auto* const member = std::get_if<std::string O::*>(&option.member);
    if (member) options.*(*member) = *text;
    return member != nullptr;
  }
  const auto& from = std::get<std::vector<double>>(value);
  if (const auto numbers = numbers_of(option, options); !numbers.empty()) {
    if (numbers.size() != from.size()) return false;
    std::copy(from.begin(), from.end(), numbers.begin());
    return true;
  }
  if (from.size() != 1 || !(std::abs(from[0]) < 0x1p53)) return false;
  if (const auto* count = std::get_if<int64_t O::*>(&option.member)) return options.*(*count) = int64_t(from[0]), true;
  if (const auto* flag = std::get_if<bool O::*>(&option.member)) return options.*(*flag) = from[0] != 0, true;
  return false;
}

// Are the values of all options of the list the same? Each step asks this, so it allocates nothing.
template <class O>
requires requires { O::list(); }
bool same_values(const O& a, const O& b) {
  const auto same = [&](const auto& member) { return a.*member == b.*member; };
  for (const Option<O>& option : O::list()) {
    if (!std::visit(same, option.member)) return false;
  }
  return true;
}

// Throws ValueError for a value outside its domain.
template <class O>
void check_option(const char* optimizer, const Option<O>& option, const O& options) {
  const auto number = [&](double x) {
    const char* const from = option.above_least ? "> " : ">= ";
    const std::string domain = std::isfinite(option.below)
                                   ? joined("in ", option.above_least ? '(' : '[', option.least, ", ", option.below, ')')
                                   : joined(from, option.least);
    check<ValueError>((option.above_least ? x > option.least : x >= option.least) && x < option.below, optimizer, option.name,
                      " must be ", domain, ", got ", x);
  };
  if (const auto numbers = numbers_of(option, options); !numbers.empty()) {
    for (const double x : numbers) number(x);
  } else if (const auto* count = std::get_if<int64_t O::*>(&option.member)) {
    number(double(options.*(*count)));
  } else if (const auto* text = std::get_if<std::string O::*>(&option.member)) {
    bool known = false;
    std::string all;
    for (const std::string& choice : option.choices) {
      known = known || options.*(*text) == choice;
      all += (all.empty() ? "" : ", ") + choice;
    }
    check<ValueError>(known, optimizer, option.name, " must be one of ", all, ", got ", options.*(*text));
  }
}

}  // namespace halfstep
