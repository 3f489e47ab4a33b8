// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/dnn.h"

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

}  // namespace

AttentionLayout layout_of(const AttentionArgs& a) {
  const Strides out = dense_strides(a.q);
  if (packed(a.q, a.k, a.v)) return {out, a.q.strides, a.k.strides, a.v.strides, true};
  return {out, out, dense_strides(a.k), dense_strides(a.v)};
}

}  // namespace halfstep
