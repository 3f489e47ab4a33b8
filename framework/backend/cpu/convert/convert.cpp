// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/cpu/convert/convert.h"

#include <algorithm>

#include "framework/backend/cpu/parallel.h"

namespace halfstep::cpu {
namespace {

constexpr int64_t kLeastVector = 8;  // fewer elements are converted one by one

template <class To, class From>
HS_CLONES void convert_dense(const From* in, To* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = cast<To>(in[i]);
}

// Reverses n elements: one side's step is -1.
template <int InStep, int OutStep, class T>
HS_CLONES void reverse(const T* in, T* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i * OutStep] = in[i * InStep];
}

template <class T>
HS_CLONES void repeat(T value, T* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = value;
}
void repeat(bf16 value, bf16* out, int64_t n) { repeat(value.bits, reinterpret_cast<uint16_t*>(out), n); }

template <class To, class From>
void convert_strided(const From* in, int64_t in_stride, To* out, int64_t out_stride, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i * out_stride] = cast<To>(in[i * in_stride]);
}

// Loads elements whose type does not change.
template <class T>
void load_same(const void* base, int64_t stride, T* out, int64_t n) {
  const T* in = static_cast<const T*>(base);
  if (stride == 1)
    std::copy_n(in, n, out);
  else if (stride != 0)
    convert_strided(in, stride, out, 1, n);
  else if (n > 0)
    repeat(*in, out, n);
}
template <class T>
void store_same(const T* in, void* base, int64_t stride, int64_t n) {
  T* out = static_cast<T*>(base);
  if (stride == 1)
    std::copy_n(in, n, out);
  else
    convert_strided(in, 1, out, stride, n);
}

template <class T>
constexpr bool is_half_type = std::is_same_v<T, f16> || std::is_same_v<T, bf16>;

}  // namespace

template <class C>
void load(DType t, const void* base, int64_t stride, C* out, int64_t n) {
  dispatch(t, [&](auto tag) {
    using S = decltype(tag);
    const S* in = static_cast<const S*>(base);
    if (stride == 0) {
      if (n > 0) repeat(cast<C>(*in), out, n);
    } else if (std::is_same_v<S, C> && stride == -1) {
      if constexpr (std::is_same_v<S, C>) reverse<-1, 1>(in, out, n);
    } else if (stride != 1 || n < kLeastVector) {
      convert_strided(in, stride, out, 1, n);
    } else if constexpr (std::is_same_v<S, C>) {
      std::copy_n(in, n, out);
    } else if constexpr (std::is_same_v<C, float> && is_half_type<S>) {
      widen(in, out, n);
    } else {
      convert_dense(in, out, n);
    }
  });
}

template <class C>
void store(DType t, const C* in, void* base, int64_t stride, int64_t n) {
  dispatch(t, [&](auto tag) {
    using S = decltype(tag);
    S* out = static_cast<S*>(base);
    if (std::is_same_v<S, C> && stride == -1) {
      if constexpr (std::is_same_v<S, C>) reverse<1, -1>(in, out, n);
    } else if (stride != 1 || n < kLeastVector) {
      convert_strided(in, 1, out, stride, n);
    } else if constexpr (std::is_same_v<S, C>) {
      std::copy_n(in, n, out);
    } else if constexpr (std::is_same_v<C, float> && is_half_type<S>) {
      narrow(in, out, n);
    } else {
      convert_dense(in, out, n);
    }
  });
}

template <>
void load<bf16>(DType, const void* base, int64_t stride, bf16* out, int64_t n) {
  load_same(base, stride, out, n);
}
template <>
void store<bf16>(DType, const bf16* in, void* base, int64_t stride, int64_t n) {
  store_same(in, base, stride, n);
}
template <>
void load<bool>(DType, const void* base, int64_t stride, bool* out, int64_t n) {
  load_same(base, stride, out, n);
}
template <>
void store<bool>(DType, const bool* in, void* base, int64_t stride, int64_t n) {
  store_same(in, base, stride, n);
}

template void load<float>(DType, const void*, int64_t, float*, int64_t);
template void load<double>(DType, const void*, int64_t, double*, int64_t);
template void load<int64_t>(DType, const void*, int64_t, int64_t*, int64_t);
template void store<float>(DType, const float*, void*, int64_t, int64_t);
template void store<double>(DType, const double*, void*, int64_t, int64_t);
template void store<int64_t>(DType, const int64_t*, void*, int64_t, int64_t);

}  // namespace halfstep::cpu
