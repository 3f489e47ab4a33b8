// SPDX-License-Identifier: Apache-2.0
// JSON fields of options (framework/base/options.h): their types, bounds, defaults and documentation come from the list of
// options.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/schema/schema.h"
#include "framework/base/options.h"

namespace halfstep::app {

struct FieldRules {
  int dims = 0;              // dimensions of sizes that are not one number; 0: up to kMaxDims
  double most = kMaxSample;  // bound of integers that have a lower bound only
};
// Makes the field of an option. default_value: monostate for none.
Field field_of(const OptionFacts& option, const OptionValue& default_value, const FieldRules& rules = {});

// Converts a value of a checked config for the option. A word in place of a number or for nothing is no value.
OptionValue value_in(const Json& json, const OptionFacts& option);
// Returns the texts of a list, or one; numbers are written out.
std::vector<std::string> texts_in(const Json& json);

// Makes a field of one number, or a list of `count` (0: up to 8); `doc` describes it.
Field sizes(std::string key, Json fallback, int count, int64_t least, std::string doc);

// Returns the fields of all lists.
std::vector<Field> joined_fields(std::vector<std::vector<Field>> lists);

// Returns the field of a component, to change it where a config needs more than the list of options says. Throws ConfigError
// without one.
Field& field_of(Component& component, std::string_view key);

template <HasOptionList O>
std::vector<Field> fields_of(const O& defaults = {}, const FieldRules& rules = {}) {
  std::vector<Field> out;
  for (const Option<O>& o : O::list()) out.push_back(field_of(o, o.get(defaults), rules));
  return out;
}

// Assigns the values of `self` to `out`; missing ones are unchanged. Throws ValueError for a count of numbers that is between those
// that the option takes.
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
