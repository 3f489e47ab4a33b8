// SPDX-License-Identifier: Apache-2.0
// The shapes of attention: batches and heads of query, key, value and mask.
#pragma once

#include <algorithm>
#include <string_view>

#include "framework/base/check.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

// Returns the leading dimensions: all but the last `n`.
inline Shape leading(const Tensor& x, int n) {
  Shape s;
  for (int i = 0; i + n < x.dim(); ++i) s.push_back(x.size(i));
  return s;
}

// The shapes of query, key and value together: [batch..., heads, rows, width] each.
struct Heads {
  const Tensor &query, &key, &value;
  int64_t heads, key_heads, value_heads;
  Shape batch;

  // Throws ShapeError unless the shapes fit each other. enable_gqa: whether heads of key and value may serve several of query.
  Heads(const Tensor& query, const Tensor& key, const Tensor& value, bool enable_gqa)
      : query(query), key(key), value(value), heads(heads_of(query)), key_heads(heads_of(key)), value_heads(heads_of(value)) {
    if (query.dim() < 2 || key.dim() < 2 || value.dim() < 2) refuse("query, key and value must have at least 2 dimensions");
    if (query.size(-1) != key.size(-1)) refuse("query and key must have one size in the last dimension");
    if (key.size(-2) != value.size(-2)) refuse("key and value must have one number of rows");
    if (enable_gqa) {
      if (query.dim() < 3 || key.dim() < 3 || value.dim() < 3)
        refuse("with enable_gqa, query, key and value must have at least 3 dimensions");
      if (key_heads == 0 || value_heads == 0 || heads % key_heads != 0 || heads % value_heads != 0)
        refuse("with enable_gqa, query's heads must be a multiple of key's and of value's");
    } else {
      heads = broadcast({heads}, broadcast({key_heads}, {value_heads}, kName), kName)[0];
    }
    batch = broadcast(leading(query, 3), broadcast(leading(key, 3), leading(value, 3), kName), kName);
  }

  // Returns the scores' shape: [batch..., heads, rows of query, rows of key].
  Shape scores() const {
    Shape s = batch;
    if (std::max({query.dim(), key.dim(), value.dim()}) >= 3) s.push_back(heads);
    s.push_back(query.size(-2));
    s.push_back(key.size(-2));
    return s;
  }

  // Returns t, one of the three or its cast, as [batches, wanted_heads, rows, width]; repeats its heads if they are fewer.
  Tensor four_dims(const Tensor& t, int64_t own_heads, int64_t wanted_heads) const {
    Shape shape = batch;
    for (int64_t n : {own_heads, t.size(-2), t.size(-1)}) shape.push_back(n);
    Tensor x = t.shape() == shape ? t : t.expand(shape);
    const int64_t batches = numel(batch), rows = t.size(-2), width = t.size(-1);
    if (x.dim() != 4) x = x.reshape({batches, own_heads, rows, width});
    if (own_heads == wanted_heads) return x;
    return x.unsqueeze(2)
        .expand({batches, own_heads, wanted_heads / own_heads, rows, width})
        .reshape({batches, wanted_heads, rows, width});
  }

  // Returns the mask with four dimensions that broadcast to the scores; undefined stays undefined.
  Tensor mask_of_four_dims(Tensor mask) const {
    if (!mask.defined()) return mask;
    const Shape full_shape = scores();
    check<ShapeError>(mask.dim() <= full_shape.size() && broadcast(mask.shape(), full_shape, kName) == full_shape, kName,
                      "the mask must broadcast to the scores, ", full_shape, ", got ", mask.shape());
    while (mask.dim() < std::max(4, full_shape.size())) mask = mask.unsqueeze(0);
    if (mask.dim() == 4) return mask;
    const bool one_for_all = numel(leading(mask, 3)) == 1;
    Shape full = batch;
    for (int d = -3; d < 0; ++d) full.push_back(mask.size(d));
    return (one_for_all ? mask : mask.expand(full))
        .reshape({one_for_all ? 1 : numel(batch), mask.size(-3), mask.size(-2), mask.size(-1)});
  }

 private:
  static constexpr std::string_view kName = "scaled_dot_product_attention";

  static int64_t heads_of(const Tensor& t) { return t.dim() < 3 ? 1 : t.size(-3); }
  void refuse(std::string_view rule) const {
    fail<ShapeError>(kName, rule, ", got query ", query.shape(), ", key ", key.shape(), " and value ", value.shape());
  }
};

}  // namespace halfstep
