// SPDX-License-Identifier: Apache-2.0
#include "framework/base/dtype.h"

#include <ostream>

namespace halfstep {

std::string_view name(DType t) {
  constexpr std::string_view names[kDTypeCount] = {"float16", "bfloat16", "float32", "float64", "uint8",
                                                   "int8",    "int16",    "int32",   "int64",   "bool"};
  return names[size_t(t)];
}

std::optional<DType> parse_dtype(std::string_view text) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (text == name(DType(i))) return DType(i);
  struct Alias { std::string_view text; DType type; };
  constexpr Alias aliases[] = {{"f16", DType::f16},  {"half", DType::f16},   {"fp16", DType::f16},    {"bf16", DType::bf16},
                               {"f32", DType::f32},  {"float", DType::f32},  {"fp32", DType::f32},    {"f64", DType::f64},
                               {"double", DType::f64}, {"fp64", DType::f64}, {"long", DType::i64},    {"int", DType::i32},
                               {"i64", DType::i64},  {"i32", DType::i32},    {"i16", DType::i16},     {"i8", DType::i8},
                               {"u8", DType::u8}};
  for (const auto& a : aliases)
    if (text == a.text) return a.type;
  return std::nullopt;
}

std::ostream& operator<<(std::ostream& out, DType t) { return out << name(t); }

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (a == DType::boolean) return b;
  if (b == DType::boolean) return a;
  if (is_floating(a) != is_floating(b)) return is_floating(a) ? a : b;
  if (is_floating(a)) {
    if (is_half(a) && is_half(b)) return DType::f32;
    return a > b ? a : b;  // enum order f16 bf16 < f32 < f64
  }
  if (a == DType::u8 || b == DType::u8) {
    const DType other = a == DType::u8 ? b : a;
    return other == DType::i8 ? DType::i16 : other;
  }
  return a > b ? a : b;  // i8 < i16 < i32 < i64
}

double max_value(DType t) {
  switch (t) {
    case DType::f16: return 65504.0;
    case DType::bf16: return 0x1.fep127;
    case DType::f32: return 0x1.fffffep127;
    default: return 0x1.fffffffffffffp1023;
  }
}

double epsilon(DType t) {
  switch (t) {
    case DType::f16: return 0x1p-10;
    case DType::bf16: return 0x1p-7;
    case DType::f32: return 0x1p-23;
    default: return 0x1p-52;
  }
}

}  // namespace halfstep
