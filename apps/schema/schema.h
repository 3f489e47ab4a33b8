// SPDX-License-Identifier: Apache-2.0
// What a config may hold, as data: fields with type, range, default and documentation.
//
//   const Section kScaler{"scaler", {number("init_scale", 65536, "first loss scale").above(0), ...}};
//
// validate() checks a JSON value against it, reports all errors and returns the value with all defaults filled in. null is used
// for "not given" everywhere.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "apps/schema/issues.h"
#include "apps/schema/json.h"

namespace halfstep::app {

inline constexpr int64_t kMaxSample = (int64_t(1) << 31) - 1;  // values of a sample, and the width of a layer
inline constexpr double kMaxCount = 1e9;                       // of steps, epochs, samples and the like in a config

struct Section;
struct Family;

enum class Kind : uint8_t { boolean, integer, number, text, interval, byte_count, list, map, section, component, not_yet };

struct Field {
  std::string key;
  Kind kind;
  std::string doc;
  Json fallback = nullptr;  // null: absent unless given
  bool needed = false;
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;  // the bound itself is not legal
  std::vector<std::string> words = {};       // text: the legal ones (none: any); others: words legal besides
  int min_items = 0, max_items = 1 << 30;    // of a list
  std::shared_ptr<const Field> item = nullptr;  // of a list; of a map: a value
  bool keys_are_patterns = false;               // of a map: regular expressions
  bool or_single = false;     // a list: or one item, without brackets
  bool null_items = false;    // a list: items may be null
  const Section* section = nullptr;
  const Family* family = nullptr;
  bool switchable = false;    // a section that may also be `true` or `false`
  std::string short_for = {};  // a section that may also be a string, the value of this key
  bool also_integer = false;   // text: or an integer
  bool is_pattern = false;     // text: a regular expression
  bool also_boolean = false;   // a list: or true or false
  int from_input = 0;         // of a layer: left out, it is the size of this dimension of the input (not 0, the batch), and a
                              // number must be that size; a list, where the field is one, may say more
  bool from_target = false;   // "auto" is the number of classes, or the width of the target
  bool from_tokens = false;   // "auto" is the number of tokens of the data
  bool from_streams = false;  // "auto" is true if the data is read in streams

  Field required() const;
  Field above(double bound) const;  // > bound
  Field at_least(double bound) const;
  Field below(double bound) const;  // < bound
  Field at_most(double bound) const;
  Field or_word(std::string word) const;
  Field items(int least, int most) const;
  Field or_one() const;      // of a list: one item will do, without brackets
  Field with_nulls() const;  // of a list: an item may be null
  Field or_boolean() const;  // of a list
  Field or_text(std::string key) const;  // of a section
  Field from_input_dim(int dim) const;
  Field or_target_width() const;  // or "auto"
  Field or_vocabulary() const;    // or "auto"
  Field or_streams() const;       // or "auto"
  // "a number > 0", "a list of integers >= 1", "\"min\" or \"max\"". An upper bound that is far above all that people write is
  // left out; the message about a value beyond it names it.
  std::string expects() const;
  bool is_far(double bound) const;
};

Field boolean(std::string key, Json fallback, std::string doc);
Field integer(std::string key, Json fallback, std::string doc);
Field number(std::string key, Json fallback, std::string doc);
Field text(std::string key, Json fallback, std::string doc);
Field pattern(std::string key, Json fallback, std::string doc);  // apps/schema/pattern.h
Field choice(std::string key, Json fallback, std::vector<std::string> words, std::string doc);
Field interval(std::string key, Json fallback, std::string doc);
Field byte_count(std::string key, Json fallback, std::string doc);  // apps/schema/byte_count.h
Field list(std::string key, Json fallback, Field item, std::string doc);
// An object with keys of the user's, at most max_items of them.
Field map(std::string key, Field value, bool keys_are_patterns, std::string doc);
Field section(std::string key, const Section& section, std::string doc);
Field optional_section(std::string key, const Section& section, std::string doc);  // absent stays absent
Field component(std::string key, const Family& family, std::string doc);
// Known, but only as `accepted` (null: not at all) so far.
Field not_yet(std::string key, Json accepted, std::string doc);

// An object with named fields.
struct Section {
  std::string name;
  std::vector<Field> fields;
  const Field* find(std::string_view key) const;
};

// An object whose "type" decides its other fields.
struct Component {
  std::string type, doc;
  std::vector<Field> fields;
};
struct Family {
  std::string what;  // "layer", "optimizer"
  std::vector<Component> components;
  std::vector<Field> common;         // fields of every component
  std::vector<std::string> cpp_only;  // types that a config cannot use, and a program can
  const Component* find(std::string_view type) const;
};

// Types that only programs can use, by the kind of component: "layer".
std::vector<std::string> cpp_only_components(const std::string& what);
// What a config has in place of a key of another program's, or, for key "", in place of a type: "; ..."; "" where nothing is known.
std::string in_place_of(const std::string& what, const std::string& type, const std::string& key);

// A whole document.
Json validate(const Json& value, const Section& section, const std::string& path, Issues& issues);
Json validate(const Json& value, const Field& field, const std::string& path, Issues& issues);

}  // namespace halfstep::app
