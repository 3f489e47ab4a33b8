// SPDX-License-Identifier: Apache-2.0
// ArrayRef: lists that belong to others. irange: ranges of integers for loops.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <iterator>

#include "framework/base/shape.h"
#include "torch/base/error.h"

namespace torch {

template <class T>
class ArrayRef {
 public:
  using value_type = T;
  using iterator = const T*;
  using const_iterator = const T*;
  constexpr ArrayRef() = default;
  constexpr ArrayRef(const T& one) : data_(&one), size_(1) {}
  constexpr ArrayRef(const T* data, size_t size) : data_(data), size_(size) {}
  constexpr ArrayRef(const T* begin, const T* end) : data_(begin), size_(size_t(end - begin)) {}
  template <class A>
  ArrayRef(const std::vector<T, A>& v) : data_(v.data()), size_(v.size()) {}
  template <size_t n>
  constexpr ArrayRef(const std::array<T, n>& a) : data_(a.data()), size_(n) {}
  template <size_t n>
  constexpr ArrayRef(const T (&a)[n]) : data_(a), size_(n) {}
#pragma GCC diagnostic push
#ifndef __clang__
#pragma GCC diagnostic ignored "-Winit-list-lifetime"  // the list must outlive this view
#endif
  constexpr ArrayRef(const std::initializer_list<T>& l) : data_(l.begin() == l.end() ? nullptr : l.begin()), size_(l.size()) {}
#pragma GCC diagnostic pop
  constexpr iterator begin() const { return data_; }
  constexpr iterator end() const { return data_ + size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr const T* data() const { return data_; }
  constexpr size_t size() const { return size_; }
  const T& front() const { return (*this)[0]; }
  const T& back() const { return (*this)[size_ - 1]; }
  const T& operator[](size_t i) const { return data_[i]; }
  const T& at(size_t i) const {
    if (i >= size_) detail::fail("ArrayRef: invalid index Index = ", i, "; Length = ", size_);
    return data_[i];
  }
  ArrayRef slice(size_t from, size_t count) const { return {data_ + from, count}; }
  ArrayRef slice(size_t from) const { return slice(from, size_ - from); }
  std::vector<T> vec() const { return {begin(), end()}; }
  bool equals(ArrayRef o) const { return size_ == o.size_ && std::equal(begin(), end(), o.begin()); }
  friend bool operator==(ArrayRef a, ArrayRef b) { return a.equals(b); }
  friend bool operator==(const std::vector<T>& a, ArrayRef b) { return ArrayRef(a).equals(b); }
  friend bool operator==(ArrayRef a, const std::vector<T>& b) { return a.equals(ArrayRef(b)); }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};
template <class T>
std::ostream& operator<<(std::ostream& out, ArrayRef<T> a) {
  out << "[";
  for (size_t i = 0; i < a.size(); ++i) out << (i ? ", " : "") << a[i];
  return out << "]";
}
using IntArrayRef = ArrayRef<int64_t>;
// The integers in [from, to), for loops.
template <std::integral T>
struct IntegerRange {
  struct iterator {
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::input_iterator_tag;
    using reference = T;
    using pointer = const T*;
    T at;
    T operator*() const { return at; }
    iterator& operator++() { return ++at, *this; }
    iterator operator++(int) { return {at++}; }
    bool operator==(const iterator&) const = default;
  };
  iterator begin() const { return {from}; }
  iterator end() const { return {to}; }
  T from, to;
};
// Return the integers in [0, end) or [begin, end); none if end is not larger.
template <std::integral T>
IntegerRange<T> irange(T end) {
  return {T(0), std::max(T(0), end)};
}
template <std::integral A, std::integral B>
IntegerRange<B> irange(A begin, B end) {
  return {B(begin), std::max(B(begin), end)};
}
namespace detail {
inline hs::Dims D(IntArrayRef a) { return hs::Dims(std::span<const int64_t>(a.data(), a.size())); }
inline hs::Dims D(const std::vector<int64_t>& a) { return hs::Dims(a); }
}  // namespace detail

}  // namespace torch
