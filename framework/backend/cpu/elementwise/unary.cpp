// SPDX-License-Identifier: Apache-2.0
// The unary rows of elementwise.def, forward and backward.
#include <atomic>
#include <cstring>
#include <memory>

#include "framework/backend/cpu/elementwise/loops.h"
#include "framework/backend/cpu/kernels.h"
#include "framework/math/functors.h"

namespace halfstep::cpu {
namespace {

template <class Fn, class T>
HS_CLONES void apply_single(const T* const* in, T* out, int64_t n, const void*) {
  const T* x = in[0];
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = stored<T>(Fn{}(float(x[i])));
}
template <class Fn, class C>
void apply(const C* const* in, C* out, int64_t n, const void*) {
  for (int64_t i = 0; i < n; ++i) out[i] = Fn{}(in[0][i]);
}

// Rows of the kind `real` have no loop for integers: unary() computes them in float.
#define HS_INTEGER_any(name) apply<functor::name, int64_t>
#define HS_INTEGER_number HS_INTEGER_any
#define HS_INTEGER_real(name) nullptr

#define HS_UNARY(name, ...) {apply_single<functor::name, float>, apply_single<functor::name, bf16>},
constexpr SingleLoops kSingle[] = {
#include "framework/math/elementwise.def"
};
#define HS_UNARY(name, ...) apply<functor::name, double>,
constexpr ElementLoop<double> kWide[] = {
#include "framework/math/elementwise.def"
};
#define HS_UNARY(name, policy, kind, ...) HS_INTEGER_##kind(name),
constexpr ElementLoop<int64_t> kInteger[] = {
#include "framework/math/elementwise.def"
};

// Returns whether a row costs as much as reading a few elements, so that fewer elements pay for a second thread.
bool is_heavy(Unary op) { return kUnaryRows[int(op)].kind == OpKind::real; }

// A function of bfloat16 has 65,536 results. Tensors several times as large read them from a table, which the same loop makes at
// the first use: 128 KiB, of which usual values need about 5 in the cache.
constexpr int64_t kResults = 1 << 16, kLeastForTable = 4 * kResults;
// Returns the results of all values, in the order of their bits. They are kept until the process ends.
const bf16* table_of(Unary op) {
  static std::atomic<const bf16*> tables[kUnaryCount];
  const bf16* table = tables[int(op)].load(std::memory_order_acquire);
  if (table) return table;
  const auto values = std::make_unique<bf16[]>(kResults);
  auto results = std::make_unique<bf16[]>(kResults);
  for (int64_t i = 0; i < kResults; ++i) values[size_t(i)].bits = uint16_t(i);
  const bf16* const in = values.get();
  kSingle[int(op)].in_bf16(&in, results.get(), kResults, nullptr);
  if (tables[int(op)].compare_exchange_strong(table, results.get(), std::memory_order_acq_rel)) table = results.release();
  return table;
}
void look_up(const bf16* const* in, bf16* out, int64_t n, const void* table) {
  typedef uint16_t Eight __attribute__((vector_size(16)));
  const uint16_t *const results = static_cast<const uint16_t*>(table), *const x = reinterpret_cast<const uint16_t*>(in[0]);
  const auto at = [&](int64_t i) { return results[x[i]]; };
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const Eight v = {at(i), at(i + 1), at(i + 2), at(i + 3), at(i + 4), at(i + 5), at(i + 6), at(i + 7)};
    std::memcpy(&out[i].bits, &v, sizeof v);
  }
  for (; i < n; ++i) out[i].bits = at(i);
}

}  // namespace

void unary(Unary op, const TensorView& x, const TensorView& out) {
  Compute c = compute_of(x.dtype);
  if (c == Compute::integer && kUnaryRows[int(op)].kind == OpKind::real) c = Compute::single;
  if (out.dtype == DType::f64 && c == Compute::single) c = Compute::wide;
  const std::span in(&x, 1);
  if (is_heavy(op) && x.dtype == DType::bf16 && out.dtype == DType::bf16 && x.numel() >= kLeastForTable)
    return map<bf16>(out, in, look_up, table_of(op));
  switch (c) {
    case Compute::single: return map(out, in, kSingle[int(op)], nullptr, is_heavy(op));
    case Compute::wide: return map<double>(out, in, kWide[int(op)], nullptr, true);
    case Compute::integer: return map<int64_t>(out, in, kInteger[int(op)]);
  }
}

}  // namespace halfstep::cpu
