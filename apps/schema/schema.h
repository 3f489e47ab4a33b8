// SPDX-License-Identifier: Apache-2.0
// A schema of configs as data: fields with type, range, default and documentation.
//
//   const Section kScaler{"scaler", {number("init_scale", 65536, "first loss scale").above(0), ...}};
//
// validate() checks a JSON value against it, reports all errors and returns the value with all defaults filled in. null means "not
// given" everywhere.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "apps/schema/issues.h"
#include "apps/schema/json.h"

namespace halfstep::app {

inline constexpr int64_t kMaxSample = (int64_t(1) << 31) - 1;  // values in a sample, and width of a layer
inline constexpr double kMaxCount = 1e9;                       // most steps, epochs, samples and the like
inline constexpr int kNoMaxItems = 1 << 30;                    // a list may have any length
inline constexpr int kMaxMapItems = 100;                       // keys of a map

struct Section;
struct Family;

enum class FieldKind : uint8_t { boolean, integer, number, text, interval, byte_count, list, map, section, component, not_yet };

struct Field {
  std::string key;
  FieldKind kind;
  std::string doc;
  Json fallback = nullptr;  // null: absent unless given
  bool needed = false;
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;     // the bound itself is excluded
  std::vector<std::string> words = {};          // text: the allowed words (none: any); other kinds: words allowed besides values
  int min_items = 0, max_items = kNoMaxItems;   // length of a list
  std::shared_ptr<const Field> item = nullptr;  // of a list; of a map: its values
  bool keys_are_patterns = false;               // of a map: keys are regular expressions
  bool or_single = false;                       // of a list: one item without brackets is allowed
  bool null_items = false;                      // of a list: items may be null
  const Section* section = nullptr;
  const Family* family = nullptr;
  bool switchable = false;     // a section: `true` or `false` is allowed
  std::string short_for = {};  // a section: a string is allowed, the value of this key
  bool also_integer = false;   // text: an integer is allowed
  bool is_pattern = false;     // text: must be a regular expression
  bool also_boolean = false;   // a list: true or false is allowed
  int from_input = 0;          // of a layer: if omitted, the size of this dimension of the input (not 0, the batch); if a
                               // number is given, it must be that size; a list, where allowed, is not checked
  bool from_target = false;    // "auto" is the number of classes, or the width of the target
  bool from_tokens = false;    // "auto" is the number of tokens of the data
  bool from_streams = false;   // "auto" is true if the data is read in streams

  Field required() const;
  Field above(double bound) const;  // > bound
  Field at_least(double bound) const;
  Field below(double bound) const;  // < bound
  Field at_most(double bound) const;
  Field or_word(std::string word) const;
  Field items(int least, int most) const;
  Field or_one() const;                  // of a list: one item without brackets is allowed
  Field with_nulls() const;              // of a list: items may be null
  Field or_boolean() const;              // of a list
  Field or_text(std::string key) const;  // of a section
  Field from_input_dim(int dim) const;
  Field or_target_width() const;  // or "auto"
  Field or_vocabulary() const;    // or "auto"
  Field or_streams() const;       // or "auto"
  // Describes the allowed values: "a number > 0", "a list of integers >= 1", "\"min\" or \"max\"". Omits an upper bound far above
  // usual values; the message about a value beyond it names it.
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
// Makes a field for an object with the user's own keys, at most kMaxMapItems of them.
Field map(std::string key, Field value, bool keys_are_patterns, std::string doc);
Field section(std::string key, const Section& section, std::string doc);
Field optional_section(std::string key, const Section& section, std::string doc);  // absent by default
Field component(std::string key, const Family& family, std::string doc);
// Makes a field that is known, but accepts only `accepted` (null: nothing) so far.
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
  bool of_program = false;  // added by HALFSTEP_REGISTER_..., unknown to other programs and to PyTorch
};
struct Family {
  std::string what;  // its kind: "layer", "optimizer"
  std::vector<Component> components;
  std::vector<Field> common;          // fields of every component
  std::vector<std::string> cpp_only;  // types that programs can use, but configs cannot
  const Component* find(std::string_view type) const;
};

// Returns the types of a kind of component ("layer") that only programs can use.
std::vector<std::string> cpp_only_components(const std::string& what);
// Returns what a config has in place of another program's key, or, for key "", of its type: "; ..."; "": unknown.
std::string in_place_of(const std::string& what, const std::string& type, const std::string& key);

// Validates a whole document.
Json validate(const Json& value, const Section& section, const std::string& path, Issues& issues);
Json validate(const Json& value, const Field& field, const std::string& path, Issues& issues);

}  // namespace halfstep::app
