// SPDX-License-Identifier: Apache-2.0
// Counts of a tensor's values.
#include "framework/math/tally.h"

#include <algorithm>
#include <limits>

#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/tensor_lists.h"

namespace halfstep::cpu {
namespace {

// The row of a piece (math::TallyPlace), and its histogram if that is requested.
struct Counts {
  int64_t values[math::kTallySmallest + 1] = {};
  std::vector<int64_t> exponents;
};

// Adds the counts of one block. They fit into 32 bits, so that a vector has many of them. `normal`: bits of the smallest normal
// number. extremes: largest and smallest bits of a magnitude.
template <class C>
HS_CLONES void count_block(const C* x, int64_t n, typename math::FloatBits<C>::Bits normal, int64_t* counts,
                           typename math::FloatBits<C>::Bits* extremes) {
  using Bits = typename math::FloatBits<C>::Bits;
  constexpr Bits inf = math::FloatBits<C>::kInf;
  Bits nans = 0, positive_infs = 0, negative_infs = 0, zeros = 0, negatives = 0, subnormals = 0, largest = 0, smallest = ~Bits(0);
  for (int64_t i = 0; i < n; ++i) {
    const Bits all = std::bit_cast<Bits>(x[i]), size = all & (~Bits(0) >> 1), minus = all >> (8 * sizeof(Bits) - 1);
    const Bits is_inf = size == inf, counted = (size != 0) & (size < inf);
    nans += size > inf;
    positive_infs += is_inf & ~minus & 1;
    negative_infs += is_inf & minus;
    zeros += size == 0;
    negatives += counted & minus;
    subnormals += counted & Bits(size < normal);
    const Bits most = counted ? size : 0, least = counted ? size : ~Bits(0);
    largest = most > largest ? most : largest;
    smallest = least < smallest ? least : smallest;
  }
  const Bits sums[] = {nans, positive_infs, negative_infs, zeros, negatives, subnormals};
  for (int k = 0; k < 6; ++k) counts[k] += int64_t(sums[k]);
  extremes[0] = std::max(extremes[0], largest);
  extremes[1] = std::min(extremes[1], smallest);
}

int64_t as_double_bits(uint32_t magnitude) { return std::bit_cast<int64_t>(double(std::bit_cast<float>(magnitude))); }
int64_t as_double_bits(uint64_t magnitude) { return int64_t(magnitude); }

template <class C>
void count_piece(const TensorView& x, const TensorPiece& piece, bool exponents, Counts& out) {
  using Bits = typename math::FloatBits<C>::Bits;
  const Space s(x.shape, {&x.strides});
  const Bits normal = Bits(math::smallest_normal_bits(x.dtype));
  alignas(64) C buffer[kBlock];
  Bits extremes[2] = {0, ~Bits(0)};
  if (exponents) out.exponents.assign(256, 0);
  for (int64_t i = piece.begin; i < piece.end; i += kBlock) {
    const int64_t n = std::min(kBlock, piece.end - i);
    const C* values = fetch<C>(s, 0, x, i, n, buffer);
    count_block(values, n, normal, out.values, extremes);
    if (!exponents) continue;
    for (int64_t k = 0; k < n; ++k) {
      const Bits size = math::magnitude_bits(values[k]);
      if (size != 0 && size < math::FloatBits<C>::kInf) ++out.exponents[size_t(math::exponent_place(size))];
    }
  }
  if (extremes[0] == 0) return;
  out.values[math::kTallyLargest] = as_double_bits(extremes[0]);
  out.values[math::kTallySmallest] = as_double_bits(extremes[1]);
}

}  // namespace

void tally(const TensorView& x, bool exponents, const TensorView& row) {
  const std::vector<TensorPiece> pieces = pieces_of({&x, 1});
  std::vector<Counts> counts(pieces.size());
  for (Counts& c : counts) c.values[math::kTallySmallest] = std::numeric_limits<int64_t>::max();
  for_pieces(pieces, [&](size_t i) {
    if (x.dtype == DType::f64)
      count_piece<double>(x, pieces[i], exponents, counts[i]);
    else
      count_piece<float>(x, pieces[i], exponents, counts[i]);
  });
  int64_t* const out = row.as<int64_t>();
  std::fill_n(out, row.numel(), 0);
  out[math::kTallySmallest] = std::numeric_limits<int64_t>::max();
  for (const Counts& c : counts) {
    for (int k = 0; k < math::kTallyLargest; ++k) out[k] += c.values[k];
    out[math::kTallyLargest] = std::max(out[math::kTallyLargest], c.values[math::kTallyLargest]);
    out[math::kTallySmallest] = std::min(out[math::kTallySmallest], c.values[math::kTallySmallest]);
    for (size_t e = 0; e < c.exponents.size(); ++e) out[math::kTallyExponents + e] += c.exponents[e];
  }
}

}  // namespace halfstep::cpu
