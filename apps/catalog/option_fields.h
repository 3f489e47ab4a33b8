// SPDX-License-Identifier: Apache-2.0
// JSON fields of options (framework/base/options.h): what a list says of an option is its type, bounds, default and documentation.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/schema/schema.h"
#include "framework/base/options.h"

namespace halfstep::app {

struct FieldRules {
  int dims = 0;              // how many numbers sizes may have besides one for all; 0: up to kMaxDims
  double most = kMaxSample;  // of integers that have a least value and no other bound
};
// `otherwise`: the default; monostate: none.
Field field_of(const OptionFacts& option, const OptionValue& otherwise, const FieldRules& rules = {});

// A value of a checked config as data for the option. A word in place of a number is no value.
OptionValue value_in(const Json& json, const OptionFacts& option);

// One number, or a list of `count` (0: of any length up to 8); `doc` describes it.
Field sizes(std::string key, Json fallback, int count, int64_t least, std::string doc);

// The field of a component, to be changed where a config says more than the list of options. Throws ConfigError without one.
Field& field_of(Component& component, std::string_view key);

template <HasOptionList O>
std::vector<Field> fields_of(const O& defaults = {}, const FieldRules& rules = {}) {
  std::vector<Field> out;
  for (const Option<O>& o : O::list()) out.push_back(field_of(o, o.get(defaults), rules));
  return out;
}

// Puts the values of `self` into `out`, which keeps its own where `self` has none. Throws ValueError for a count of numbers that is
// between those that the option takes.
template <HasOptionList O>
void read_options(const Json& self, O& out) {
  for (const Option<O>& o : O::list()) {
    const auto given = self.find(o.name);
    if (given == self.end()) continue;
    if (!o.put(out, value_in(*given, o)) && given->is_array())
      fail<ValueError>(self.value("type", "options"), o.name, " must have ", o.counts(), " numbers, got ", given->size());
  }
}

}  // namespace halfstep::app
