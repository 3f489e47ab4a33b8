// SPDX-License-Identifier: Apache-2.0
// Options outside of their domains, which every class that lists its options must refuse.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "framework/base/options.h"
#include "tests/support/errors.h"

namespace halfstep::testing {

// Returns values outside the domain of an option; none where everything is legal.
inline std::vector<OptionValue> damaged(const OptionFacts& o) {
  std::vector<OptionValue> out;
  const auto add = [&](double x) {
    if (x == 0 && o.zero_is_none) x = -1;
    if (o.kind == OptionKind::whole) out.emplace_back(int64_t(x));
    if (o.kind == OptionKind::number) out.emplace_back(x);
    if (o.kind == OptionKind::numbers) out.emplace_back(std::vector<double>(size_t(std::max(o.count, 1)), x));
    if (o.kind == OptionKind::sizes) out.emplace_back(Sizes(int64_t(x)));
  };
  if (std::isfinite(o.least)) add(o.least - (o.above_least ? 0 : 1));
  if (std::isfinite(o.most)) add(o.most + (o.below_most ? 0 : 1));
  if (o.not_zero) add(0);
  if (o.kind == OptionKind::number) out.emplace_back(std::nan(""));
  if ((o.kind == OptionKind::text || o.kind == OptionKind::sizes) && !o.words.empty()) out.emplace_back("no such word");
  return out;
}

// Makes an object of `usual` with each option damaged in turn: `make` refuses it with the name of the option. Returns how many.
template <class O, class Make>
int check_damaged(const std::string& type, const O& usual, const Make& make) {
  int tried = 0;
  CHECK_NOTHROW(make(usual));
  for (const Option<O>& option : O::list()) {
    CAPTURE(type + "." + option.name);
    CHECK(!option.doc.empty());
    for (const OptionValue& value : damaged(option)) {
      O options = usual;
      // A class of words takes no others, where it knows them itself.
      const std::string message = error_of([&] {
        if (!option.put(options, value)) fail<ValueError>(type, option.name, " is of another form");
        make(options);
      });
      CHECK_MESSAGE((message.find(option.name) != std::string::npos || message.find("no such word") != std::string::npos), message);
      ++tried;
    }
  }
  return tried;
}

// Makes an M of `usual` with each required argument damaged in turn: it refuses it with the name of the argument. Returns how many.
template <class M, class... T>
int check_damaged_arguments(const Arguments<T...>& all, const std::type_identity_t<T>&... usual) {
  int tried = 0;
  const auto damage = [&]<size_t i>(std::integral_constant<size_t, i>) {
    CHECK(!all.each[i].doc.empty());
    for (const OptionValue& value : damaged(all.each[i])) {
      std::tuple<T...> given(usual...);
      REQUIRE(OptionMember<std::tuple_element_t<i, std::tuple<T...>>>::put(std::get<i>(given), value));
      const std::string message = error_of([&] { std::apply([](const T&... each) { static_cast<void>(M(each...)); }, given); });
      CHECK_MESSAGE(message.find(all.each[i].name) != std::string::npos, message);
      ++tried;
    }
  };
  [&]<size_t... i>(std::index_sequence<i...>) { (damage(std::integral_constant<size_t, i>()), ...); }
  (std::index_sequence_for<T...>());
  return tried;
}

}  // namespace halfstep::testing
