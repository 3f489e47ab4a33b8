// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/dnn.h"

#include <algorithm>

#include "framework/base/dtype.h"

namespace halfstep {
namespace {

// Returns dense strides, with the heads of a row side by side if `like` has them so.
Strides dense_strides(const TensorView& like) {
  const Shape& s = like.shape;
  if (s[1] == 1 || s[2] == 1 || like.strides[1] >= like.strides[2]) return contiguous_strides(s);
  return {s[1] * s[2] * s[3], s[3], s[1] * s[3], 1};
}

// Returns whether q, k and v are the heads [0, H), [H, H + G) and [H + G, H + 2 G) of one dense tensor [B, L, H + 2 G, E].
bool packed(const TensorView& q, const TensorView& k, const TensorView& v) {
  if (q.dtype != k.dtype || q.dtype != v.dtype || q.shape[2] != k.shape[2] || k.shape != v.shape) return false;
  const int64_t width = q.shape[3], row = (q.shape[1] + 2 * k.shape[1]) * width;
  const Strides strides{row * q.shape[2], width, row, 1};
  for (const TensorView* t : {&q, &k, &v}) {
    for (int d = 0; d < 4; ++d)
      if (t->strides[d] != strides[d]) return false;
  }
  const auto after = [](const TensorView& before, int64_t heads) {
    return before.as<const char>() + heads * before.shape[3] * int64_t(size_of(before.dtype));
  };
  return k.as<const char>() == after(q, q.shape[1]) && v.as<const char>() == after(k, k.shape[1]);
}

int64_t rounded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
// Returns the size of equal pieces of at most `most`.
int64_t piece(int64_t all, int64_t most) {
  const int64_t pieces = (all + most - 1) / most;
  return (all + pieces - 1) / pieces;
}

}  // namespace

bool is_for_library(const AttentionArgs& a) {
  constexpr int64_t kWidest = 256;
  const Shape &q = a.q.shape, &k = a.k.shape;
  if (!is_half(a.q.dtype) || a.k.dtype != a.q.dtype || a.v.dtype != a.q.dtype) return false;
  if (q[0] < 1 || k[1] < 1 || k[2] < 1 || q[2] < 1 || q[1] % k[1] != 0 || a.v.shape != k || k[0] != q[0]) return false;
  return q[3] % 8 == 0 && q[3] <= kWidest && a.dropout_p < 1;
}

// The library keeps the scores of each head in 16 bits, with sides rounded up to tiles, and a float32 per row.
int64_t attention_workspace(int64_t queries, int64_t keys) { return rounded(queries, 64) * (rounded(keys, 128) * 2 + 4); }

AttentionDivision attention_division(std::span<const int64_t> q, std::span<const int64_t> k, int64_t workspace) {
  constexpr int64_t kBesides = int64_t(16) << 10;
  const int64_t shared = q[1] / k[1];
  const int64_t most = std::max<int64_t>(workspace - kBesides, 0) / attention_workspace(q[2], k[2]);  // query heads at once
  if (most >= q[1]) return {piece(q[0], most / q[1]), k[1]};
  if (most >= shared) return {1, piece(k[1], most / shared)};
  return {};
}

AttentionLayout layout_of(const AttentionArgs& a) {
  const Strides out = dense_strides(a.q);
  if (packed(a.q, a.k, a.v)) return {out, a.q.strides, a.k.strides, a.v.strides, true};
  return {out, out, dense_strides(a.k), dense_strides(a.v)};
}

}  // namespace halfstep
