// SPDX-License-Identifier: Apache-2.0
// Scalar types, with libtorch's names. halfstep has no tensors of complex and quantised types: detail::to_hs throws for them.
#pragma once

#include "framework/base/dtype.h"
#include "torch/base/error.h"

namespace torch {

enum class ScalarType : int8_t {
  Byte,
  Char,
  Short,
  Int,
  Long,
  Half,
  Float,
  Double,
  ComplexHalf,
  ComplexFloat,
  ComplexDouble,
  Bool,
  QInt8,
  QUInt8,
  QInt32,
  BFloat16,
  Undefined
};
using Dtype = ScalarType;
inline constexpr ScalarType kByte = ScalarType::Byte, kChar = ScalarType::Char, kShort = ScalarType::Short, kInt = ScalarType::Int,
                            kLong = ScalarType::Long, kHalf = ScalarType::Half, kFloat = ScalarType::Float,
                            kDouble = ScalarType::Double, kBool = ScalarType::Bool, kBFloat16 = ScalarType::BFloat16,
                            kUInt8 = kByte, kInt8 = kChar, kInt16 = kShort, kInt32 = kInt, kInt64 = kLong, kFloat16 = kHalf,
                            kFloat32 = kFloat, kFloat64 = kDouble, kF32 = kFloat, kF64 = kDouble, kF16 = kHalf, kI64 = kLong,
                            kI32 = kInt, kU8 = kByte;
using Half = hs::f16;
using BFloat16 = hs::bf16;

inline const char* toString(ScalarType t) {
  static const char* names[] = {"Byte",  "Char",   "Short",       "Int",          "Long",          "Half",
                                "Float", "Double", "ComplexHalf", "ComplexFloat", "ComplexDouble", "Bool",
                                "QInt8", "QUInt8", "QInt32",      "BFloat16",     "Undefined"};
  return names[size_t(t)];
}
inline std::ostream& operator<<(std::ostream& out, ScalarType t) { return out << toString(t); }
inline bool isFloatingType(ScalarType t) { return t == kHalf || t == kFloat || t == kDouble || t == kBFloat16; }
inline bool isIntegralType(ScalarType t, bool include_bool = false) {
  return t == kByte || t == kChar || t == kShort || t == kInt || t == kLong || (include_bool && t == kBool);
}

namespace detail {
inline hs::DType to_hs(ScalarType t) {
  switch (t) {
    case kByte: return hs::DType::u8;
    case kChar: return hs::DType::i8;
    case kShort: return hs::DType::i16;
    case kInt: return hs::DType::i32;
    case kLong: return hs::DType::i64;
    case kHalf: return hs::DType::f16;
    case kFloat: return hs::DType::f32;
    case kDouble: return hs::DType::f64;
    case kBool: return hs::DType::boolean;
    case kBFloat16: return hs::DType::bf16;
    default: fail("halfstep has no tensors of the type ", t);
  }
}
inline ScalarType from_hs(hs::DType t) {
  switch (t) {
    case hs::DType::u8: return kByte;
    case hs::DType::i8: return kChar;
    case hs::DType::i16: return kShort;
    case hs::DType::i32: return kInt;
    case hs::DType::i64: return kLong;
    case hs::DType::f16: return kHalf;
    case hs::DType::f32: return kFloat;
    case hs::DType::f64: return kDouble;
    case hs::DType::bf16: return kBFloat16;
    case hs::DType::boolean: return kBool;
  }
  fail("unknown halfstep dtype ", int(t));
}
template <class T>
constexpr ScalarType scalar_type_of() {
  using V = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<V, bool>)
    return kBool;
  else if constexpr (std::is_same_v<V, uint8_t>)
    return kByte;
  else if constexpr (std::is_same_v<V, int8_t> || std::is_same_v<V, char>)
    return kChar;
  else if constexpr (std::is_integral_v<V> && sizeof(V) == 2)
    return kShort;
  else if constexpr (std::is_integral_v<V> && sizeof(V) == 4)
    return kInt;
  else if constexpr (std::is_integral_v<V>)
    return kLong;
  else if constexpr (std::is_same_v<V, float>)
    return kFloat;
  else if constexpr (std::is_same_v<V, double>)
    return kDouble;
  else if constexpr (std::is_same_v<V, Half>)
    return kHalf;
  else {
    static_assert(std::is_same_v<V, BFloat16>, "torch has no scalar type for T");
    return kBFloat16;
  }
}
}  // namespace detail
template <class T>
struct CppTypeToScalarType {
  static constexpr ScalarType value = detail::scalar_type_of<T>();
};

class TypeMeta {
 public:
  TypeMeta() = default;
  TypeMeta(ScalarType t) : t_(t) {}
  ScalarType toScalarType() const { return t_; }
  std::string name() const { return toString(t_); }
  size_t itemsize() const { return hs::size_of(detail::to_hs(t_)); }
  operator ScalarType() const { return t_; }
  template <class T>
  static TypeMeta Make() {
    return detail::scalar_type_of<T>();
  }
  friend bool operator==(const TypeMeta& a, const TypeMeta& b) { return a.t_ == b.t_; }
  friend bool operator==(const TypeMeta& a, ScalarType b) { return a.t_ == b; }
  friend bool operator==(ScalarType a, const TypeMeta& b) { return a == b.t_; }
  friend std::ostream& operator<<(std::ostream& out, const TypeMeta& t);

 private:
  ScalarType t_ = ScalarType::Undefined;
};
inline ScalarType typeMetaToScalarType(TypeMeta t) { return t.toScalarType(); }
inline TypeMeta scalarTypeToTypeMeta(ScalarType t) { return t; }
namespace detail {
inline ScalarType& default_dtype() {
  static ScalarType t = kFloat;
  return t;
}
}  // namespace detail
inline TypeMeta get_default_dtype() { return detail::default_dtype(); }
inline void set_default_dtype(TypeMeta t) { detail::default_dtype() = t.toScalarType(); }

}  // namespace torch
