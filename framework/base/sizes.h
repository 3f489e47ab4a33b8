// SPDX-License-Identifier: Apache-2.0
// Arguments for the dimensions of a window: one number for all of them, or one each.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <string_view>

#include "framework/base/shape.h"

namespace halfstep {

// MaxPool2d(3), Conv2d(3, 8, {3, 2}). Empty: not given.
class Sizes {
 public:
  Sizes() = default;
  template <std::integral T>
  requires(!std::same_as<T, bool>) Sizes(T all) : values_{int64_t(all)}, is_number_(true) {}
  // {3, 2}. Not of a std::initializer_list: GCC would take {.stride = 2} for one.
  template <std::integral First, std::integral... Rest>
  requires(sizeof...(Rest) > 0) Sizes(First first, Rest... rest) : values_{int64_t(first), int64_t(rest)...} {}
  Sizes(const Dims& each) : values_(each) {}

  bool empty() const { return values_.empty(); }
  bool is_number() const { return is_number_; }
  const Dims& values() const { return values_; }
  bool operator==(const Sizes&) const = default;
  // Returns one number for each of `count` dimensions. Throws ValueError, naming `layer` and the argument, for another number of
  // them and for one below `least`.
  Dims each(int count, std::string_view layer, std::string_view argument,
            int64_t least = std::numeric_limits<int64_t>::min()) const;

 private:
  Dims values_;
  bool is_number_ = false;
};

}  // namespace halfstep
