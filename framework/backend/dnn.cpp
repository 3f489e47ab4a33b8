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
bool are_packed(const TensorView& q, const TensorView& k, const TensorView& v) {
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

int64_t rounded_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }
// Divides `total` into the fewest pieces of at most `most`, as equal as possible; returns the size of the largest.
int64_t piece_size(int64_t total, int64_t most) {
  const int64_t pieces = (total + most - 1) / most;
  return (total + pieces - 1) / pieces;
}

}  // namespace

bool is_for_library(const AttentionArgs& a) {
  constexpr int64_t kWidest = 256, kWidthMultiple = 8;  // of a head
  const Shape &q = a.q.shape, &k = a.k.shape;
  if (!is_half(a.q.dtype) || a.k.dtype != a.q.dtype || a.v.dtype != a.q.dtype) return false;
  if (q[0] < 1 || k[1] < 1 || k[2] < 1 || q[2] < 1 || q[1] % k[1] != 0 || a.v.shape != k || k[0] != q[0]) return false;
  return q[3] % kWidthMultiple == 0 && q[3] <= kWidest && a.dropout_p < 1;
}

// The library keeps the scores of each head in 16 bits, with sides rounded up to tiles, and a float32 per row.
int64_t attention_workspace(int64_t queries, int64_t keys) {
  constexpr int64_t kQueryTile = 64, kKeyTile = 128;
  return rounded_up(queries, kQueryTile) * (rounded_up(keys, kKeyTile) * 2 + 4);
}

AttentionDivision attention_division(std::span<const int64_t> q, std::span<const int64_t> k, int64_t workspace) {
  constexpr int64_t kOtherBytes = int64_t(16) << 10;  // workspace that is left for the library's other buffers
  const int64_t heads_of_key = q[1] / k[1];           // query heads that share a key head
  const int64_t most = std::max<int64_t>(workspace - kOtherBytes, 0) / attention_workspace(q[2], k[2]);  // query heads at once
  if (most >= q[1]) return {piece_size(q[0], most / q[1]), k[1]};
  if (most >= heads_of_key) return {1, piece_size(k[1], most / heads_of_key)};
  return {};
}

AttentionLayout layout_of(const AttentionArgs& a) {
  const Strides out = dense_strides(a.q);
  if (are_packed(a.q, a.k, a.v)) return {out, a.q.strides, a.k.strides, a.v.strides, true};
  return {out, out, dense_strides(a.k), dense_strides(a.v)};
}

}  // namespace halfstep
