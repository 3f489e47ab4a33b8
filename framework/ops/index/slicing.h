// SPDX-License-Identifier: Apache-2.0
// Indexes like Python's x[..., 1:5, None, mask]; with `using namespace halfstep::indexing`:
//   x.index({Ellipsis, Slice(1, 5), None, mask})
// With a tensor or a list among the indices the result is a copy; otherwise it is a view. A list keeps its dimension:
// x.index({Slice(), {-1}}) is x[:, [-1]], of shape [n, 1], and x.index({Slice(), -1}) is x[:, -1], of shape [n].
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "framework/tensor/tensor.h"

namespace halfstep {
namespace indexing {

#ifndef None                                          // X11 defines it as 0L: write std::nullopt where its headers are included
inline constexpr std::nullopt_t None = std::nullopt;  // a new dimension of size 1
#endif
struct EllipsisType {};
inline constexpr EllipsisType Ellipsis{};  // as many whole dimensions as missing

// start:stop:step. None: from the first, to the last. Negative numbers count from the end, and out-of-range parts are cut off;
// step must be positive.
struct Slice {
  Slice(std::optional<int64_t> from = {}, std::optional<int64_t> until = {}, std::optional<int64_t> by = {})
      : start(from), stop(until), step(by) {}
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
  // Selects one element; a bool selects all, or nothing, in a new dimension.
  template <std::integral T>
  TensorIndex(T i) : value_(Number{int64_t(i), std::is_same_v<T, bool>}) {}

 private:
  friend class Indexed;
  struct New {};  // None: a new dimension
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

// x[index]: a view, or the copy that a tensor or a list selects. Assigning to the temporary writes to x in both cases, as in
// Python: x[mask] = 0, x[rows] += y. A variable of it is an ordinary tensor.
class IndexedPart : public Tensor {
 public:
  IndexedPart(const Tensor& from, const TensorIndex& at);
  IndexedPart(const IndexedPart&) = default;
  IndexedPart& operator=(const IndexedPart&) & = default;
  IndexedPart& operator=(const Tensor& other) &;  // makes it another tensor
  template <class V>
  requires(std::derived_from<V, Tensor> || std::is_arithmetic_v<V>) void operator=(const V& values) && { put(values); }
#define HS_ONTO(sign)                                 \
  template <class V>                                  \
  const Tensor& operator sign##=(const V& v) const& { \
    return Tensor::operator sign##=(v);               \
  }                                                   \
  template <class V>                                  \
  void operator sign##=(const V& v)&& {               \
    if (from_.defined())                              \
      put(static_cast<const Tensor&>(*this) sign v);  \
    else                                              \
      Tensor::operator sign##=(v);                    \
  }
  HS_ONTO(+)
  HS_ONTO(-)
  HS_ONTO(*)
  HS_ONTO(/)
  HS_ONTO(%)
#undef HS_ONTO

 private:
  template <class V>
  void put(const V& values) {
    if (from_.defined())
      from_.index_put_({at_}, values);
    else
      static_cast<Tensor&&>(*this) = values;
  }
  Tensor from_;  // undefined: this is a view of the original
  TensorIndex at_;
};

}  // namespace halfstep
