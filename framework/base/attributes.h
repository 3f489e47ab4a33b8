// SPDX-License-Identifier: Apache-2.0
// The arguments of an op call other than tensors, under PyTorch's names: for plans, traces and exports.
//
//   static Attributes describe(const Attr& a) { return {{"dim", a.dim}, {"keepdim", a.keepdim}}; }
#pragma once

#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "framework/base/shape.h"

namespace halfstep {

struct Attribute {
  using Value = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>>;
  std::string_view name;  // a literal
  Value value;

  Attribute(std::string_view n, bool v) : name(n), value(v) {}
  template <std::integral T>
  Attribute(std::string_view n, T v) : name(n), value(int64_t(v)) {}
  Attribute(std::string_view n, double v) : name(n), value(v) {}
  Attribute(std::string_view n, std::string_view v) : name(n), value(std::string(v)) {}
  Attribute(std::string_view n, const char* v) : name(n), value(std::string(v)) {}
  Attribute(std::string_view n, std::span<const int64_t> v) : name(n), value(std::vector<int64_t>(v.begin(), v.end())) {}
  Attribute(std::string_view n, const Dims& v) : Attribute(n, v.span()) {}
  Attribute(std::string_view n, std::vector<int64_t> v) : name(n), value(std::move(v)) {}
  Attribute(std::string_view n, std::vector<double> v) : name(n), value(std::move(v)) {}
  bool operator==(const Attribute&) const = default;
};
using Attributes = std::vector<Attribute>;

// Returns the attribute's value, or null if there is none with that name and type.
template <class T>
const T* find_attribute(const Attributes& all, std::string_view name) {
  for (const Attribute& a : all)
    if (a.name == name) return std::get_if<T>(&a.value);
  return nullptr;
}

// Returns "stride=[2, 2] groups=1"; "" for no attributes.
std::string text(const Attributes& all);

}  // namespace halfstep
