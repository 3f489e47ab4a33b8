// SPDX-License-Identifier: Apache-2.0
// The options of an optimizer as a list that can be walked: its text, its checks, its JSON and the docs are made from it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include "framework/base/check.h"

namespace halfstep {

// An option of the struct O. Several numbers under one name are a tuple, as PyTorch's betas are.
template <class O>
struct Option {
  using Numbers = std::vector<double O::*>;
  std::string name;
  std::variant<Numbers, int64_t O::*, bool O::*, std::string O::*> member;
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

template <class O>
Option<O> option(std::string name, double O::*member, std::string doc) {
  return {std::move(name), typename Option<O>::Numbers{member}, std::move(doc)};
}
template <class O>
Option<O> option(std::string name, typename Option<O>::Numbers members, std::string doc) {
  return {std::move(name), std::move(members), std::move(doc)};
}
template <class O, class T>
Option<O> option(std::string name, T O::*member, std::string doc) {
  return {std::move(name), member, std::move(doc)};
}

// "momentum=0.9", or nothing for options without an effect: false, and a 0 that is the default.
template <class O>
std::string shown(const Option<O>& option, const O& options) {
  std::ostringstream out;
  out << option.name << '=';
  if (const auto* numbers = std::get_if<0>(&option.member)) {
    const bool tuple = numbers->size() > 1;
    if (!tuple && options.*(*numbers)[0] == 0 && O{}.*(*numbers)[0] == 0) return {};
    for (size_t i = 0; i < numbers->size(); ++i) out << (i ? ", " : tuple ? "(" : "") << options.*(*numbers)[i];
    if (tuple) out << ')';
  } else if (const auto* count = std::get_if<1>(&option.member)) {
    out << options.*(*count);
  } else if (const auto* flag = std::get_if<2>(&option.member)) {
    if (!(options.*(*flag))) return {};
    out << "True";
  } else {
    out << options.*std::get<3>(option.member);
  }
  return out.str();
}

// All values in the order of the list, texts as numbers: equal where the options are. `left_out`: numbers that do not count.
template <class O>
std::vector<double> values_of(const O& options, const std::vector<const double*>& left_out = {}) {
  std::vector<double> out;
  for (const Option<O>& option : O::list()) {
    if (const auto* numbers = std::get_if<0>(&option.member)) {
      for (double O::*member : *numbers) {
        if (std::find(left_out.begin(), left_out.end(), &(options.*member)) == left_out.end()) out.push_back(options.*member);
      }
    } else if (const auto* count = std::get_if<1>(&option.member)) {
      out.push_back(double(options.*(*count)));
    } else if (const auto* flag = std::get_if<2>(&option.member)) {
      out.push_back(options.*(*flag));
    } else {
      out.push_back(double(std::hash<std::string>{}(options.*std::get<3>(option.member))));
    }
  }
  return out;
}

// Are the values of all options of the list the same? Each step asks this, so it allocates nothing.
template <class O>
  requires requires { O::list(); }
bool same_values(const O& a, const O& b) {
  const auto same = [&](const auto& member) {
    if constexpr (requires { a.*member; })
      return a.*member == b.*member;
    else
      return std::all_of(member.begin(), member.end(), [&](double O::*number) { return a.*number == b.*number; });
  };
  return std::all_of(O::list().begin(), O::list().end(), [&](const Option<O>& o) { return std::visit(same, o.member); });
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
  if (const auto* numbers = std::get_if<0>(&option.member)) {
    for (double O::*member : *numbers) number(options.*member);
  } else if (const auto* count = std::get_if<1>(&option.member)) {
    number(double(options.*(*count)));
  } else if (const auto* text = std::get_if<3>(&option.member)) {
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
