// SPDX-License-Identifier: Apache-2.0
// x[..., 1:5, None, mask] as in Python: with `using namespace halfstep::indexing`,
//   x.index({Ellipsis, Slice(1, 5), None, mask})
// A tensor or a list among the indices takes elements, which is a copy; all others make a view. A list keeps its dimension:
// x.index({Slice(), {-1}}) is x[:, [-1]], of shape [n, 1], and x.index({Slice(), -1}) is x[:, -1], of shape [n].
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "framework/tensor/tensor.h"

namespace halfstep {
namespace indexing {

inline constexpr std::nullopt_t None = std::nullopt;  // a new dimension of size 1
struct EllipsisType {};
inline constexpr EllipsisType Ellipsis{};  // as many whole dimensions as are missing

// start:stop:step. None: from the first, to the last. Negative numbers count from the end, and what lies outside is cut off; step
// is positive.
struct Slice {
  Slice(std::optional<int64_t> start = {}, std::optional<int64_t> stop = {}, std::optional<int64_t> step = {})
      : start(start), stop(stop), step(step) {}
  std::optional<int64_t> start, stop, step;
};

}  // namespace indexing

class TensorIndex {
 public:
  TensorIndex(std::nullopt_t) : value_(New{}) {}
  TensorIndex(indexing::EllipsisType) : value_(indexing::Ellipsis) {}
  TensorIndex(const char* dots);  // "...", else ValueError
  TensorIndex(const indexing::Slice& s) : value_(s) {}
  TensorIndex(const Tensor& t) : value_(t) {}  // indices, or a mask
  TensorIndex(std::initializer_list<int64_t> indices) : value_(List{indices, false}) {}
  template <std::same_as<bool> T>
  TensorIndex(std::initializer_list<T> mask) : value_(List{{mask.begin(), mask.end()}, true}) {}
  template <std::integral T>
  // One element; a bool: all, or nothing, in a new dimension.
  TensorIndex(T i) : value_(Number{int64_t(i), std::is_same_v<T, bool>}) {}

 private:
  friend class Indexed;
  struct New {};
  struct Number {
    int64_t value;
    bool is_bool;
  };
  struct List {
    std::vector<int64_t> values;
    bool is_mask;
  };
  std::variant<New, indexing::EllipsisType, indexing::Slice, Number, List, Tensor> value_;
};

}  // namespace halfstep
