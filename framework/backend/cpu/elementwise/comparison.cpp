// SPDX-License-Identifier: Apache-2.0
// Comparisons, logic, bits and selection.
#include <algorithm>
#include <type_traits>

#include "framework/backend/cpu/elementwise/loops.h"
#include "framework/backend/cpu/kernels.h"
#include "framework/math/bitwise.h"
#include "framework/math/functors.h"

namespace halfstep::cpu {
namespace {

template <class Fn, class C, class Out>
HS_CLONES void compare(const C* const* in, Out* out, int64_t n, const void*) {
  const C *a = in[0], *b = in[1];
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = Fn{}(a[i], b[i]) ? Out(1) : Out(0);
}

template <class Fn>
HS_CLONES void bits(const int64_t* const* in, int64_t* out, int64_t n, const void*) {
  const int64_t *a = in[0], *b = in[1];
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = Fn{}(a[i], b[i]);
}
constexpr ElementLoop<int64_t> kBits[] = {bits<functor::bit_and>, bits<functor::bit_or>, bits<functor::bit_xor>,
                                          bits<functor::left_shift>, bits<functor::right_shift>};

template <class C>
HS_CLONES void choose(const C* const* in, C* out, int64_t n, const void*) {
  const C *cond = in[0], *a = in[1], *b = in[2];
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = cond[i] != C(0) ? a[i] : b[i];
}

// Chooses between bits: the compiler does not vectorise a choice between other types that depends on bytes.
template <class Bits>
HS_CLONES void choose_bits(const uint8_t* truth, const Bits* a, const Bits* b, Bits* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const Bits mask = Bits(-Bits(truth[i]));
    out[i] = Bits((a[i] & mask) | (b[i] & Bits(~mask)));
  }
}
template <class C>
void choose_by_truth(const bool* cond, const C* a, const C* b, C* out, int64_t n) {
  using Bits [[gnu::may_alias]] =
      std::conditional_t<sizeof(C) == 2, uint16_t, std::conditional_t<sizeof(C) == 4, uint32_t, uint64_t>>;
  const auto bits = [](const C* p) { return reinterpret_cast<const Bits*>(p); };
  choose_bits(reinterpret_cast<const uint8_t*>(cond), bits(a), bits(b), reinterpret_cast<Bits*>(out), n);
}
// Reads the condition as stored, for the usual dtype bool.
template <class C>
void where_true(const TensorView& cond, const TensorView& a, const TensorView& b, const TensorView& out) {
  const Space s(out.shape, {&out.strides, &cond.strides, &a.strides, &b.strides});
  const bool direct = out.dtype == dtype_of<C> && s.dense(0);
  parallel_for(s.numel, kBlock, s.numel, [&](int64_t begin, int64_t end) {
    alignas(64) bool truth[kBlock];
    alignas(64) C left[kBlock], right[kBlock], out_buffer[kBlock];
    for (int64_t i = begin; i < end; i += kBlock) {
      const int64_t n = std::min(kBlock, end - i);
      C* const to = direct ? out.as<C>() + i : out_buffer;
      choose_by_truth(fetch<bool>(s, 1, cond, i, n, truth), fetch<C>(s, 2, a, i, n, left), fetch<C>(s, 3, b, i, n, right), to, n);
      if (!direct) put<C>(s, 0, out, i, n, out_buffer);
    }
  });
}

#define HS_TEST(name, ...) compare<functor::name, C, Out>,
template <class C, class Out>
constexpr ElementLoop<C, Out> kCompare[] = {
#include "framework/math/elementwise.def"
};

}  // namespace

void test(Comparison op, const TensorView& a, const TensorView& b, const TensorView& out) {
  const TensorView in[] = {a, b};
  const auto compute_for = [](const TensorView& v, const TensorView& other) {
    return v.number && is_floating(other.dtype) ? compute_of(other.dtype) : compute_of(v.dtype);
  };
  if (a.dtype == DType::boolean && b.dtype == DType::boolean && out.dtype == DType::boolean)
    return map<bool>(out, in, kCompare<bool, bool>[int(op)]);
  with_compute(wider(compute_for(a, b), compute_for(b, a)), [&](auto tag) {
    using C = decltype(tag);
    if (out.dtype == DType::boolean)
      map<C, bool>(out, in, kCompare<C, bool>[int(op)]);
    else
      map<C>(out, in, kCompare<C, C>[int(op)]);
  });
}

void bitwise(Bitwise op, const TensorView& a, const TensorView& b, const TensorView& out) {
  const TensorView in[] = {a, b};
  map<int64_t>(out, in, kBits[int(op)]);
}

void where(const TensorView& cond, const TensorView& a, const TensorView& b, const TensorView& out) {
  // A number is given as a double but counts in the result's dtype.
  const Compute values = is_floating(out.dtype) ? compute_of(out.dtype) : wider(compute_of(a.dtype), compute_of(b.dtype));
  if (cond.dtype == DType::boolean) {
    if (a.dtype == DType::bf16 && b.dtype == DType::bf16 && out.dtype == DType::bf16) return where_true<bf16>(cond, a, b, out);
    return with_compute(values, [&](auto tag) { where_true<decltype(tag)>(cond, a, b, out); });
  }
  const TensorView in[] = {cond, a, b};
  with_compute(wider(values, compute_of(cond.dtype)), [&](auto tag) {
    using C = decltype(tag);
    map<C>(out, in, choose<C>);
  });
}

}  // namespace halfstep::cpu
