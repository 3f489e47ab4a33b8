// Comparisons, logic and selection.
#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/loops.h"

namespace halfstep::cpu {
namespace {

template <class Fn, class C>
HS_CLONES void compare(const C* const* in, C* out, int64_t n, const void*) {
  const C *a = in[0], *b = in[1];
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = Fn{}(a[i], b[i]) ? C(1) : C(0);
}

template <class C>
HS_CLONES void choose(const C* const* in, C* out, int64_t n, const void*) {
  const C *cond = in[0], *a = in[1], *b = in[2];
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = cond[i] != C(0) ? a[i] : b[i];
}

#define HS_UNARY(...)
#define HS_BINARY(...)
#define HS_TEST(name, ...) compare<functor::name, C>,
template <class C>
constexpr Chunk<C> kCompare[] = {
#include "framework/math/elementwise.def"
};
#undef HS_UNARY
#undef HS_BINARY
#undef HS_TEST

}  // namespace

void test(Test op, const TensorView& a, const TensorView& b, const TensorView& out) {
  const TensorView in[] = {a, b};
  const auto counts = [](const TensorView& v, const TensorView& other) {
    return v.number && is_floating(other.dtype) ? compute_of(other.dtype) : compute_of(v.dtype);
  };
  with_compute(wider(counts(a, b), counts(b, a)), [&](auto tag) {
    using C = decltype(tag);
    map<C>(out, in, kCompare<C>[int(op)]);
  });
}

void where(const TensorView& cond, const TensorView& a, const TensorView& b, const TensorView& out) {
  const TensorView in[] = {cond, a, b};
  const Compute values = wider(compute_of(a.dtype), compute_of(b.dtype));
  with_compute(wider(values, compute_of(cond.dtype)), [&](auto tag) {
    using C = decltype(tag);
    map<C>(out, in, choose<C>);
  });
}

}  // namespace halfstep::cpu
