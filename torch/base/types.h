// SPDX-License-Identifier: Apache-2.0
// Scalar types, devices, lists and numbers, with libtorch's names.
#pragma once

#include "framework/base/device.h"
#include "framework/base/dtype.h"
#include "framework/base/shape.h"
#include "framework/tensor/tensor.h"
#include "torch/base/error.h"

namespace torch {

// ---- scalar types. halfstep has no tensors of complex and quantised types: detail::to_hs throws for them
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

// ---- devices, layouts
enum class DeviceType : int8_t { CPU = 0, CUDA = 1, Meta = 14 };
inline constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA, kMeta = DeviceType::Meta;
using DeviceIndex = int8_t;
inline std::ostream& operator<<(std::ostream& out, DeviceType t) {
  return out << (t == kCPU ? "cpu" : t == kCUDA ? "cuda" : "meta");
}
struct Device {
  using Type = DeviceType;
  Device(DeviceType t, DeviceIndex i = -1) : type_(t), index_(i) { check(); }
  Device(const std::string& text) : type_(kCPU) {
    const size_t colon = text.find(':');
    const std::string name = text.substr(0, colon);
    if (name == "cpu")
      type_ = kCPU;
    else if (name == "cuda")
      type_ = kCUDA;
    else if (name == "meta")
      type_ = kMeta;
    else
      detail::fail("Invalid device string: '", text, "'");
    if (colon != std::string::npos) {
      const std::string digits = text.substr(colon + 1);
      if (digits.empty() || digits.size() > 3 || digits.find_first_not_of("0123456789") != std::string::npos)
        detail::fail("Could not parse device index '", digits, "' in device string '", text, "'");
      index_ = DeviceIndex(std::stoi(digits));
    }
    check();
  }
  template <size_t n>
  Device(const char (&text)[n]) : Device(std::string(text)) {}
  Device(hs::Device d) : type_(d.is_cuda() ? kCUDA : d.is_meta() ? kMeta : kCPU), index_(d.is_cuda() ? d.index : -1) {}
  DeviceType type() const { return type_; }
  DeviceIndex index() const { return index_; }
  bool has_index() const { return index_ >= 0; }
  void set_index(DeviceIndex i) { index_ = i; }
  bool is_cpu() const { return type_ == kCPU; }
  bool is_cuda() const { return type_ == kCUDA; }
  bool is_meta() const { return type_ == kMeta; }
  bool operator==(const Device& o) const { return type_ == o.type_ && index_ == o.index_; }
  std::string str() const {
    std::string out = type_ == kCPU ? "cpu" : type_ == kCUDA ? "cuda" : "meta";
    return has_index() ? out + ":" + std::to_string(index_) : out;
  }
  hs::Device h() const {
    if (type_ == kCUDA) return {hs::Device::Type::cuda, index_ < 0 ? int8_t(0) : index_};
    return type_ == kMeta ? hs::Device::meta : hs::Device::cpu;
  }

 private:
  void check() const {
    if (index_ < -1) detail::fail("Device index must be -1 or non-negative, got ", int(index_));
    if (type_ == kCPU && index_ > 0) detail::fail("CPU device index must be -1 or zero, got ", int(index_));
  }
  DeviceType type_;
  DeviceIndex index_ = -1;
};
inline std::ostream& operator<<(std::ostream& out, const Device& d) { return out << d.str(); }
enum class Layout : int8_t { Strided };
inline constexpr Layout kStrided = Layout::Strided;
inline std::ostream& operator<<(std::ostream& out, Layout) { return out << "Strided"; }
enum class MemoryFormat : int8_t { Contiguous, Preserve, ChannelsLast, ChannelsLast3d };
inline std::ostream& operator<<(std::ostream& out, MemoryFormat f) {
  static const char* names[] = {"Contiguous", "Preserve", "ChannelsLast", "ChannelsLast3d"};
  return out << names[size_t(f)];
}

// ---- lists
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

// ---- numbers
class Scalar {
 public:
  Scalar() : v_(int64_t(0)) {}
  template <class T>
  requires std::is_arithmetic_v<T> Scalar(T v) {
    if constexpr (std::is_same_v<T, bool>)
      v_ = v;
    else if constexpr (std::is_integral_v<T>)
      v_ = int64_t(v);
    else
      v_ = double(v);
  }
  Scalar(Half v) : v_(double(float(v))) {}
  Scalar(BFloat16 v) : v_(double(float(v))) {}
  template <class T>
  T to() const {
    return std::visit([](auto v) { return T(v); }, v_);
  }
  double toDouble() const { return to<double>(); }
  float toFloat() const { return to<float>(); }
  int toInt() const { return to<int>(); }
  int64_t toLong() const { return to<int64_t>(); }
  bool toBool() const { return to<bool>(); }
  bool isFloatingPoint() const { return std::holds_alternative<double>(v_); }
  bool isIntegral(bool include_bool) const { return std::holds_alternative<int64_t>(v_) || (include_bool && isBoolean()); }
  bool isBoolean() const { return std::holds_alternative<bool>(v_); }
  hs::Number n() const {
    return isFloatingPoint() ? hs::Number(toDouble()) : isBoolean() ? hs::Number(toBool()) : hs::Number(toLong());
  }
  Scalar operator-() const { return isFloatingPoint() ? Scalar(-toDouble()) : Scalar(-toLong()); }
  ScalarType type() const { return isFloatingPoint() ? kDouble : isBoolean() ? kBool : kLong; }

 private:
  std::variant<int64_t, double, bool> v_;
};
inline std::ostream& operator<<(std::ostream& out, const Scalar& s) {
  if (s.isFloatingPoint()) return out << s.toDouble();
  if (s.isBoolean()) return out << (s.toBool() ? "true" : "false");
  return out << s.toLong();
}

}  // namespace torch
