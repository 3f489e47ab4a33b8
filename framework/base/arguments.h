// SPDX-License-Identifier: Apache-2.0
// Members of structs of arguments, which are given by name: MaxPool2d({.kernel_size = 3, .stride = 2}).
#pragma once

#include <concepts>
#include <initializer_list>
#include <type_traits>
#include <utility>

namespace halfstep {

// First member of arguments that are given by name only: {.stride = 2, .padding = 1}, and {2, 1} does not compile.
struct ByName {
  explicit ByName() = default;
};

// The type of a list's elements; for a type that is no list, one of which no caller has a value.
template <class T>
struct ElementOf {
  class Type {};
};
template <class T>
requires requires { typename T::value_type; }
struct ElementOf<T> {
  using Type = typename T::value_type;
};
// An argument that must be given: a call that leaves it out does not compile. An integer accepts neither floating-point numbers,
// whose fraction would be cut off, nor bools. A list is given in braces or as a variable.
template <class T>
class Required {
  template <class U>
  static constexpr bool kFits = std::convertible_to<U, T> && (!std::integral<T> || (std::integral<std::remove_cvref_t<U>> &&
                                                                                    !std::same_as<std::remove_cvref_t<U>, bool>));

 public:
  Required() = delete;  // a required argument was left out
  template <class U>
  requires kFits<U>
  constexpr Required(U&& value) : value_(std::forward<U>(value)) {}
  template <class... U>
  requires(sizeof...(U) > 1 && !requires { typename T::value_type; } &&
           std::constructible_from<T, U...>) constexpr Required(U&&... each)
      : value_(std::forward<U>(each)...) {}
  Required(std::initializer_list<typename ElementOf<T>::Type> each) : value_(each) {}
  constexpr const T& operator*() const { return value_; }

 private:
  T value_;
};

}  // namespace halfstep
