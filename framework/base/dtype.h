// SPDX-License-Identifier: Apache-2.0
// Element types, the two 16-bit floats, and promotion.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <limits>
#include <optional>
#include <string_view>

namespace halfstep {

enum class DType : uint8_t {
  f16, bf16, f32, f64, u8, i8, i16, i32, i64, boolean,
  // PyTorch's names.
  float16 = f16, bfloat16 = bf16, float32 = f32, float64 = f64, uint8 = u8, int8 = i8, int16 = i16, int32 = i32, int64 = i64
};
inline constexpr int kDTypeCount = 10;
// PyTorch's names in C++.
inline constexpr DType kFloat16 = DType::f16, kHalf = DType::f16, kBFloat16 = DType::bf16, kFloat32 = DType::f32,
                       kFloat = DType::f32, kFloat64 = DType::f64, kDouble = DType::f64, kUInt8 = DType::u8, kByte = DType::u8,
                       kInt8 = DType::i8, kChar = DType::i8, kInt16 = DType::i16, kShort = DType::i16, kInt32 = DType::i32,
                       kInt = DType::i32, kInt64 = DType::i64, kLong = DType::i64, kBool = DType::boolean;

// IEEE binary16: 1 sign, 5 exponent, 10 fraction bits. Max 65504, eps 9.77e-4. Arithmetic is done in float.
struct f16 {
  uint16_t bits = 0;
  f16() = default;
  constexpr explicit f16(float v) : bits(round(v)) {}
  constexpr operator float() const { return widen(bits); }

  static constexpr uint16_t round(float v) {  // nearest, ties to even
    const uint32_t u = std::bit_cast<uint32_t>(v);
    const uint32_t sign = (u >> 16) & 0x8000u;
    uint32_t magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));  // NaN stays NaN, quiet
    if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u);                                // 65520: rounds past 65504
    if (magnitude < 0x38800000u) {                                                                // below 2^-14: subnormal or zero
      const float aligned = std::bit_cast<float>(magnitude) + 0.5f;  // its last bit is 2^-24, the unit of subnormals
      return uint16_t(sign | (std::bit_cast<uint32_t>(aligned) - 0x3f000000u));
    }
    magnitude += 0xfffu + ((magnitude >> 13) & 1u);
    return uint16_t(sign | ((magnitude - 0x38000000u) >> 13));
  }
  static constexpr float widen(uint16_t h) {  // exact
    const uint32_t sign = uint32_t(h & 0x8000u) << 16;
    const uint32_t exponent = (h >> 10) & 0x1fu, fraction = h & 0x3ffu;
    if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
    if (exponent == 0) {
      const float f = float(fraction) * 0x1p-24f;
      return sign ? -f : f;
    }
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (fraction << 13));
  }
};

