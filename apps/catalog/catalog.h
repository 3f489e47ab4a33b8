// SPDX-License-Identifier: Apache-2.0
// A catalogue: the components of one kind that a config may name, with a row of fields and a factory for each. Checks,
// construction, documentation and error texts all read the same rows; programs can add rows.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "apps/schema/schema.h"
#include "framework/base/check.h"

namespace halfstep::app {

// Row: a struct {.component, .make, ...}.
template <class Row>
class Catalog {
 public:
  Catalog(std::string what, std::vector<Field> common) {
    family_.cpp_only = cpp_only_components(what);
    family_.what = std::move(what);
    family_.common = std::move(common);
  }
  Catalog(const Catalog&) = delete;

  // Throws ConfigError for a duplicate type.
  void add(Row row) {
    const std::string& type = row.component.type;
    check<ConfigError>(!family_.find(type), family_.what, "\"", type, "\" is already in the catalogue",
                       Help{"give your class another name"});
    std::erase(family_.cpp_only, type);
    family_.components.push_back(row.component);
    rows_.push_back(std::move(row));
  }
  // Adds a class of the program that is linked with halfstep.
  void add_of_program(Row row) {
    row.component.of_program = true;
    add(std::move(row));
  }
  const Family& family() const { return family_; }
  // Finds the row of a component that was checked. Throws ConfigError for an unknown type.
  const Row& row(const Json& self) const {
    const std::string type = self["type"];
    for (const Row& r : rows_) {
      if (r.component.type == type) return r;
    }
    fail<ConfigError>(family_.what, "unknown ", family_.what, " \"", type, '"');
  }
  const std::deque<Row>& rows() const { return rows_; }
  // Returns whether the type has a field of its own that replaces the common one.
  bool has_own_field(const Json& self, std::string_view key) const {
    const std::vector<Field>& own = row(self).component.fields;
    return std::any_of(own.begin(), own.end(), [&](const Field& f) { return f.key == key; });
  }

 private:
  Family family_;
  std::deque<Row> rows_;  // never move: others keep references
};

// A field whose value is passed to a constructor as a T: int64_t, double, bool, std::string, a vector of these, or an optional,
// which is empty if the field has no value or a word such as "auto".
template <class T>
struct Arg {
  Field field;
};
template <class T>
Arg<T> arg(Field field) {
  return {std::move(field)};
}

template <class T>
struct ReadArg {
  static T from(const Json& value) { return value.get<T>(); }
};
template <class T>
struct ReadArg<std::optional<T>> {
  static std::optional<T> from(const Json& value) {
    const bool word = value.is_string() && !std::is_same_v<T, std::string>;
    return value.is_null() || word ? std::nullopt : std::optional<T>(value.get<T>());
  }
};
template <class T>
T value_of(const Json& self, const Arg<T>& a) {
  return ReadArg<T>::from(self[a.field.key]);
}

}  // namespace halfstep::app

// Registers a class of this program as a component of the kind's configs, under its own name. The row's arguments other than
// fields come first.
#define HALFSTEP_REGISTER(kind, Class, ...)                                                                  \
  [[maybe_unused]] static const bool halfstep_registered_##Class =                                           \
      (::halfstep::app::kind##_catalog().add_of_program(                                                     \
           ::halfstep::app::kind##_row<Class>(#Class, #kind " of this program" __VA_OPT__(, ) __VA_ARGS__)), \
       true)
