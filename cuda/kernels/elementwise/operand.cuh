// SPDX-License-Identifier: Apache-2.0
// Elements of any dtype and strides: operands of kernels that are not all dense and of one type.
#pragma once

#include <initializer_list>
#include <type_traits>

#include "cuda/kernels/elementwise/divide.cuh"
#include "framework/tensor/view.h"

namespace halfstep::cuda {

// Returns x as To, rounded once. A float outside int64 becomes its minimum, as on the CPU; integers wrap; NaN becomes true.
template <class To, class C>
__device__ inline To converted(C x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != C(0);
  } else if constexpr (std::is_same_v<To, __half> || std::is_same_v<To, __nv_bfloat16>) {
    if constexpr (std::is_same_v<C, int64_t>) {
      if (x > (int64_t(1) << 53) || x < -(int64_t(1) << 53))
        x = (x & ~int64_t(0xfff)) | ((x & 0xfff) ? 0x800 : 0);  // exact as a double
      return from_float<To>(double(x));
    } else {
      return from_float<To>(x);
    }
  } else if constexpr (std::is_integral_v<To> && !std::is_integral_v<C>) {
    const bool inside = x >= C(-0x1p63) && x < C(0x1p63);
    return To(inside ? int64_t(x) : INT64_MIN);
  } else {
    return To(x);
  }
}

// A kernel's pointer to elements of a dtype that is given only at run time. at<T>(i) reads an element as a T, its own type.
struct Operand {
  void* data = nullptr;
  DType dtype = DType::f32;

  Operand() = default;
  Operand(const TensorView& v) : data(v.data), dtype(v.dtype) {}

  template <class T>
  __device__ const T& at(int64_t i) const {
    return static_cast<const T*>(data)[i];
  }

  template <class C>
  __device__ C load(int64_t i) const {
    return floating() ? load_floating<C>(i) : C(load_integer(data, dtype, i));
  }
  template <class C>
  __device__ void store(int64_t i, C x) const {
    if (floating())
      store_floating(i, x);
    else if (dtype == DType::boolean)
      put<bool>(i, x);
    else
      store_integer(data, dtype, i, converted<int64_t>(x));
  }

  // Loads an operand of a floating dtype, without the call that other dtypes need.
  template <class C>
  __device__ C load_floating(int64_t i) const {
    switch (dtype) {
      case DType::f16: return C(__half2float(at<__half>(i)));
      case DType::bf16: return C(__bfloat162float(at<__nv_bfloat16>(i)));
      case DType::f32: return C(at<float>(i));
      default: return C(at<double>(i));
    }
  }
  // Stores the result of a kernel that computes in float: f16, bf16, f32 or bool.
  __device__ void store_float(int64_t i, float x) const {
    switch (dtype) {
      case DType::f16: return put<__half>(i, x);
      case DType::bf16: return put<__nv_bfloat16>(i, x);
      case DType::f32: return put<float>(i, x);
      default: return put<bool>(i, x);
    }
  }
  template <class C>
  __device__ void store_floating(int64_t i, C x) const {
    switch (dtype) {
      case DType::f16: return put<__half>(i, x);
      case DType::bf16: return put<__nv_bfloat16>(i, x);
      case DType::f32: return put<float>(i, x);
      default: return put<double>(i, x);
    }
  }

 private:
  __device__ bool floating() const { return dtype <= DType::f64; }
  // Out of line, because this code would otherwise dominate every kernel. Static, so that no operand needs an address.
  __device__ __noinline__ static int64_t load_integer(const void* data, DType dtype, int64_t i) {
    switch (dtype) {
      case DType::u8: return static_cast<const uint8_t*>(data)[i];
      case DType::i8: return static_cast<const int8_t*>(data)[i];
      case DType::i16: return static_cast<const int16_t*>(data)[i];
      case DType::i32: return static_cast<const int32_t*>(data)[i];
      case DType::i64: return static_cast<const int64_t*>(data)[i];
      default: return static_cast<const bool*>(data)[i];
    }
  }
  __device__ __noinline__ static void store_integer(void* data, DType dtype, int64_t i, int64_t x) {
    switch (dtype) {
      case DType::u8: static_cast<uint8_t*>(data)[i] = uint8_t(x); return;
      case DType::i8: static_cast<int8_t*>(data)[i] = int8_t(x); return;
      case DType::i16: static_cast<int16_t*>(data)[i] = int16_t(x); return;
      case DType::i32: static_cast<int32_t*>(data)[i] = int32_t(x); return;
      default: static_cast<int64_t*>(data)[i] = x; return;
    }
  }
  template <class T, class C>
  __device__ void put(int64_t i, C x) const {
    static_cast<T*>(data)[i] = converted<T>(x);
  }
};