// bfloat16: the upper half of a float. 8 exponent, 7 fraction bits; eps 7.81e-3. Arithmetic is done in float.
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  constexpr explicit bf16(float v) : bits(round(v)) {}
  constexpr operator float() const { return widen(bits); }

  static constexpr uint16_t round(float v) {  // nearest, ties to even
    const uint32_t u = std::bit_cast<uint32_t>(v);
    if ((u & 0x7fffffffu) > 0x7f800000u) return uint16_t((u >> 16) | 0x40u);
    return uint16_t((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  static constexpr float widen(uint16_t h) { return std::bit_cast<float>(uint32_t(h) << 16); }
};
static_assert(sizeof(f16) == 2 && sizeof(bf16) == 2);

constexpr size_t size_of(DType t) {
  constexpr size_t sizes[kDTypeCount] = {2, 2, 4, 8, 1, 1, 2, 4, 8, 1};
  return sizes[size_t(t)];
}
constexpr bool is_floating(DType t) { return t <= DType::f64; }
constexpr bool is_half(DType t) { return t == DType::f16 || t == DType::bf16; }
constexpr DType widened(DType t) { return is_half(t) ? DType::f32 : t; }  // the dtype in which 16-bit numbers are computed
constexpr bool is_integral(DType t) { return t >= DType::u8 && t <= DType::i64; }  // bool is not

// Returns "float16", "bfloat16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64" or "bool".
std::string_view name(DType t);
// Parses such a name; also accepts "f16", "half", "fp16", "bf16", "float", "fp32", "double", "long", "int". Empty if unknown.
std::optional<DType> parse_dtype(std::string_view text);
std::ostream& operator<<(std::ostream& out, DType t);

// Promotes as PyTorch does: integers lie below floats, f16 with bf16 gives f32, bool is lowest, and u8 with a signed type gives
// the next larger signed one.
DType promote(DType a, DType b);

// Return the largest finite value of a floating type, and the distance from 1 to the next number.
double max_value(DType t);
double epsilon(DType t);
struct finfo {  // the same, as torch.finfo; min is the lowest
  explicit finfo(DType t) : eps(epsilon(t)), max(max_value(t)), min(-max_value(t)) {}
  double eps, max, min;
};

template <class T> struct dtype_of_t;
template <> struct dtype_of_t<f16> { static constexpr DType value = DType::f16; };
template <> struct dtype_of_t<bf16> { static constexpr DType value = DType::bf16; };
template <> struct dtype_of_t<float> { static constexpr DType value = DType::f32; };
template <> struct dtype_of_t<double> { static constexpr DType value = DType::f64; };
template <> struct dtype_of_t<uint8_t> { static constexpr DType value = DType::u8; };
template <> struct dtype_of_t<int8_t> { static constexpr DType value = DType::i8; };
template <> struct dtype_of_t<int16_t> { static constexpr DType value = DType::i16; };
template <> struct dtype_of_t<int32_t> { static constexpr DType value = DType::i32; };
template <> struct dtype_of_t<int64_t> { static constexpr DType value = DType::i64; };
template <> struct dtype_of_t<bool> { static constexpr DType value = DType::boolean; };
template <class T> inline constexpr DType dtype_of = dtype_of_t<T>::value;

// Calls f(T{}) with the C++ type that stores `t`.
template <class F>
decltype(auto) dispatch(DType t, F&& f) {
  switch (t) {
    case DType::f16: return f(f16{});
    case DType::bf16: return f(bf16{});
    case DType::f32: return f(float{});
    case DType::f64: return f(double{});
    case DType::u8: return f(uint8_t{});
    case DType::i8: return f(int8_t{});
    case DType::i16: return f(int16_t{});
    case DType::i32: return f(int32_t{});
    case DType::i64: return f(int64_t{});
    case DType::boolean: break;
  }
  return f(bool{});
}

}  // namespace halfstep

// The standard library's limits of the 16-bit floats, for templates that ask std::numeric_limits<T>.
namespace halfstep::limits_detail {

// Numbers are given by their bits.
template <class T, uint16_t kLeast, uint16_t kMost, uint16_t kEpsilon, uint16_t kHalf, uint16_t kInfinity, uint16_t kNaN>
struct Limits {
  static constexpr bool is_specialized = true, is_signed = true, is_integer = false, is_exact = false, is_bounded = true,
                        is_modulo = false, is_iec559 = true, has_infinity = true, has_quiet_NaN = true, has_signaling_NaN = false,
                        has_denorm_loss = false, traps = false, tinyness_before = false;
  static constexpr std::float_denorm_style has_denorm = std::denorm_present;
  static constexpr std::float_round_style round_style = std::round_to_nearest;
  static constexpr int radix = 2;
  static constexpr T from_bits(uint16_t bits) noexcept {
    T out;
    out.bits = bits;
    return out;
  }
  static constexpr T min() noexcept { return from_bits(kLeast); }
  static constexpr T max() noexcept { return from_bits(kMost); }
  static constexpr T lowest() noexcept { return from_bits(0x8000 | kMost); }
  static constexpr T epsilon() noexcept { return from_bits(kEpsilon); }
  static constexpr T round_error() noexcept { return from_bits(kHalf); }
  static constexpr T infinity() noexcept { return from_bits(kInfinity); }
  static constexpr T quiet_NaN() noexcept { return from_bits(kNaN); }
  static constexpr T signaling_NaN() noexcept { return from_bits(0); }
  static constexpr T denorm_min() noexcept { return from_bits(1); }
};

}  // namespace halfstep::limits_detail

template <>
struct std::numeric_limits<halfstep::f16>
    : halfstep::limits_detail::Limits<halfstep::f16, 0x0400, 0x7bff, 0x1400, 0x3800, 0x7c00, 0x7e00> {
  static constexpr int digits = 11, digits10 = 3, max_digits10 = 5, min_exponent = -13, max_exponent = 16, min_exponent10 = -4,
                       max_exponent10 = 4;
};
template <>
struct std::numeric_limits<halfstep::bf16>
    : halfstep::limits_detail::Limits<halfstep::bf16, 0x0080, 0x7f7f, 0x3c00, 0x3f00, 0x7f80, 0x7fc0> {
  static constexpr int digits = 8, digits10 = 2, max_digits10 = 4, min_exponent = -125, max_exponent = 128, min_exponent10 = -37,
                       max_exponent10 = 38;
};
