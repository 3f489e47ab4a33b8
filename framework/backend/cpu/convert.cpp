#include "framework/backend/cpu/convert.h"

#include <algorithm>

#include "framework/backend/cpu/simd.h"

namespace halfstep::cpu {
namespace {

template <class To, class From>
HS_CLONES void convert_dense(const From* in, To* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = cast<To>(in[i]);
}

template <class To, class From>
void convert_strided(const From* in, int64_t in_stride, To* out, int64_t out_stride, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i * out_stride] = cast<To>(in[i * in_stride]);
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
      if (n > 0) std::fill_n(out, n, cast<C>(*in));
    } else if (stride != 1 || n < 8) {
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
    if (stride != 1 || n < 8) {
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

template void load<float>(DType, const void*, int64_t, float*, int64_t);
template void load<double>(DType, const void*, int64_t, double*, int64_t);
template void load<int64_t>(DType, const void*, int64_t, int64_t*, int64_t);
template void store<float>(DType, const float*, void*, int64_t, int64_t);
template void store<double>(DType, const double*, void*, int64_t, int64_t);
template void store<int64_t>(DType, const int64_t*, void*, int64_t, int64_t);

}  // namespace halfstep::cpu