// Returns a C++ number, read on the host, as C.
template <class C>
C number_of(const TensorView& v) {
  switch (v.dtype) {
    case DType::f32: return C(*v.as<const float>());
    case DType::f64: return C(*v.as<const double>());
    case DType::i64: return C(*v.as<const int64_t>());
    default: return C(*v.as<const bool>());
  }
}

// One iteration space for N operands of equal shape. Neighbouring dimensions are merged if no operand has a gap between them, and
// those of size 1 are dropped. Dimension rank - 1 is innermost.
template <int N>
struct Space {
  int rank = 0;
  int64_t numel = 1;
  int64_t shape[kMaxDims] = {};
  int64_t strides[N][kMaxDims] = {};

  // strides_of(k): the strides of operand k.
  template <class F>
  Space(const Shape& dims, const F& strides_of) {
    for (int d = 0; d < dims.size(); ++d) {
      numel *= dims[d];
      if (dims[d] == 1) continue;
      bool merges = rank > 0;
      for (int k = 0; k < N; ++k) merges = merges && strides[k][rank - 1] == strides_of(k)[d] * dims[d];
      const int into = merges ? rank - 1 : rank++;
      shape[into] = merges ? shape[into] * dims[d] : dims[d];
      for (int k = 0; k < N; ++k) strides[k][into] = strides_of(k)[d];
    }
  }
  Space(const Shape& dims, std::initializer_list<const Strides*> operands)
      : Space(dims, [&](int k) -> const Strides& { return *operands.begin()[k]; }) {}
  explicit Space(const TensorView* const (&views)[N])
      : Space(views[0]->shape, [&](int k) -> const Strides& { return views[k]->strides; }) {}
  bool dense() const {
    for (int k = 0; k < N; ++k) {
      if (rank > 1 || (rank == 1 && strides[k][0] != 1)) return false;
    }
    return true;
  }
  // Computes the element offsets of all operands at row-major index i; divides in 32 bits if the index allows it.
  __device__ void offsets(int64_t i, int64_t (&at)[N]) const {
    for (int k = 0; k < N; ++k) at[k] = 0;
    for (int d = rank - 1; d > 0; --d) {
      int64_t digit;
      if (numel <= 0x7fffffff) {
        const uint32_t rest = uint32_t(i) / uint32_t(shape[d]);
        digit = int64_t(uint32_t(i) - rest * uint32_t(shape[d]));
        i = rest;
      } else {
        digit = i % shape[d];
        i /= shape[d];
      }
      for (int k = 0; k < N; ++k) at[k] += digit * strides[k][d];
    }
    for (int k = 0; k < N; ++k) at[k] += i * strides[k][0];
  }
  __device__ int64_t offset(int64_t i) const {
    int64_t at[N];
    offsets(i, at);
    return at[0];
  }
  // Does the same in much less code: for functions that are compiled for many ops, or several times in one kernel.
  __device__ void short_offsets(int64_t i, int64_t (&at)[N]) const {
    for (int k = 0; k < N; ++k) at[k] = 0;
    for (int d = rank - 1; d > 0; --d) {
      const int64_t rest = quotient(i, shape[d]), digit = i - rest * shape[d];
      i = rest;
      for (int k = 0; k < N; ++k) at[k] += digit * strides[k][d];
    }
    for (int k = 0; k < N; ++k) at[k] += i * strides[k][0];
  }
};

// The type in which a kernel computes, as on the CPU: float for f16, bf16 and f32, double for f64, int64 for integers and bool.
enum class Compute : uint8_t { integer, single, wide };
inline Compute compute_of(DType t) { return t == DType::f64 ? Compute::wide : is_floating(t) ? Compute::single : Compute::integer; }
inline Compute wider(Compute a, Compute b) { return a > b ? a : b; }

}  // namespace halfstep::cuda
