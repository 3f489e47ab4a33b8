// SPDX-License-Identifier: Apache-2.0
// Ops on the bits of integers, and on masks. Shapes broadcast and dtypes promote as in other ops of two tensors. On bool tensors,
// which have one bit, and, or, xor and not are the logical ones. Throws DTypeError for floating tensors, and for shifts of bool.
// No gradient.
#pragma once

#include <concepts>
#include <cstdint>

#include "framework/tensor/tensor.h"

namespace halfstep {

// Makes an operand from a C++ number, which keeps the tensor's dtype unless that is bool.
Tensor bit_number(int64_t value);
Tensor bit_number(bool value);
template <std::integral Integer>
Tensor bits_of(Integer value) {
  if constexpr (std::same_as<Integer, bool>)
    return bit_number(value);
  else
    return bit_number(int64_t(value));
}

Tensor bitwise_not(const Tensor& x);
inline Tensor operator~(const Tensor& x) { return bitwise_not(x); }

// Right shifts keep the sign. A shift by a negative number, or by at least the number of bits, gives 0 on the left, and 0 or -1 on
// the right.
#define HS_BITS(name, symbol)                                                                                    \
  Tensor name(const Tensor& a, const Tensor& b);                                                                 \
  template <std::integral N> Tensor name(const Tensor& a, N b) { return name(a, bits_of(b)); }                   \
  template <std::integral N> Tensor name(N a, const Tensor& b) { return name(bits_of(a), b); }                   \
  template <std::integral N> Tensor Tensor::name(N b) const { return halfstep::name(*this, b); }                 \
  inline Tensor operator symbol(const Tensor& a, const Tensor& b) { return name(a, b); }                         \
  template <std::integral N> Tensor operator symbol(const Tensor& a, N b) { return name(a, b); }                 \
  template <std::integral N> Tensor operator symbol(N a, const Tensor& b) { return name(a, b); }                 \
  inline const Tensor& operator symbol##=(const Tensor& x, const Tensor& y) { return x.name##_(y); }             \
  template <std::integral N> const Tensor& operator symbol##=(const Tensor& x, N y) { return x.name##_(bits_of(y)); }
HS_BITS(bitwise_and, &)
HS_BITS(bitwise_or, |)
HS_BITS(bitwise_xor, ^)
HS_BITS(bitwise_left_shift, <<)
HS_BITS(bitwise_right_shift, >>)
#undef HS_BITS

}  // namespace halfstep
